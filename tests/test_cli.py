"""The command line: wrong input is one line and exit status 2, before anything is written."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from refblend.cli.main import run
from refblend.config import RefblendConfig

SCORING = "algorithm.ref_quality_score.scoring"


@dataclass(frozen=True)
class Outcome:
    status: int
    out: str
    err: str


@pytest.fixture
def refblend(monkeypatch, capsys) -> Callable[..., Outcome]:
    """Call the entry point in this process, as the console script does."""

    def call(*arguments: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["refblend", *map(str, arguments)])
        capsys.readouterr()
        status = 0
        try:
            run()
        except SystemExit as stop:
            status = int(stop.code or 0)
        return Outcome(status, *capsys.readouterr())

    return call


@pytest.fixture
def config_file(tmp_path, tiny_config) -> Path:
    """The tiny configuration as a file; its run directory does not exist yet."""
    tiny_config()
    return tmp_path / "config.yaml"


@pytest.fixture
def refused(tmp_path, config_file, refblend) -> Callable[..., str]:
    """The one line that `train` and `check` print for overrides that must be refused."""

    def call(*overrides: str) -> str:
        before = sorted(tmp_path.rglob("*"))
        outcomes = [refblend(c, "--config", config_file, *overrides) for c in ("train", "check")]
        assert sorted(tmp_path.rglob("*")) == before, "nothing may be written"
        for outcome in outcomes:
            assert outcome.status == 2
            assert outcome.out == ""
            assert "Traceback" not in outcome.err
            lines = outcome.err.splitlines()
            assert len(lines) == 1, outcome.err
            assert lines[0].startswith("error: ")
        assert outcomes[0].err == outcomes[1].err
        return outcomes[0].err

    return call


def test_check_says_what_would_run(config_file, refblend) -> None:
    outcome = refblend("check", "--config", config_file)
    assert (outcome.status, outcome.err) == (0, "")
    # rollout, judge, actor: GRPO without KL needs neither critic nor reference
    first, *others = outcome.out.splitlines()
    assert first.startswith("64 prompts of at most ")
    assert first.endswith(", 2 steps, 3 CPU slots, 0 GPUs")
    assert any("that score 1: 80 of 80 by the strict" in line for line in others)
    judge = [line.partition(": ")[2] for line in others if line.startswith("judge's prompts with")]
    assert judge == ["100.0% few-shot, 0.0% compact, 0.0% clipped"] * 2


def test_check_takes_the_seeds_of_train(config_file, tmp_path, refblend, refused) -> None:
    """With {seed} in the directory, which one run has not, and each one's directory looked at."""
    where = f"trainer.default_local_dir={tmp_path}/runs/seed_{{seed}}"
    assert "names a seed" in refused(where)
    assert refblend("check", "--config", config_file, where, "--seeds", "1,2").status == 0
    (tmp_path / "runs" / "seed_2").mkdir(parents=True)
    (tmp_path / "runs" / "seed_2" / "config.json").write_text("{}")
    outcome = refblend("check", "--config", config_file, where, "--seeds", "1,2")
    assert outcome.status == 2
    assert "seed_2" in outcome.err


def test_check_counts_epochs_and_workers(config_file, refblend) -> None:
    outcome = refblend(
        "check",
        "--config",
        config_file,
        "trainer.total_training_steps=null",
        "trainer.total_epochs=3",
        "data.train_batch_size=5",
        "algorithm.adv_estimator=gae",
        "algorithm.use_kl_in_reward=true",
    )
    assert "36 steps, 5 CPU slots" in outcome.out  # 3 × ⌊64/5⌋; critic and reference beside


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("data.train_batch_size=65", ["data.train_batch_size is 65", "64 prompts", "Lower it"]),
        ("data.train_files=[]", ["data.train_files"]),
        ("data.val_files=[]", ["data.val_files"]),
        ("data.max_prompt_length=4", ["data.max_prompt_length"]),
        ("algorithm.adv_estimator=ppo", ["algorithm.adv_estimator='ppo'"]),
        ("algorithm.adv_estimator=nowhere:f", ["nowhere"]),
        ("reward.custom_reward_function=nowhere:f", ["reward.custom_reward_function", "nowhere"]),
        ("actor_rollout_ref.model.path=/does/not/exist", ["actor_rollout_ref.model.path"]),
        (f"{SCORING}.model_path=/does/not/exist", [f"{SCORING}.model_path", "/does/not/exist"]),
        (f"{SCORING}.templates=/none.yaml", ["/none.yaml"]),
        ("a\nb=1", ["unknown key a b"]),
    ],
)
def test_wrong_settings(refused, override, parts) -> None:
    message = refused(override)
    for part in parts:
        assert part in message


