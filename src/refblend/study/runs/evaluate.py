"""Accuracy of trained actors on the test set, by the engine and the rule reward of training.

There is no Ray here: testing starts in seconds, and needs neither ranks nor a judge.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from refblend.config import RefblendConfig
from refblend.config.loading import load_config
from refblend.data.dataset import PromptDataset, load_prompt_dataset
from refblend.data.schema import read_rows
from refblend.data.tokenizer import decode_response, load_tokenizer
from refblend.errors import ConfigError, StudyError
from refblend.files import read_record, sha256_file
from refblend.lookup import user_files
from refblend.numerics import versions
from refblend.rewards.rule import RuleReward, reward_purposes
from refblend.rollout.base import RolloutEngine
from refblend.rollout.factory import start_rollout
from refblend.study.runs.run_files import MANY_STEPS, TEST_NAME, bound_to
from refblend.trainer.checkpoint import CheckpointManager, CheckpointRef
from refblend.trainer.tracking import read_metrics
from refblend.trainer.validation import ValidationSet, validation_requests

SEED = 0
"""Of the sampled answers: the same for every run, so that runs differ by their weights only."""


def evaluate_runs(
    runs: Sequence[str | Path], data: str | Path
) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Test the final actors of runs, e.g. all seeds of an arm; one engine serves them in turn.

    The first of a prompt's answers is greedy; ``val_kwargs`` says how many more are sampled, and
    how. Every row counts: the engine has room for the longest prompt, even where training leaves
    such prompts out. A report of the same run, data and numerics is only read, so that a call that
    was killed goes on where it was, and a tested run needs no checkpoint.

    Yields each run and its report, which says what it measured (:func:`_measured`); of a run that
    failed it has the status only. StudyError if a run is not complete, or its engine is not that of
    the others; ModelError if the longest prompt and its answer have no room in the actor.
    """
    engine: RolloutEngine | None = None
    try:
        for number, run in enumerate(map(Path, runs)):
            status = _record(run / "summary.json").get("status")
            if status == "failed":
                yield run, {"status": status}
                continue
            if status != "finished":
                remedy = "Finish it with the same command as before."
                raise StudyError(f"{run} has not finished", remedy)
            last = CheckpointManager(run / "checkpoints").latest_valid()
            if (report := _earlier(run, data, last)) is not None:
                yield run, report
                continue
            if last is None:
                remedy = "Set trainer.save_freq to -1 or more."
                raise StudyError(f"{run}: no checkpoint to evaluate", remedy)
            config = _config(run)
            if engine is None:
                prompts = load_prompt_dataset(data, load_tokenizer(last.actor), sys.maxsize)
                needed = max(map(len, prompts.prompt_ids)) + config.data.max_response_length
                engine, first = start_rollout(config, str(last.actor), needed), config
            else:
                if config.actor_rollout_ref != first.actor_rollout_ref:
                    raise StudyError(
                        f"{run} has another model or engine than the runs before it",
                        "Evaluate the seeds of one arm at a time.",
                    )
                engine.load_weights(_weights(last.actor), number)
            of = _measured(run, last.step, data)  # before its files can change
            if own := _own_reward(run):
                of["reward"] = own
            numbers = _measure(engine, config, prompts, last)
            yield run, {"status": status, "of": of, **numbers}
    finally:
        if engine is not None:
            engine.shutdown()


def _measured(run: Path, step: int, data: str | Path) -> dict[str, Any]:
    """What a report is of: the run, the data and the versions of the numbers."""
    config, sources = _config(run), {row.data_source for row in read_rows(data)}
    numerics = versions("test", *reward_purposes(config.reward, sources))
    return bound_to(run, step) | {"data": sha256_file(data), "numerics": numerics}


def _own_reward(run: Path) -> list[str] | None:
    """Hashes of the files of the user's reward function; None if they are not on this machine."""
    try:
        return [sha256_file(file) for file in user_files(_config(run), reward_only=True)]
    except (ConfigError, OSError):
        return None


def _earlier(run: Path, data: str | Path, last: CheckpointRef | None) -> dict[str, Any] | None:
    """The run's report, if it is of what would be measured now."""
    path = run / TEST_NAME
    if not path.exists():
        return None
    step = int(read_metrics(run / "metrics.jsonl")["step"].max()) if last is None else last.step
    report = _record(path)
    of = dict(report.get("of") or {})
    tested, own = of.pop("reward", None), _own_reward(run)
    changed = None not in (tested, own) and tested != own
    return report if of == _measured(run, step, data) and not changed else None


def _measure(
    engine: RolloutEngine, config: RefblendConfig, prompts: PromptDataset, last: CheckpointRef
) -> dict[str, float | int]:
    """Shares in [0, 1]; ``length`` is the mean number of tokens of a greedy answer, ``truncated``
    the share of those cut off, and ``greedy_steps_<n>`` their accuracy where solutions have n steps
    (:data:`~refblend.study.runs.run_files.MANY_STEPS`: or more), of data whose rows say it."""
    wanted, longest = config.actor_rollout_ref.rollout.val_kwargs, config.data.max_response_length
    kwargs = wanted.model_copy(update={"do_sample": True})  # which is about validation
    samples = kwargs.n
    requests = validation_requests([ValidationSet(prompts)], kwargs, longest, SEED)
    answers = engine.generate(requests)
    tokenizer, reward = load_tokenizer(last.actor), RuleReward.from_config(config.reward)
    rows = [row for row in prompts.rows for _ in range(samples + 1)]
    keep = config.reward.keep_special_tokens
    texts = [decode_response(tokenizer, answer.token_ids, keep) for answer in answers]
    results = reward.of_rows(rows, texts)
    right = [result.accuracy(config.reward.method) for result in results]
    greedy = slice(None, None, samples + 1)
    sampled = [value for place, value in enumerate(right) if place % (samples + 1)]
    first = answers[greedy]
    by_steps: dict[int, list[float]] = {}
    for row, hit in zip(prompts.rows, right[greedy], strict=True):
        if row.extra.get("n_steps") is not None:
            by_steps.setdefault(min(int(row.extra["n_steps"]), MANY_STEPS), []).append(hit)
    numbers = {
        "problems": len(prompts),
        "samples": samples,
        "greedy": fmean(right[greedy]),
        "greedy_strict": fmean([r.acc_strict for r in results[greedy]]),
        "length": fmean([len(answer.token_ids) for answer in first]),
        "truncated": fmean([float(answer.finish_reason == "length") for answer in first]),
    }
    if errors := reward.take_errors():
        numbers["reward_errors"] = errors
    numbers |= {f"greedy_steps_{n}": fmean(hits) for n, hits in sorted(by_steps.items())}
    return numbers | ({"sampled": fmean(sampled)} if sampled else {})


def _weights(model: Path) -> dict[str, Any]:
    """All tensors of a model directory, by Hugging Face names."""
    from safetensors.torch import load_file

    files = sorted(model.glob("*.safetensors"))
    return {name: tensor for file in files for name, tensor in load_file(file).items()}


def _config(run: Path) -> RefblendConfig:
    try:
        return load_config([run / "config.json"])
    except ConfigError as error:
        raise StudyError(f"{run}: {error.reason}", "Train the run again.") from error


def _record(path: Path) -> dict[str, Any]:
    remedy = "Give the directory of a finished run, or train the run again."
    return read_record(path, StudyError, remedy)
