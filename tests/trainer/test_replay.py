"""Weights of another run: read, ordered, refused, and part of the run's identity."""

import json
from pathlib import Path

import pytest

from refblend.errors import DataError
from refblend.provenance import InputHashes
from refblend.trainer.launch import train_seeds
from refblend.trainer.preflight import preflight
from refblend.trainer.replay import read_weights, replay_of_seed, replayed_weights_of, with_replay

WEIGHT = "actor/ref_quality/weight"


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """Metrics of a run of five steps, with weights 0.1 to 0.5."""
    path = tmp_path / "metrics.jsonl"
    write(path, [0.1, 0.2, 0.3, 0.4, 0.5])
    return path


def write(path: Path, weights: list, seconds: float = 1.0) -> None:
    lines = [{"step": 0}] + [
        {"step": step, WEIGHT: weight, "timing_s/step": seconds}
        for step, weight in enumerate(weights, 1)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture
def replaying(tiny_config, recorded):
    def make(*overrides: str, file: object = recorded, steps: int = 4):
        quality = "algorithm.ref_quality_score"
        return tiny_config(
            f"{quality}.enable=true",
            f"{quality}.strategy=replay",
            f"{quality}.replay_file={file}",
            f"{quality}.max_weight=0.5",
            f"{quality}.scoring.control=random",
            f"trainer.total_training_steps={steps}",
            *overrides,
        )

    return make


def test_as_recorded_or_in_an_order_that_the_seed_draws(replaying):
    assert replayed_weights_of(replaying(), 4) == (0.1, 0.2, 0.3, 0.4)
    shuffled = "algorithm.ref_quality_score.replay_order=shuffled"
    first, other = (
        replayed_weights_of(replaying(shuffled, f"trainer.seed={seed}"), 5) for seed in (1, 2)
    )
    assert sorted(first) == sorted(other) == [0.1, 0.2, 0.3, 0.4, 0.5]
    assert first != other
    assert first == replayed_weights_of(replaying(shuffled, "trainer.seed=1"), 5)


def test_the_mean_has_the_same_dose_in_every_step(replaying):
    mean = replayed_weights_of(replaying("algorithm.ref_quality_score.replay_order=mean"), 4)
    assert mean == pytest.approx((0.25,) * 4)


@pytest.mark.parametrize(
    ("pattern", "seed", "named"),
    [("{seed}", 7, 7), *(("{partner_seed}", *pair) for pair in [(1, 2), (2, 1), (7, 8), (0, 0)])],
)
def test_the_path_may_name_the_seed_or_its_partner(replaying, tmp_path, pattern, seed, named):
    config = replay_of_seed(replaying(file=tmp_path / f"seed_{pattern}.jsonl"), seed)
    expected = str(tmp_path / f"seed_{named}.jsonl")
    assert config.algorithm.ref_quality_score.replay_file == expected


def test_other_strategies_replay_nothing(replaying):
    config = replaying("algorithm.ref_quality_score.strategy=linear")
    assert replayed_weights_of(config, 4) == ()
    assert with_replay(InputHashes({}, {}), config) == InputHashes({}, {})


def test_identity_follows_the_weights_and_not_the_timings(replaying, recorded):
    before = with_replay(InputHashes({"a": "b"}, {}), replaying())
    assert set(before.data) == {"a", str(recorded)}
    write(recorded, [0.1, 0.2, 0.3, 0.4, 0.5], seconds=9.0)
    assert with_replay(InputHashes({"a": "b"}, {}), replaying()) == before
    write(recorded, [0.1, 0.2, 0.3, 0.4, 0.6])
    assert with_replay(InputHashes({"a": "b"}, {}), replaying()) != before


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("not json", "line 1 is not a metrics record"),
        ('{"no": 1}', "line 1 is not a metrics record"),
        ('{"step": 1}', "step 1 has the weight nan"),
        (json.dumps({"step": 1, WEIGHT: 1.5}), "step 1 has the weight 1.5"),
        (json.dumps({"step": 2, WEIGHT: 0.5}), "step 1 has the weight nan"),
    ],
)
def test_a_file_that_cannot_be_replayed(recorded, text, says):
    recorded.write_text(text + "\n")
    with pytest.raises(DataError, match=says):
        read_weights(recorded)


def test_check_refuses_a_missing_file_and_a_short_run(replaying, tmp_path):
    with pytest.raises(DataError, match="No such file"):
        replayed_weights_of(replaying(file=tmp_path / "none.jsonl"), 0)
    with pytest.raises(DataError, match="5 steps, this run has 6"):
        replayed_weights_of(replaying(), 6)


def test_weights_that_the_largest_one_would_cut_are_refused(replaying):
    low = "algorithm.ref_quality_score.max_weight=0.4"
    assert len(replayed_weights_of(replaying(low), 4)) == 4
    with pytest.raises(DataError, match=r"up to 0\.5, and max_weight=0\.4 would cut them"):
        replayed_weights_of(replaying(low), 5)


def test_the_steps_of_epochs_count_before_anything_starts(replaying):
    long = ("trainer.total_training_steps=null", "trainer.total_epochs=99")
    with pytest.raises(DataError, match=r"5 steps, this run has \d+"):
        preflight(replaying(*long))
    preflight(replaying())


def test_every_seed_s_file_is_checked_before_the_first_run(replaying, tmp_path):
    for seed, steps in ((1, 5), (2, 3)):
        (tmp_path / f"{seed}").mkdir()
        write(tmp_path / f"{seed}" / "metrics.jsonl", [0.1] * steps)
    config = replaying(
        f"trainer.default_local_dir={tmp_path}/runs/{{seed}}",
        file=f"{tmp_path}/{{seed}}/metrics.jsonl",
    )
    with pytest.raises(DataError, match=r"2/metrics\.jsonl has weights of 3 steps"):
        next(train_seeds(config, [1, 2]))
    assert not (tmp_path / "runs").exists()
