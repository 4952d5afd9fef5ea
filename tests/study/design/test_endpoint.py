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
    with pytest.raises((StudyError, ProblemsError), match=rf"B\.yaml: endpoint.*{reason}"):
        build_grid(["B"], "gpu", params)


def test_other_endpoints_are_accepted(params: Path) -> None:
    for endpoint in ("val_best", "final_return"):
        change(params, "B", endpoint=endpoint)
        assert len(build_grid(["B"], "gpu", params))


@pytest.mark.parametrize("experiment", ["B", "M3"])
def test_more_must_be_better_by_an_experiment_s_own_endpoint(params: Path, experiment: str) -> None:
    change(params, experiment, endpoint="val_drawdown")
    with pytest.raises(StudyError, match=rf"{experiment}\.yaml: endpoint: of val_drawdown less is"):
        build_grid([experiment], "gpu", params)


def test_a_contrast_in_other_units_needs_its_own_margin(params: Path) -> None:
    """±0.02 steps would be a share of one step."""
    contrast = {"name": "speed", "endpoint": "loss_spikes", "pairs": {"linear_terminal": "off"}}
    change(params, "B", contrasts=[contrast])
    with pytest.raises(StudyError, match="by loss_spikes have no margin of their own"):
        build_grid(["B"], "gpu", params)
    change(params, "B", contrasts=[contrast | {"margin": 1.0}])
    assert len(build_grid(["B"], "gpu", params))


def test_an_arm_is_not_compared_with_itself(params: Path) -> None:
    change(params, "B", contrasts=[{"name": "nothing", "pairs": {"off": "off"}}])
    with pytest.raises(StudyError, match=r"contrasts\.0\.pairs compares off with itself"):
        build_grid(["B"], "gpu", params)


def test_a_contrast_s_endpoint_concerns_its_own_arms(params: Path) -> None:
    pairs = {"linear_terminal_w04": "linear_terminal"}
    contrast = {"name": "by the judge", "endpoint": "judge_auc", "pairs": pairs}
    change(params, "B", contrasts=[contrast | {"endpoint": "val_drawdown"}, contrast])
    assert len(build_grid(["B"], "gpu", params))  # `off` has no judge
    change(params, "B", contrasts=[contrast | {"pairs": {"linear_terminal": "off"}}])
    with pytest.raises(StudyError, match="no run of arm off would have judge_auc"):
        build_grid(["B"], "gpu", params)


def test_a_misspelt_endpoint_of_an_experiment_on_resources_is_refused(params: Path) -> None:
    contrast = {"name": "x", "pairs": {"len320_ctx1024": "len256_ctx1024"}, "endpoint": "secs"}
    change(params, "E", contrasts=[contrast])
    with pytest.raises(StudyError, match="secs is not a measure"):
        build_grid(["E"], "gpu", params)
