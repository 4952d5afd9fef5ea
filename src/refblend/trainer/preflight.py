"""What ``check`` and ``train`` check before any process starts."""

import inspect
import tempfile
from collections import Counter
from pathlib import Path

from refblend.config import RefblendConfig
from refblend.config.scoring import SCORING_KEY
from refblend.data.dataset import PromptDataset, PromptSampler
from refblend.data.schema import PromptRow, read_rows
from refblend.energy import carbon_intensity
from refblend.errors import CheckpointError, ConfigError, DataError, Problems, RefblendError
from refblend.lifecycle.devices import device_sizes
from refblend.lifecycle.folders import check_temporary
from refblend.lookup import get_advantage, get_strategy, user_files
from refblend.ppo.choices import ADVANTAGES
from refblend.ppo.weights import STRATEGIES, StepContext, WeightParams
from refblend.rewards.rule import RuleReward
from refblend.rollout.model_dir import check_model
from refblend.scoring.clipping import ScoringRequest
from refblend.scoring.judge import check_judge, judge_class
from refblend.scoring.templates import load_templates, templates_file
from refblend.trainer.checkpoint import CheckpointManager, named_checkpoint
from refblend.trainer.datasets import RunData, load_run_data
from refblend.trainer.replay import replayed_weights_of
from refblend.trainer.run_directory import ASIDE
from refblend.trainer.trackers import check_trackers
from refblend.workers.placement import processes_of, totals
from refblend.workers.pools import check_machine

TRIED_ENTROPY = 0.5
"""Nats for which a user's strategy is tried."""
TRIED_ROWS = 64
"""Rows whose gold solutions are tried in the judge's prompts, and by a user's reward."""
MEASURED_ROWS = 512
"""Rows whose prompts to the judge are counted by form."""
ODD_ANSWERS = ("", "I think it is 5.", "#### \\boxed{[(1,,\n9^∞")
"""Responses that a reward must survive: an empty one, a sentence, and half of a formula."""


def preflight(config: RefblendConfig) -> RunData:
    """Check all that a run needs, and return its data; all problems are raised together."""
    problems = Problems()
    problems.note(_check_directory, Path(config.trainer.default_local_dir))
    problems.note(check_temporary)
    problems.note(check_trackers, config.trainer.logger)
    problems.note(_check_engine_kwargs, config)
    if config.trainer.energy:
        problems.note(carbon_intensity, config.trainer.country_iso_code)
    models_usable = _check_models(config, problems)
    problems.note(_check_estimator, config)
    reward, data = problems.note(RuleReward.from_config, config.reward), None
    problems.note(_check_strategy, config)
    if models_usable:
        problems.note(check_machine, config)
        data = problems.note(load_run_data, config)
    else:  # without a tokenizer the rows can be read, not encoded
        for path in data_files(config):
            problems.note(read_rows, path)
    if data is not None:
        batch = config.data.train_batch_size
        # Refuses a batch larger than the data.
        problems.note(PromptSampler, len(data.train), batch, False, config.trainer.seed)
        problems.note(_check_solutions, config, data.train)
        if reward is not None:
            with problems.noted():
                for key, part in data.parts().items():
                    _try_reward(reward, key, part)
        problems.note(judge_trial, config, data)
        steps = planned_steps(config, len(data.train))
        problems.note(replayed_weights_of, config, steps)
        own = CheckpointManager(Path(config.trainer.default_local_dir, "checkpoints"))
        named = config.trainer.resume_from_path
        if named and (Path(named).exists() or not own.saved_before()):
            problems.note(named_checkpoint, named, steps)
    problems.settle()
    assert data is not None, "whatever keeps the data from being loaded is a problem"
    return data


