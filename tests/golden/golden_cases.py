"""The golden cases: each pins numbers of some purposes of ``numerics.json``.

As a script it runs cases against whatever ``refblend`` is on ``PYTHONPATH``, this tree's or that of
an older commit::

    PYTHONPATH=OTHER/src python tests/golden/golden_cases.py OUT.json [CASE…]

So a case uses only what every commit has: the commands, ``refblend.train``, configuration keys and
the public functions of docs/reference. It imports them inside its function; a case whose imports or
keys an older commit lacks is reported as skipped there.

To pin a reward or a judge's text, add a row to a table in ``golden_tables.py``.
"""

import atexit
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import golden_tables
from golden_inputs import Inputs, hash_of, hash_of_weights

Values = Mapping[str, Any]


@dataclass(frozen=True)
class Case:
    """A golden: what to run, and the purposes in ``numerics.json`` whose numbers it pins."""

    name: str
    purposes: tuple[str, ...]
    run: Callable[[Inputs], Values]
    engine: bool
    """Whether it starts Ray."""


CASES: dict[str, Case] = {}


def case(*purposes: str, engine: bool = False) -> Callable[[Callable[[Inputs], Values]], Any]:
    """Register a case under its function's name."""

    def register(function: Callable[[Inputs], Values]) -> Callable[[Inputs], Values]:
        CASES[function.__name__] = Case(function.__name__, purposes, function, engine)
        return function

    return register


def refblend_command(*arguments: Any) -> None:
    """Call ``refblend …`` in this process; RuntimeError unless it ends well."""
    from refblend.cli import main

    before, sys.argv = sys.argv, ["refblend", *map(str, arguments)]
    try:
        main()
    except SystemExit as end:
        if end.code:
            raise RuntimeError(f"refblend {arguments} ended with {end.code}") from None
    finally:
        sys.argv = before


# --- tables -------------------------------------------------------------------------------------


def _both_ways(compute_score: Callable[..., float], rows: Any) -> Values:
    return {
        f"{text!r} against {gold!r}": [compute_score(text, gold, m) for m in ("strict", "flexible")]
        for text, gold in rows
    }


@case("reward.gsm8k")
def reward_gsm8k(_: Inputs) -> Values:
    """The rule reward of numeric answers, both ways of reading them."""
    from refblend.rewards.gsm8k import compute_score

    return _both_ways(compute_score, golden_tables.GSM8K)


@case("reward.math")
def reward_math(_: Inputs) -> Values:
    """The rule reward of MATH."""
    from refblend.rewards.math import compute_score

    return _both_ways(compute_score, golden_tables.MATH)


@case("reward.reasoning_gym")
def reward_reasoning_gym(_: Inputs) -> Values:
    """The answers that the library's verifiers are asked about, strict and flexible."""
    from refblend.rewards.reasoning_gym import extract_answers

    return {
        f"{text!r} of {lines} lines": extract_answers(text, lines)
        for text, lines in golden_tables.REASONING_GYM
    }


@case("judge.parse")
def judge_parse(inputs: Inputs) -> Values:
    """The score of each text a judge may write, by the text alone and with its tokens."""
    from refblend.scoring.parsing import parse_score

    def found(*given: Any, **more: Any) -> list[Any]:
        result = parse_score(*given, **more)
        return [result.score, result.valid, result.path]

    values = {}
    for text in golden_tables.JUDGE:
        ids = inputs.encode(text)
        likely_digits = {inputs.encode(str(d))[0]: -0.5 * (d + 1) for d in range(10)}
        likely_digits |= {inputs.encode("d")[0]: -2.0}  # has the length of a digit
        likely = [
            likely_digits if inputs.tokenizer.decode([i]).isdigit() else {i: 0.0} for i in ids
        ]
        values[repr(text)] = [
            found(text),
            found(text, ids, inputs.tokenizer),
            found(text, ids, inputs.tokenizer, top_logprobs=likely, score_mode="expected"),
        ]
    return values


