"""What `make rehearse` prepares and refuses; `make test-slow` runs its short form."""

import json
from pathlib import Path

import pytest
import rehearse

from refblend.study.design.grid import build_grid, resolve_arm
from refblend.study.design.spec import experiments_of
from refblend.study.design.workflow import gpus_to_train

ROOT = Path(__file__).parents[2]
MILESTONES = ("m1", "m2", "m3")
EXPERIMENTS = [name for m in MILESTONES for name in experiments_of(m, ROOT / "params", scale="gpu")]


@pytest.fixture(params=[False, True], ids=["whole", "short"])
def params(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    rehearse._parameters(tmp_path, "gpu", short=request.param)
    return tmp_path / "params"


def test_every_arm_of_every_experiment_is_rehearsed(params: Path) -> None:
    real, small = (build_grid(EXPERIMENTS, "gpu", p) for p in (ROOT / "params", params))
    pairs = [set(zip(grid.experiment, grid.arm, strict=True)) for grid in (real, small)]
    assert pairs[0] == pairs[1]
    for milestone in MILESTONES:
        assert experiments_of(milestone, params, scale="gpu") == experiments_of(
            milestone, ROOT / "params", scale="gpu"
        )
    assert set(small.groupby(["experiment", "arm"]).seed.nunique()) == {2}


def test_no_arm_needs_a_gpu_or_another_model(params: Path) -> None:
    grid = build_grid(EXPERIMENTS, "gpu", params)
    for overrides in grid.overrides.unique():
        arm = json.loads(overrides)
        config = resolve_arm(arm, "gpu", params)
        pair = config.actor_rollout_ref, config.algorithm.ref_quality_score.scoring
        assert pair[0].rollout.num_gpus == pair[1].num_gpus == 0
        assert config.critic.fsdp_config.num_gpus_per_worker == 0
        assert config.trainer.total_training_steps <= 3
        for path in (pair[0].model.path, pair[1].model_path):
            assert Path(path).name in rehearse.MODELS["gpu"]


def test_gpu7b_is_rehearsed_with_its_adapter_and_one_engine(tmp_path: Path) -> None:
    rehearse._parameters(tmp_path, "gpu7b", short=True)
    arms = build_grid(["M1"], "gpu7b", tmp_path / "params")
    assert list(zip(arms.arm, arms.seed, strict=True)) == [
        (arm, seed) for arm in ("off", "linear") for seed in "12"
    ]
    for overrides in arms.overrides.unique():
        config = resolve_arm(json.loads(overrides), "gpu7b", tmp_path / "params")
        assert config.use_lora
        assert config.shares_judge == config.use_judge
        assert gpus_to_train(config) == 0
        assert Path(config.actor_rollout_ref.model.path).name in rehearse.MODELS["gpu7b"]


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A complete M1 and M3, as small as can be."""
    for name in ("m1", "m3"):
        folder = tmp_path / name
        (folder / "tables").mkdir(parents=True)
        (folder / "tables" / "arms.csv").write_text("arm,n\noff,2\n")
        if name == "m1":
            (folder / "tables" / "verdicts.csv").write_text("n\n")
        (folder / "report.md").write_text("![curves](figures/curves.svg) [a](#b) ![c](d.png)")
        for file in ("checks.json", "d.png"):
            (folder / file).touch()
        (folder / "figures").mkdir()
        (folder / "figures" / "curves.svg").touch()
    return tmp_path


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        ("m1/checks.json", None, "checks.json is missing"),
        ("m3/figures/curves.svg", None, "figures/curves.svg is missing"),
        ("m1/tables/arms.csv", "arm,n\n", "arms.csv has no rows"),
        ("m1/report.md", "no picture", "shows no figure"),
        ("m1/report.md", "![c](d.png) No data.", "a table without rows"),
        ("m3/report.md", "![c](d.png)\n- `off`, seed 1: failed", "has a run that has not finished"),
    ],
)
def test_what_is_not_whole_is_named(results, file, content, says) -> None:
    assert list(rehearse.shortcomings(results, ["m1", "m3"])) == []
    path = results / file
    path.unlink()
    if content is not None:
        path.write_text(content)
    found = list(rehearse.shortcomings(results, ["m1", "m3"]))
    assert len(found) == bool(says)
    assert all(says in problem for problem in found)