def describe(config: RefblendConfig, data: RunData) -> str:
    """Sizes of a run in one line: prompts, lengths of the first rows in tokens, steps."""
    rows = data.train.rows[:TRIED_ROWS]
    prompts = max(map(len, data.train.prompt_ids))
    parts = [f"{len(data.train)} prompts of at most {prompts} tokens"]
    golden = [len(data.encode(row.solution)) for row in rows if row.solution]
    if golden:
        limit = config.data.max_response_length
        parts.append(f"gold solutions of at most {max(golden)} tokens (responses may have {limit})")
    if asked := judge_trial(config, data):
        longest = max(request.unclipped_length for request in asked)
        parts.append(f"judge's prompts of at most {longest} tokens")
    return ", ".join([*parts, f"{planned_steps(config, len(data.train))} steps"])


def notices(config: RefblendConfig, data: RunData) -> list[str]:
    """Messages about idle GPUs, rewards for length, lost prompts, roles or special tokens."""
    told = []
    if not totals(processes_of(config))[1] and device_sizes():
        told.append(
            "the machine has GPUs, and this run uses none: params/scale/gpu.yaml shows the keys "
            "that ask for them (docs/how-to/gpu.md)"
        )
    quality = config.algorithm.ref_quality_score
    pays_for_length = quality.placement == "per_token" and not quality.weight_per_length
    if quality.enable and quality.max_weight and pays_for_length:
        told.append(
            "algorithm.ref_quality_score.placement=per_token gives every token the score, which "
            "pays for length: with an exact rule reward it lowered test accuracy by 0.40 in our "
            "study. Set placement=terminal, unless length is what you study"
        )
    if not getattr(data.tokenizer, "chat_template", None):
        told.append(
            f"the tokenizer of {config.actor_rollout_ref.model.path} has no chat template: a "
            "prompt is the text of its messages, line by line, without roles"
        )
    rows = [row for part in data.parts().values() for row in part.rows]
    for token in () if data.keep_special else data.tokenizer.all_special_tokens:
        count = sum(token in row.ground_truth or token in row.solution for row in rows)
        if count:
            told.append(
                f"{token!r} is a special token of the tokenizer and occurs in {count} of "
                f"{len(rows)} gold answers: rewards do not see it in responses unless "
                "reward.keep_special_tokens=true"
            )
    for key, part in data.parts().items():
        for count, done in ((part.n_dropped, "left out"), (part.n_truncated, "cut to it")):
            if count:
                told.append(
                    f"prompts of {key} longer than data.max_prompt_length and {done}: {count} "
                    f"({len(part)} are used)"
                )
    return told


def judge_trial(config: RefblendConfig, data: RunData) -> list[ScoringRequest]:
    """The judge's prompts for the first gold solutions, none without a judge; or ScoringError."""
    if not config.use_judge:
        return []
    rows = data.train.rows[:TRIED_ROWS]
    samples = [(row.question, row.solution or row.ground_truth) for row in rows]
    quality = config.algorithm.ref_quality_score
    return judge_class(quality.scoring.kind).trial(quality, samples)


def data_files(config: RefblendConfig) -> list[Path]:
    """The prompt files of a run."""
    data = config.data
    return [Path(f) for f in (*data.train_files, *data.val_files, *data.sanity_files)]


def inputs_of(config: RefblendConfig) -> tuple[list[Path], list[Path]]:
    """Files and model directories that determine a run."""
    scoring = config.algorithm.ref_quality_score.scoring
    files, models = data_files(config), [Path(config.actor_rollout_ref.model.path)]
    if config.use_judge:
        files.append(templates_file(scoring.templates))
        models += [Path(scoring.local_model)] if scoring.local_model else []
    return [*files, *user_files(config)], models