@case("judge.prompt", "judge.parse")
def judge_prompts(inputs: Inputs) -> Values:
    """Scores around every border of the length guards: few-shot, compact, hard clip.

    The scores are expected values, so every token of the prompt moves them. A digit is a token.
    """
    from refblend import Judge

    options: dict[str, Any] = {
        "engine": "hf",
        "templates": "embedded",
        "max_model_len": ALLOWED + 24,
        "safety_margin": 8,
        "max_new_tokens": 16,
        "score_mode": "expected",
    }
    with Judge.open(inputs.judge, **options) as judge:
        (full,) = judge.score(["1" * 10], ["2" * 10])
        (compact,) = judge.score(["1" * 10], ["2" * ALLOWED])
        frame = full.prompt_tokens - 20, compact.prompt_tokens_unclipped - ALLOWED - 10
        fits = ALLOWED - frame[0], ALLOWED - frame[1]
        lengths = [(10, n - 10 + d) for n in fits for d in (-1, 0, 1)]  # question, response
        lengths += [(q, r) for q in (fits[1], 700) for r in (0, 31, 32, 33, 34, 90)]
        lengths += [(fits[1] - r + d, r) for r in (32, 60) for d in (-1, 0, 1)]
        texts = [(digits(q), digits(r)) for q, r in lengths]
        texts += list(golden_tables.JUDGED)
        results = judge.score([q for q, _ in texts], [r for _, r in texts])
        names = [f"{q} and {r} tokens" for q, r in lengths] + [
            repr(t) for t in golden_tables.JUDGED
        ]
    return {"frames": frame} | {
        name: [r.template, r.clipped, r.prompt_tokens, r.score, r.path]
        for name, r in zip(names, results, strict=True)
    }


ALLOWED = 330
"""Tokens of a prompt in :func:`judge_prompts`: more than the frame with examples has."""


