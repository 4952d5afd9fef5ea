"""Several seeds on the same workers: each run is what it would be alone."""

import json
from pathlib import Path

import pytest

from refblend.cli.main import parse_seeds
from refblend.config import RefblendConfig
from refblend.errors import ConfigError, TrainingError
from refblend.trainer import launch, recovery


@pytest.mark.engine
def test_a_run_after_another_and_extended_equals_a_run_alone(make_run, undisturbed):
    """Two steps and then two more, each after another seed's, give what four steps alone give.

    Actor, critic-less GRPO, reference, judge and engine are all used a second time.
    """
    base = make_run("--seeds", "2,1")
    folder = base.directory.parent / f"{base.directory.name}_of_{{seed}}"
    where = f"trainer.default_local_dir={folder}"
    first, second = (
        type(base)(Path(str(folder).replace("{seed}", str(seed))), base.config_file)
        for seed in (2, 1)
    )
    base.complete(where, "trainer.total_training_steps=2")
    assert second.weights(2) == undisturbed.weights(2)
    base.complete(where)
    # What the strategies `schedule` and `decay` would have weighed is logged beside the others, and
    # follows the planned number of steps; nothing else may differ.
    follow_total = {f"actor/ref_quality/counterfactual/{name}" for name in ("schedule", "decay")}
    records, expected = (
        [{key: record[key] for key in record.keys() - follow_total} for record in found.metrics()]
        for found in (second, undisturbed)
    )
    assert records == expected
    assert second.weights(4) == undisturbed.weights(4)
    assert first.canonical_lines() != second.canonical_lines()
    assert json.loads((second.directory / "config.json").read_text())["trainer"]["seed"] == 1
    provenance = second.directory / "provenance.json"
    sessions = json.loads(provenance.read_text())["sessions"]
    assert "trainer.total_training_steps: 2 → 4" in sessions[1]["changes"]
    # Nothing is left to do: no cluster is started, and nothing is written. Another key is refused.
    before = provenance.stat().st_mtime_ns
    base.complete(where)
    refused = base.train(where, "algorithm.gamma=0.9")
    assert refused.status == 2
    assert "algorithm.gamma: 1.0 → 0.9" in refused.output
    assert provenance.stat().st_mtime_ns == before


def test_a_seed_that_fails_leaves_its_reason_and_the_next_one_runs(
    tiny_config, tmp_path, monkeypatch
):
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


def test_seeds_need_directories_of_their_own(tiny_config):
    with pytest.raises(ConfigError, match="is the same for every seed") as caught:
        list(launch.train_seeds(tiny_config(), [1, 2]))
    assert "{seed}" in caught.value.remedy


@pytest.mark.parametrize(
    "text", ["", "1,", "a", "1;2", "-1", "1,1", "1,01", str(2**63), "1" * 5000]
)
def test_a_bad_list_of_seeds_is_refused(text):
    with pytest.raises(ConfigError, match="--seeds"):
        parse_seeds(text)


def test_a_list_of_seeds():
    assert parse_seeds("7") == [7]
    assert parse_seeds("1,2,30") == [1, 2, 30]
