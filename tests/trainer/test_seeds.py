"""Several seeds on the same workers: each run is what it would be alone."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from refblend.cli.main import parse_seeds
from refblend.config import RefblendConfig
from refblend.errors import ConfigError, TrainingError
from refblend.trainer import launch, recovery


@pytest.mark.engine
def test_a_run_after_another_equals_a_run_alone(
    make_run: Callable[..., Any], undisturbed: Any
) -> None:
    """Actor, critic-less GRPO, reference, judge and engine are all used a second time."""
    base = make_run()
    folder = base.directory.parent / f"{base.directory.name}_of_{{seed}}"
    ended = base.train(f"trainer.default_local_dir={folder}", "--seeds", "2,1")
    assert ended.status == 0, ended.output
    first, second = (
        type(base)(Path(str(folder).replace("{seed}", str(seed))), base.config_file)
        for seed in (2, 1)
    )
    assert second.canonical_lines() == undisturbed.canonical_lines()
    assert second.weights(4) == undisturbed.weights(4)
    assert first.canonical_lines() != second.canonical_lines()
    assert json.loads((second.directory / "config.json").read_text())["trainer"]["seed"] == 1
    # Nothing is left to do: no cluster is started, and nothing is written.
    before = (second.directory / "provenance.json").stat().st_mtime_ns
    again = base.train(f"trainer.default_local_dir={folder}", "--seeds", "2,1")
    assert again.status == 0, again.output
    assert (second.directory / "provenance.json").stat().st_mtime_ns == before


def test_a_seed_that_fails_leaves_its_reason_and_the_next_one_runs(
    tiny_config: Callable[..., RefblendConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(config: RefblendConfig, *_: object) -> None:
        if config.trainer.seed == 2:
            raise TrainingError("step 3 went astray", "Lower the learning rate.")

    monkeypatch.setattr(recovery, "train_with_recovery", train)
    monkeypatch.setattr(launch, "summarise_run", lambda *_: {"status": "finished"})
    config = tiny_config(f"trainer.default_local_dir={tmp_path}/seed_{{seed}}")
    outcomes = {
        run.trainer.seed: summary["status"]
        for run, summary in launch.train_seeds(config, [1, 2, 3])
    }
    assert outcomes == {1: "finished", 2: "failed", 3: "finished"}
    summary = json.loads((tmp_path / "seed_2" / "summary.json").read_text())
    assert summary["reason"] == "step 3 went astray. Lower the learning rate."


def test_seeds_need_directories_of_their_own(tiny_config: Callable[..., RefblendConfig]) -> None:
    with pytest.raises(ConfigError, match="is the same for every seed") as caught:
        list(launch.train_seeds(tiny_config(), [1, 2]))
    assert "{seed}" in caught.value.remedy


@pytest.mark.parametrize(
    "text", ["", "1,", "a", "1;2", "-1", "1,1", "1,01", str(2**63), "1" * 5000]
)
def test_a_bad_list_of_seeds_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--seeds"):
        parse_seeds(text)


def test_a_list_of_seeds() -> None:
    assert parse_seeds("7") == [7]
    assert parse_seeds("1,2,30") == [1, 2, 30]