@pytest.mark.parametrize("key", ["train_files", "val_files", "sanity_files"])
@pytest.mark.parametrize("content", [None, b"PAR1 this is not a parquet file"])
def test_wrong_data(refused, tmp_path_factory, content, key) -> None:
    path = tmp_path_factory.mktemp("bad") / "rows.parquet"
    if content:
        path.write_bytes(content)
    assert str(path) in refused(f"data.{key}=[{path}]")


@pytest.mark.parametrize("key", ["actor_rollout_ref.model.path", f"{SCORING}.model_path"])
@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer*"])
def test_a_model_directory_that_lacks_a_file(refused, tmp_path_factory, tiny_model_dir, key, name):
    path = tmp_path_factory.mktemp("model") / "partial"
    shutil.copytree(tiny_model_dir, path, ignore=shutil.ignore_patterns(name))
    message = refused(f"{key}={path}")
    assert name == "tokenizer*" or key in message
    assert str(path) in message
    assert name.removeprefix("model.").rstrip("*") in message


def test_the_judge_is_not_looked_at_when_there_is_none(config_file, refblend) -> None:
    missing = f"{SCORING}.model_path=/does/not/exist"
    for off in ("algorithm.ref_quality_score.enable=false", f"{SCORING}.control=random"):
        assert refblend("check", "--config", config_file, missing, off).status == 0


def test_config_prints_the_resolved_tree(config_file, refblend) -> None:
    outcome = refblend("config", "--config", config_file, "trainer.seed=9")
    assert RefblendConfig.model_validate(json.loads(outcome.out)).trainer.seed == 9
    schema = json.loads(refblend("config", "--schema").out)
    assert "RefQualityScoreConfig" in schema["$defs"]
    for arguments, told in {
        ("--config", config_file, "--schema"): "--schema reads no configuration",
        (): "--config is missing",
    }.items():
        outcome = refblend("config", *arguments)
        assert outcome.status == 2
        assert told in outcome.err


def test_every_problem_has_a_line_of_its_own(config_file, refblend) -> None:
    wrong = ("trainer.default_local_dir=/proc/x", "ray.object_store_memory_mb=9000000")
    for command in ("check", "train"):
        outcome = refblend(command, "--config", config_file, *wrong)
        assert outcome.status == 2
        first, second = outcome.err.splitlines()
        assert first.startswith("error: trainer.default_local_dir=/proc/x cannot be written")
        assert second.startswith("error: the run needs about")


def test_help_and_refusals_wait_for_no_heavy_library(config_file) -> None:
    """Data, models and templates are read before torch and vLLM: they would double the time."""
    helped = [["--help"], ["train", "--help"], ["score", "--help"]]
    helped.append(["train", "--config", str(config_file), "trainer.sede=1"])
    wrong = {
        "trainer.default_local_dir=/proc/x": "/proc/x cannot be written",
        "actor_rollout_ref.rollout.num_gpus=100": "the machine has 0",
        "algorithm.adv_estimator=ppo": "neither a known name",
    }
    refused = [[c, "--config", str(config_file), o] for c in ("check", "train") for o in wrong]
    code = f"""
import sys
from refblend.cli.main import run
def called(commands, heavy):
    for sys.argv[1:] in commands:
        try:
            run()
        except SystemExit as stop:
            yield stop.code or 0
    yield from heavy & set(sys.modules)
light = {{"torch", "ray", "vllm", "transformers", "pandas", "matplotlib", "scipy", "datasets"}}
told = [*called({helped!r}, light)], [*called({refused!r}, {{"torch", "vllm"}})]
print("\\n" + repr(told))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.endswith(f"\n{([0, 0, 0, 2], [2] * 6)}\n"), done.stdout + done.stderr
    for words in wrong.values():
        assert done.stderr.count(words) == 2