def digits(count: int) -> str:
    """So many digits, all different from their neighbours at any distance below ten."""
    return "".join(str((i + i // 10) % 10) for i in range(count))


# --- data and supervised training ----------------------------------------------------------------

RECIPE: dict[str, Any] = {
    "data": {
        "train_rows": 40,
        "validation_rows": 8,
        "test_rows": 12,
        "sanity_rows": 6,
        "long_share": 0.2,
    },
    "tokenizer": {"corpus_problems": 60, "vocab_size": 360},
    "architecture": {
        "hidden_size": 32,
        "num_layers": 2,
        "num_heads": 1,
        "num_kv_heads": 1,
        "mlp_size": 32,
    },
    "actor": {
        "clean": {"steps": 6, "batch_size": 4, "warmup_steps": 2, "decay_steps": 2},
        "sloppy": {"steps": 3, "batch_size": 4, "warmup_steps": 1},
    },
    "judge_data": {"problems": 10, "test_problems": 6, "max_response_tokens": 12},
    "judge": {"steps": {"weak": 2, "medium": 4, "strong": 6}, "batch_size": 4, "warmup_steps": 3},
    "evaluation": {"problems": 6, "samples": 2, "max_new_tokens": 12},
}


def recipe_file(inputs: Inputs) -> Path:
    """The recipe in a file."""
    path = inputs.folder / "recipe.json"
    path.write_text(json.dumps(RECIPE))
    return path


def table_of(path: Path) -> Values:
    """Rows of a parquet file, hashed, and the first one for readers."""
    import pyarrow.parquet as pq

    rows = pq.read_table(path).to_pylist()
    return {"rows": len(rows), "hash": hash_of(rows), "first": rows[0]}


def bed_files(inputs: Inputs) -> Path:
    """``refblend data prepare``, once."""
    out = inputs.folder / "bed"
    if not out.exists():
        refblend_command("data", "prepare", "--recipe", recipe_file(inputs), "--out", out)
    return out


@case("bed")
def bed(inputs: Inputs) -> Values:
    """The prompt files of the embedded problems."""
    return {path.stem: table_of(path) for path in sorted(bed_files(inputs).glob("*.parquet"))}


@case("data.gsm8k")
def data_gsm8k(inputs: Inputs) -> Values:
    """The prompt files of GSM8K, drawn from a few made-up rows."""
    source, out = inputs.folder / "gsm8k_source", inputs.folder / "gsm8k"
    source.mkdir(exist_ok=True)
    for split, count in (("train", 20), ("test", 5)):
        rows = [
            {"question": f"{split} {i}+{i}?", "answer": f"<<{i}+{i}={2 * i}>>{2 * i}\n#### {2 * i}"}
            for i in range(count)
        ]
        (source / f"{split}.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    draw = "--validation", 4, "--sanity", 3, "--seed", 1
    refblend_command("data", "gsm8k", "--source", source, "--out", out, *draw)
    return {path.stem: table_of(path) for path in sorted(out.glob("*.parquet"))}


@case("data.reasoning_gym")
def data_reasoning_gym(inputs: Inputs) -> Values:
    """The prompt files of a task, whose library is a made-up one with repeated problems."""
    library, out = inputs.folder / "library", inputs.folder / "reasoning_gym"
    library.mkdir(exist_ok=True)
    (library / "reasoning_gym.py").write_text(golden_tables.REASONING_GYM_LIBRARY)
    draw = "--task", "sums", "--size", 20, "--held-out", 4, "--seed", 3, "--config", "top=9"
    python = {"REFBLEND_REASONING_GYM_PYTHON": sys.executable, "PYTHONPATH": str(library)}
    with patch.dict(os.environ, python):
        refblend_command("data", "reasoning-gym", *draw, "--out", out)
    return {path.stem: table_of(path) for path in sorted(out.glob("*.parquet"))}


@case("tokenizer", "bed", "judge.prompt")
def tokenizer(inputs: Inputs) -> Values:
    """The byte-level BPE of the embedded texts."""
    from transformers import AutoTokenizer

    out = inputs.folder / "bed_tokenizer"
    refblend_command("models", "tokenizer", "--recipe", recipe_file(inputs), "--out", out)
    trained = AutoTokenizer.from_pretrained(out)
    text = "Tom has 16 eggs.\n16+3=19.\n#### 19 \\box{0.37}"
    return {
        "vocabulary": hash_of(trained.get_vocab()),
        "merges": hash_of(json.loads((out / "tokenizer.json").read_text())["model"]["merges"]),
        "ids": trained(text)["input_ids"],
        "template": trained.chat_template,
    }


def bed_actors(inputs: Inputs) -> tuple[Path, Path]:
    """The warm start after both phases and after the first, trained once."""
    out, clean = inputs.folder / "bed_actor", inputs.folder / "bed_actor_clean"
    if not out.exists():
        given = "--recipe", recipe_file(inputs), "--tokenizer", inputs.tokenizer_dir
        refblend_command("models", "actor", *given, "--out", out, "--clean-out", clean)
    return out, clean


@case("actor.train", "bed")
def actor_train(inputs: Inputs) -> Values:
    """The weights of both phases of the warm start."""
    out, clean = bed_actors(inputs)
    return {"clean": hash_of_weights(clean), "sloppy": hash_of_weights(out)}


@case("actor.measure", "bed", "actor.train", "reward.gsm8k")
def actor_measure(inputs: Inputs) -> Values:
    """Accuracy, pass@k and entropy of an actor."""
    report = inputs.folder / "actor_quality.json"
    given = "--recipe", recipe_file(inputs), "--data", inputs.prompts, "--report", report
    refblend_command("models", "evaluate-actor", "--model", inputs.actor, *given)
    measured: Values = json.loads(report.read_text())
    return measured


def bed_pairs(inputs: Inputs) -> tuple[Path, Path]:
    """Training and test pairs of the judges, made once."""
    train, test = inputs.folder / "pairs.parquet", inputs.folder / "pairs_test.parquet"
    if not train.exists():
        given = "--recipe", recipe_file(inputs), "--tokenizer", inputs.tokenizer_dir
        actors = "--actor", inputs.actor, "--clean", inputs.actor
        files = "--out", train, "--test-out", test
        refblend_command("models", "judge-data", *given, *actors, *files)
    return train, test


@case("judge.pairs", "bed")
def judge_pairs(inputs: Inputs) -> Values:
    """What the judges are trained and tested on."""
    train, test = bed_pairs(inputs)
    return {"train": table_of(train), "test": table_of(test)}


@case("judge.train", "judge.pairs", "judge.prompt", "bed", "actor.train")
def judge_train(inputs: Inputs) -> Values:
    """The weights of the first two judges of a chain."""
    start, values = bed_actors(inputs)[1], {}
    pairs, given = bed_pairs(inputs)[0], ("--tokenizer", inputs.tokenizer_dir)
    for strength in ("weak", "medium"):
        out = inputs.folder / f"bed_judge_{strength}"
        how = "--strength", strength, "--start", start, "--pairs", pairs, "--out", out
        refblend_command("models", "judge", "--recipe", recipe_file(inputs), *given, *how)
        values[strength], start = hash_of_weights(out), out
    return values


@case("judge.measure", "judge.prompt", "judge.parse")
def judge_measure(inputs: Inputs) -> Values:
    """Calibration and discrimination of a judge."""
    corpus, out = inputs.folder / "corpus.jsonl", inputs.folder / "quality.json"
    rows = [
        {"question": f"{a}+{b}?", "response": f"#### {a + b + d}", "label": float(d == 0)}
        for a in range(3)
        for b in range(3)
        for d in range(2)
    ]
    corpus.write_text("\n".join(map(json.dumps, rows)) + "\n")
    judge = "--judge", inputs.judge, "--kind", "hf", "--templates", "embedded"
    limits = "--set", "max_model_len=768", "--set", "max_new_tokens=16", "--threads", 1
    refblend_command("judge", "quality", *judge, *limits, "--corpus", corpus, "--report", out)
    forms = json.loads(out.read_text())["forms"]
    return {
        f"{form}: {name}": hash_of(value) if isinstance(value, list) else value
        for form, measured in forms.items()
        for name, value in measured.items()
    }


# --- training -------------------------------------------------------------------------------------


def run_tree(inputs: Inputs, name: str, **sections: Any) -> dict[str, Any]:
    """The configuration of a run of three steps; ``sections`` has ``a.b.c`` as ``a__b__c``."""
    tree: dict[str, Any] = {
        "data": {
            "train_files": [str(inputs.prompts)],
            "val_files": [str(inputs.prompts)],
            "max_prompt_length": 64,
            "max_response_length": 14,
            "train_batch_size": 4,
            "max_val_samples": 4,
        },
        "actor_rollout_ref": {
            "model": {"path": str(inputs.actor)},
            "actor": {"optim": {"lr": 1e-3}},
            "rollout": {
                "n": 4,
                "name": "hf",
                "max_model_len": 128,
                "kv_cache_memory_mb": 32,
                "val_kwargs": {"n": 1},
            },
        },
        "critic": {"optim": {"lr": 1e-3}},
        "trainer": {
            "total_training_steps": 3,
            "save_freq": 3,
            "test_freq": 3,
            "val_before_train": False,
            "rollout_dump_freq": -1,
            "default_local_dir": str(inputs.folder / "runs" / name),
            "logger": ["console"],
            "energy": False,
        },
        "ray": {"object_store_memory_mb": 80},
    }
    for key, value in sections.items():
        *path, last = key.split("__")
        section = tree
        for part in path:
            section = section.setdefault(part, {})
        section[last] = value
    return tree


NOT_NUMBERS = ("timing", "perf/", "energy/", "step")
"""Beginnings of metrics that depend on the clock."""


@cache
def share_ray() -> None:
    """Let all cases that train use one Ray, which the first of them starts."""
    from refblend.trainer import recovery

    start, open_ones, started = recovery.ray_cluster, ExitStack(), []
    atexit.register(open_ones.close)

    @contextmanager
    def shared(*asked: Any) -> Iterator[None]:
        if not started:
            started.append(open_ones.enter_context(start(*asked)))
        yield

    recovery.ray_cluster = shared


def trained(tree: dict[str, Any], *roles: str) -> Values:
    """Train; every metric as one list over the steps, and the hashes of the final weights."""
    import refblend

    share_ray()
    refblend.train(tree)
    run = Path(tree["trainer"]["default_local_dir"])
    steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    names = sorted({name for step in steps for name in step if not name.startswith(NOT_NUMBERS)})
    last = sorted((run / "checkpoints").glob("global_step_*"))[-1]
    weights = {f"weights of {role}": hash_of_weights(last / role) for role in ("actor", *roles)}
    return weights | {name: [step.get(name) for step in steps] for name in names}


@case("train", "judge.prompt", "judge.parse", "reward.gsm8k", engine=True)
def grpo_judge_vllm(inputs: Inputs) -> Values:
    """GRPO with a judge, KL in the reward and a reference policy, all on vLLM."""
    tree = run_tree(
        inputs,
        "grpo",
        actor_rollout_ref__rollout__name="vllm",
        algorithm__use_kl_in_reward=True,
        algorithm__kl_ctrl={"type": "adaptive", "kl_coef": 0.05, "horizon": 100},
        algorithm__ref_quality_score={
            "enable": True,
            "strategy": "linear",
            "entropy_high_threshold": 3.0,
            "scoring": {
                "model_path": str(inputs.judge),
                "templates": "embedded",
                "max_model_len": 768,
                "max_new_tokens": 16,
                "kv_cache_memory_mb": 32,
                "max_invalid_rate": 1.0,
            },
        },
    )
    return trained(tree)


@case("train", "reward.gsm8k", engine=True)
def gae_critic(inputs: Inputs) -> Values:
    """PPO with GAE and a critic, mini-batches, two epochs, KL and entropy in the loss."""
    tree = run_tree(
        inputs,
        "gae",
        algorithm__adv_estimator="gae",
        algorithm__gamma=0.98,
        algorithm__lam=0.9,
        actor_rollout_ref__model__use_shared_prefix=False,
        actor_rollout_ref__actor__ppo_mini_batch_size=2,
        actor_rollout_ref__actor__ppo_epochs=2,
        actor_rollout_ref__actor__clip_ratio_low=0.1,
        actor_rollout_ref__actor__clip_ratio_high=0.15,
        actor_rollout_ref__actor__clip_ratio_c=1.5,
        actor_rollout_ref__actor__grad_clip=0.5,
        actor_rollout_ref__actor__entropy_coeff=0.01,
        actor_rollout_ref__actor__use_kl_loss=True,
        actor_rollout_ref__actor__kl_loss_coef=0.1,
        actor_rollout_ref__actor__loss_agg_mode="seq-mean-token-sum",
        actor_rollout_ref__actor__optim={
            "lr": 3e-3,
            "weight_decay": 0.1,
            "lr_warmup_steps": 1,
            "lr_scheduler_type": "cosine",
        },
        critic__ppo_mini_batch_size=2,
        critic__ppo_epochs=2,
        critic__cliprange_value=0.05,
    )
    return trained(tree, "critic")


@case("train", "reward.gsm8k", engine=True)
def lora(inputs: Inputs) -> Values:
    """An adapter, whose base is the reference policy of the KL penalty."""
    model = {"path": str(inputs.actor), "lora_rank": 4, "lora_alpha": 8}
    kl = {"algorithm__use_kl_in_reward": True}
    return trained(run_tree(inputs, "lora", actor_rollout_ref__model=model, **kl))


@case("train", "reward.gsm8k", "reward.alignment", engine=True)
def rloo_alignment(inputs: Inputs) -> Values:
    """RLOO without a judge, importance correction, and the alignment bonus."""
    tree = run_tree(
        inputs,
        "rloo",
        algorithm__adv_estimator="rloo",
        algorithm__rollout_correction={"mode": "truncate", "threshold": 1.0001},
        algorithm__repr_align={"enable": True, "entropy_high_threshold": 0.05, "weight": 0.2},
        actor_rollout_ref__rollout__temperature=1.3,
        actor_rollout_ref__actor__use_dynamic_bsz=False,
        actor_rollout_ref__actor__ppo_micro_batch_size_per_gpu=5,
        trainer__val_before_train=True,
    )
    return trained(tree)


@case("train", "reward.gsm8k", "reward.imperfect", engine=True)
def imperfect_oracle(inputs: Inputs) -> Values:
    """Sparse and noisy rewards beside an oracle; then the test of the run's actor."""
    tree = run_tree(
        inputs,
        "imperfect",
        reward__verifier={"checked_share": 0.6, "flip_rate": 0.2},
        algorithm__ref_quality_score={
            "enable": True,
            "strategy": "piecewise",
            "max_weight": 0.8,
            "entropy_low_threshold": 0.1,
            "entropy_high_threshold": 4.0,
            "placement": "per_token_mean",
            "groups": "mixed",
            "max_weight_warmup_steps": 2,
            "scoring": {"control": "oracle"},
        },
    )
    return trained(tree)


@case("test", "train", "reward.gsm8k", "reward.imperfect")
def test_accuracy(inputs: Inputs) -> Values:
    """``refblend evaluate`` of the run before."""
    run = inputs.folder / "runs" / "imperfect"
    if not (run / "summary.json").exists():
        imperfect_oracle(inputs)
    refblend_command("evaluate", run, "--data", inputs.prompts)
    report = json.loads((run / "test.json").read_text())
    return {name: value for name, value in report.items() if name != "of"}


def main(out: str, *names: str) -> None:
    """Run the cases, or all, and write ``{"tree": …, "cases": {name: result}}`` after each."""
    import tempfile

    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import refblend
    from refblend import runtime

    runtime.configure_process(1)
    cases: dict[str, Any] = {}
    record = {"tree": str(Path(refblend.__file__).resolve().parents[1]), "cases": cases}
    with tempfile.TemporaryDirectory(prefix="golden-") as folder:
        inputs = Inputs(Path(folder))
        for name in names or CASES:
            begin = time.monotonic()
            result = outcome(CASES[name], inputs)
            result["seconds"] = round(time.monotonic() - begin, 1)
            cases[name] = result
            Path(out).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
            print(f"{name}: {result['seconds']} s", file=sys.stderr, flush=True)


def outcome(wanted: Case, inputs: Inputs) -> dict[str, Any]:
    """The values of a case, or why there are none; a case that this commit lacks is skipped."""
    try:
        return {"values": json.loads(json.dumps(wanted.run(inputs)))}
    except (ImportError, AttributeError) as error:
        return {"skipped": f"{type(error).__name__}: {error}"}
    except Exception:
        return {"failed": traceback.format_exc()}


if __name__ == "__main__":
    main(*sys.argv[1:])
