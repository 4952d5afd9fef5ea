import json
from pathlib import Path

import pytest
import yaml

from refblend.config.loading import merge, nest, parse_override
from refblend.errors import ConfigError, StudyError
from refblend.study.grid import (
    build_grid,
    local_inputs,
    override_arguments,
    read_grid,
    resolve_arm,
    unique_runs,
    write_grid,
)
from refblend.study.spec import GridRow, load_experiment

BASE = {
    "data": {"train_files": ["data/cpu/train.parquet"], "val_files": ["data/cpu/val.parquet"]},
    "actor_rollout_ref": {"model": {"path": "models/cpu/actor"}},
    "algorithm": {"ref_quality_score": {"scoring": {"model_path": "models/cpu/judge_medium"}}},
}
OFF = {"algorithm.ref_quality_score.enable": False}
WEAK = {"algorithm.ref_quality_score.scoring.model_path": "models/{scale}/judge_weak"}


@pytest.fixture
def params(tmp_path: Path) -> Path:
    for folder in ("scale", "study"):
        (tmp_path / folder).mkdir()
    (tmp_path / "ppo.yaml").write_text("{}")
    (tmp_path / "scale" / "cpu.yaml").write_text(yaml.safe_dump(BASE))
    return tmp_path


def write_experiment(params: Path, name: str, arms: dict[str, dict[str, object]]) -> None:
    spec = {"title": name, "baseline": next(iter(arms)), "seeds": {"cpu": [1, 2]}, "arms": arms}
    (params / "study" / f"{name}.yaml").write_text(yaml.safe_dump(spec))


def test_grid_has_a_row_for_every_experiment_arm_and_seed(params: Path) -> None:
    write_experiment(params, "A", {"off": OFF, "weak": WEAK})
    write_experiment(params, "B", {"off": OFF})
    grid = build_grid(["A", "B"], "cpu", params)
    keys = list(zip(grid.experiment, grid.arm, grid.seed, strict=True))
    assert keys == [
        ("A", "off", "1"),
        ("A", "off", "2"),
        ("A", "weak", "1"),
        ("A", "weak", "2"),
        ("B", "off", "1"),
        ("B", "off", "2"),
    ]
    assert len(unique_runs(grid)) == 4, "a shared arm is trained once"
    assert all(isinstance(value, str) for value in grid.to_numpy().ravel())
    weak = json.loads(grid[grid.arm == "weak"].overrides.iloc[0])
    assert list(weak.values()) == ["models/cpu/judge_weak"], "the scale is filled in"


def test_grid_survives_the_file(params: Path, tmp_path: Path) -> None:
    write_experiment(params, "A", {"off": OFF, "weak": WEAK})
    grid = build_grid(["A"], "cpu", params)
    write_grid(grid, tmp_path / "grid.tsv")
    read = read_grid(tmp_path / "grid.tsv")
    assert read.to_dict("list") == grid.to_dict("list")


def test_equal_configurations_under_two_names_are_refused(params: Path) -> None:
    # max_weight 0.3 is the default: the second arm says the same in other words.
    default = {"algorithm.ref_quality_score.enable": True}
    spelt = default | {"algorithm.ref_quality_score.max_weight": 0.3}
    write_experiment(params, "A", {"linear": default, "linear_again": spelt})
    with pytest.raises(StudyError, match="same configuration"):
        build_grid(["A"], "cpu", params)


def test_one_name_with_two_meanings_is_refused(params: Path) -> None:
    write_experiment(params, "A", {"off": OFF})
    write_experiment(params, "B", {"off": WEAK})
    with pytest.raises(StudyError, match="other overrides"):
        build_grid(["A", "B"], "cpu", params)


def test_a_bad_override_names_file_arm_and_key(params: Path) -> None:
    write_experiment(params, "A", {"odd": {"algorithm.ref_quality_score.max_wieght": 0.2}})
    with pytest.raises(ConfigError, match=r"A\.yaml, arm odd: unknown key .*max_wieght"):
        build_grid(["A"], "cpu", params)


def test_scale_without_seeds_is_refused(params: Path) -> None:
    write_experiment(params, "A", {"off": OFF})
    with pytest.raises(StudyError, match="no seeds for scale smoke"):
        build_grid(["A"], "smoke", params)


def test_yaml_truth_values_as_arm_names_are_explained(tmp_path: Path) -> None:
    path = tmp_path / "A.yaml"
    path.write_text("title: t\nbaseline: linear\nseeds: {cpu: [1]}\narms: {off: {}, linear: {}}\n")
    with pytest.raises(StudyError, match="put it in quotes"):
        load_experiment(path)


@pytest.mark.parametrize(
    "change",
    [
        {"baseline": "absent"},
        {"seeds": {"cpu": [1, 1]}},
        {"seeds": {"cpu": []}},
        {"seeds": {"laptop": [1]}},
        {"unknown": 1},
        {"arms": {"Bad-Name": {}}},
    ],
)
def test_bad_experiments_are_refused(tmp_path: Path, change: dict[str, object]) -> None:
    spec = {"title": "t", "baseline": "off", "seeds": {"cpu": [1]}, "arms": {"off": {}}} | change
    (tmp_path / "A.yaml").write_text(yaml.safe_dump(spec))
    with pytest.raises(StudyError):
        load_experiment(tmp_path / "A.yaml")


def test_a_damaged_grid_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "grid.tsv"
    with pytest.raises(StudyError, match="cannot be read"):
        read_grid(path)
    path.write_text("experiment\tarm\tseed\toverrides\nA\toff\tone\t{}\n")
    with pytest.raises(StudyError, match="row 1: seed"):
        read_grid(path)
    with pytest.raises(ValueError, match="overrides"):
        GridRow(experiment="A", arm="off", seed="1", overrides="{oops}")


def test_override_arguments_are_read_back_equal() -> None:
    overrides = {
        "a.flag": False,
        "a.text": "per_token",
        "a.path": "models/cpu/judge_weak",
        "a.number": 0.2,
        "a.small": 1e-5,
        "a.nothing": None,
        "a.list": [1, 2],
        "a.digits": "12",
        "a.word": "null",
    }
    tree: dict[str, object] = {}
    for argument in override_arguments(overrides):
        tree = merge(tree, nest(*parse_override(argument)))
    assert tree == {"a": {key.removeprefix("a."): value for key, value in overrides.items()}}


def test_an_arm_without_blending_waits_for_no_judge(params: Path) -> None:
    off = local_inputs(resolve_arm(OFF, "cpu", params))
    assert off == ["data/cpu/train.parquet", "data/cpu/val.parquet", "models/cpu/actor"]
    on = local_inputs(resolve_arm({"algorithm.ref_quality_score.enable": True}, "cpu", params))
    assert on == [*off, "models/cpu/judge_medium"]