def planned_steps(config: RefblendConfig, num_prompts: int) -> int:
    """Last training step: ``total_training_steps``, or what ``total_epochs`` give."""
    if config.trainer.total_training_steps is not None:
        return config.trainer.total_training_steps
    return config.trainer.total_epochs * (num_prompts // config.data.train_batch_size)


def _check_directory(directory: Path) -> None:
    """Check that the run directory exists or can be created; nothing is left behind."""
    if ASIDE.fullmatch(directory.name):
        told = f"{directory} has a name of runs moved aside, which `refblend runs prune` deletes"
        raise CheckpointError(f"trainer.default_local_dir={told}", "Choose another name.")
    nearest = next(p for p in (directory, *directory.absolute().parents) if p.exists())
    try:
        with tempfile.TemporaryDirectory(prefix=".refblend-", dir=nearest):
            pass
    except OSError as error:
        where = "" if nearest == directory else f" below {nearest}"
        raise CheckpointError(
            f"trainer.default_local_dir={directory} cannot be written{where} "
            f"({error.strerror or error})",
            "Make it writable, or choose another directory.",
        ) from None


def _check_estimator(config: RefblendConfig) -> None:
    """Check an estimator, which may be a user's own, and whether the blend fits it."""
    name = config.algorithm.adv_estimator
    own = None if name in ADVANTAGES else get_advantage(name)  # which would load torch for ours
    quality = config.algorithm.ref_quality_score
    of_samples = quality.method in ("gdpo", "hero") or quality.entropy_level == "response"
    if quality.enable and of_samples and (own.needs_reward_baselines if own else name == "remax"):
        raise ConfigError(
            f"algorithm.adv_estimator={name} blends greedy responses, too, which have neither a "
            "group nor an entropy",
            "Choose another, or method=blend and entropy_level=batch.",
        )
    if own is None:
        return  # the configuration knows what else ours need
    try:
        inspect.signature(own.compute).bind(None)
    except TypeError as error:
        raise ConfigError(
            f"algorithm.adv_estimator={name} cannot be called with one argument ({error})",
            "Define it as def name(inputs: AdvantageInputs): one object has all that verl passes.",
        ) from error
    except ValueError:  # a built-in function without a signature: the first call will tell
        pass
    if own.needs_values and not config.use_critic:
        raise ConfigError(
            f"algorithm.adv_estimator={name} needs a critic's values, and this run has no critic",
            "Set critic.enable=true.",
        )


def _check_strategy(config: RefblendConfig) -> None:
    """Try a user's blending strategy once."""
    quality = config.algorithm.ref_quality_score
    if not quality.enable or quality.strategy in STRATEGIES:
        return
    params = WeightParams.of(quality, initial_entropy=TRIED_ENTROPY)
    get_strategy(quality.strategy).weight(TRIED_ENTROPY, params, StepContext(1, 1))


def _check_engine_kwargs(config: RefblendConfig) -> None:
    """Refuse engine arguments that vLLM does not have."""
    engines = {"actor_rollout_ref.rollout": config.actor_rollout_ref.rollout.engine_kwargs}
    if config.use_judge:
        engines[SCORING_KEY] = config.algorithm.ref_quality_score.scoring.engine_kwargs
    for section, given in engines.items():
        if given:  # only then is vLLM's own list worth the seconds of its import
            from refblend.rollout.vllm_engine import check_engine_kwargs

            check_engine_kwargs(f"{section}.engine_kwargs", given)


def _check_solutions(config: RefblendConfig, train: PromptDataset) -> None:
    """Refuse partial credit, and alignment, for rows without a gold solution."""
    quality = config.algorithm.ref_quality_score
    if quality.enable and quality.scoring.control == "oracle":
        use, otherwise = "scoring.control=oracle gives partial credit by", "choose another control"
    elif config.algorithm.repr_align.enable:
        use, otherwise = "algorithm.repr_align compares responses with", "set its enable to false"
    else:
        return
    for row in train.rows:
        if not row.solution.strip():
            raise DataError(
                f"row {row.index} of data.train_files has no gold solution, which {use}",
                f"Add extra_info.answer to every row, or {otherwise}.",
            )


def _check_models(config: RefblendConfig, problems: Problems) -> bool:
    """Note problems with the models and the judge's templates; return whether there are none."""
    before = len(problems.found)
    models = config.actor_rollout_ref
    length = ("actor_rollout_ref.rollout.max_model_len", models.rollout.max_model_len)
    if models.rollout.max_model_len is None:  # else the configuration compares the two
        longest = config.data.max_prompt_length + config.data.max_response_length
        length = ("data.max_prompt_length + data.max_response_length", longest)
    problems.note(check_model, ("actor_rollout_ref.model.path", models.model.path), length)
    if config.use_judge:
        quality = config.algorithm.ref_quality_score
        problems.note(check_judge, quality)
        problems.note(load_templates, quality.scoring.templates)
    return len(problems.found) == before


def _try_reward(reward: RuleReward, key: str, prompts: PromptDataset) -> None:
    """Score each source's first gold solution, odd answers, and by our rules every gold answer."""
    first = {row.data_source: row for row in reversed(prompts.rows)}
    tried = [(row, text) for row in first.values() for text in (_gold(row), *ODD_ANSWERS)]
    if reward.custom is None:  # a user's function may take long
        answers = {(row.data_source, row.ground_truth): row for row in reversed(prompts.rows)}
        tried += [(row, row.ground_truth) for row in reversed(answers.values())]
    try:
        for row, response in tried:
            result = reward.of_row(row, response)
            if result.error and response == _gold(row):
                raise DataError(
                    f"the row with index {row.index} of {row.data_source}: {result.error}",
                    "The reward fails on this gold answer: correct the data or the reward.",
                )
    except RefblendError as error:
        raise type(error)(f"{key}: {error.reason}", error.remedy) from error


def _gold(row: PromptRow) -> str:
    return row.solution or row.ground_truth


def gold_counts(config: RefblendConfig, data: RunData) -> list[str]:
    """How many gold answers of each source are right by both rules; DataError for none."""
    reward = RuleReward.from_config(config.reward)
    by_source: dict[str, list[PromptRow]] = {}
    for row in (row for part in data.parts().values() for row in part.rows):
        if _gold(row):
            by_source.setdefault(row.data_source, []).append(row)
    told = []
    for source, rows in by_source.items():
        rows = rows if reward.custom is None else rows[:TRIED_ROWS]
        results = [reward.of_row(row, data.decode(data.encode(_gold(row)))) for row in rows]
        right = [1 in (result.acc_strict, result.acc_flexible) for result in results]
        counts = f"{sum(right)} of {len(rows)}"
        if reward.custom is None:
            strict = sum(result.acc_strict == 1 for result in results)
            flexible = sum(result.acc_flexible == 1 for result in results)
            counts = f"{strict} of {len(rows)} by the strict rule, {flexible} by the flexible one"
        if not all(right):
            counts += f"; not that of the row with index {rows[right.index(False)].index}"
        told.append(f"gold answers of {source} that score 1: {counts}")
        if reward.custom is not None:
            scores = [reward.of_row(rows[0], text).score for text in ODD_ANSWERS]
            scores += [result.score for result in results]
            low, high = min(scores), max(scores)
            if low == high or low < 0 or high > 1:
                told.append(
                    f"your reward gives {source} from {low:g} to {high:g} on gold, empty and odd "
                    "answers: it must vary to train anything, and within 0 to 1 to be blended"
                )
        elif not any(right):
            raise DataError(
                told[-1], "Correct ground truths and solutions, or name the right rule."
            )
    return told


def judge_prompts(config: RefblendConfig, data: RunData) -> list[str]:
    """What the judge's length guards would do to gold solutions, and to the longest responses."""
    rows = [row for row in data.train.rows[:MEASURED_ROWS] if row.solution]
    if not config.use_judge or not rows:
        return []
    quality, longest = config.algorithm.ref_quality_score, config.data.max_response_length
    ids = data.encode(" ".join(row.solution for row in rows))
    long = data.decode((ids * (longest // len(ids) + 1))[:longest])
    told = []
    for what, text in (("gold solutions", None), (f"responses of {longest} tokens", long)):
        samples = [(row.question, text or row.solution) for row in rows]
        asked = judge_class(quality.scoring.kind).trial(quality, samples)
        if not asked:  # not every kind of judge makes prompts here
            break
        seen = Counter("clipped" if a.clipped else a.template for a in asked)
        shown = {"full": "few-shot", "compact": "compact", "clipped": "clipped"}
        shares = ", ".join(f"{seen[k] / len(asked):.1%} {name}" for k, name in shown.items())
        told.append(f"judge's prompts with {what}: {shares}")
    return told
