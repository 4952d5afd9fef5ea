import shutil
from pathlib import Path

import pytest
import yaml

from refblend.errors import ProblemsError, StudyError
from refblend.study.design.grid import build_grid

ROOT = Path(__file__).parents[3]


@pytest.fixture
def params(tmp_path: Path) -> Path:
    return Path(shutil.copytree(ROOT / "params", tmp_path / "params"))


def change(params: Path, experiment: str, **values: object) -> None:
    path = params / "study" / f"{experiment}.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | values))


@pytest.mark.parametrize(
    ("endpoint", "common", "reason"),
    [
        ("test_gready", {}, "is not a measure"),
        ("length_end", {}, "can be better or worse"),
        ("test_greedy", {"trainer.save_freq": 0}, "leaves no actor to test"),
        ("test_sampled", {"actor_rollout_ref.rollout.val_kwargs.n": 0}, "samples no answers"),
        ("val_gain", {"trainer.val_before_train": False}, "val_before_train=false"),
        ("judge_auc", {}, "no run of arm off would have judge_auc: it has no judge"),
    ],
)
def test_an_experiment_without_its_endpoint_is_refused_before_training(
    params: Path, endpoint: str, common: dict[str, object], reason: str
) -> None:
    change(params, "B", endpoint=endpoint, common=common)
    with pytest.raises((StudyError, ProblemsError), match=rf"B\.yaml: .*endpoint.*{reason}"):
        build_grid(["B"], "gpu", params)


@pytest.mark.parametrize("experiment", ["B", "M3"])
def test_more_must_be_better_by_an_experiment_s_own_endpoint(params: Path, experiment: str) -> None:
    change(params, experiment, endpoint="val_drawdown")
    with pytest.raises(
        StudyError, match=rf"{experiment}\.yaml: .*endpoint: of val_drawdown less is"
    ):
        build_grid([experiment], "gpu", params)


@pytest.mark.parametrize(
    ("experiment", "endpoint", "treated", "reference", "reason"),
    [
        # ±0.02 spikes would be a share of one spike.
        ("B", "loss_spikes", "linear_terminal", "off", "by loss_spikes has no margin of its"),
        ("B", "test_greedy", "off", "off", r"contrasts\.0: x compares off with itself"),
        ("B", "judge_auc", "linear_terminal", "off", "no run of arm off would have judge_auc"),
        ("E", "secs", "len320_ctx1024", "len256_ctx1024", "endpoint='secs'.*not a measure"),
    ],
)
def test_a_contrast_without_its_endpoint_is_refused(
    params: Path, experiment: str, endpoint: str, treated: str, reference: str, reason: str
) -> None:
    contrast = {"name": "x", "endpoint": endpoint, "pairs": {treated: reference}}
    change(params, experiment, contrasts=[contrast])
    with pytest.raises(StudyError, match=reason):
        build_grid([experiment], "gpu", params)


@pytest.mark.parametrize(
    "more", [{"endpoint": "loss_spikes", "margin": 1.0}, {"endpoint": "judge_auc"}]
)
def test_a_contrast_s_endpoint_concerns_its_own_arms(params: Path, more: dict[str, object]) -> None:
    """`off` has no judge."""
    change(
        params,
        "B",
        contrasts=[{"name": "x", "pairs": {"linear_terminal_w04": "linear_terminal"}} | more],
    )
    assert len(build_grid(["B"], "gpu", params))
