import json
from pathlib import Path

import pytest
import yaml

from refblend.errors import ConfigError, ProblemsError, StudyError
from refblend.study.design.grid import (
    build_grid,
    configuration_digest,
    override_arguments,
    read_grid,
    resolve_arm,
    unique_runs,
)
from refblend.study.design.jobs import Jobs, blocks_of, milestone_targets, model_files
from refblend.study.design.spec import load_experiment, load_experiments

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


@pytest.fixture
def checkout(params: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Parameters, in the folder where the workflow looks for them."""
    (params / "params").symlink_to(params)
    monkeypatch.chdir(params)
    return params


def write_experiment(
    params: Path, name: str, arms: dict[str, dict[str, object]], **more: object
) -> None:
    spec = {
        "title": name,
        "question": "Does it help?",
        "baseline": next(iter(arms)),
        "seeds": {"cpu": [1, 2]},
        "arms": arms,
    } | more
    (params / "study" / f"{name}.yaml").write_text(yaml.safe_dump(spec))


def test_grid_has_a_row_for_every_experiment_arm_and_seed(params: Path) -> None:
    write_experiment(params, "A", {"off": OFF, "weak": WEAK})
    write_experiment(params, "B", {"off": OFF})
    grid = build_grid(["A", "B"], "cpu", params)
    keys = [" ".join(key) for key in zip(grid.experiment, grid.arm, grid.seed, strict=True)]
    assert keys == ["A off 1", "A off 2", "A weak 1", "A weak 2", "B off 1", "B off 2"]
    assert len(unique_runs(grid)) == 4, "a shared arm is trained once"
    assert all(isinstance(value, str) for value in grid.to_numpy().ravel())
    weak = json.loads(grid[grid.arm == "weak"].overrides.iloc[0])
    assert list(weak.values()) == ["models/cpu/judge_weak"], "the scale is filled in"


def test_equal_configurations_under_two_names_are_refused(params: Path) -> None:
    # max_weight 0.3 is the default: the second arm says the same in other words.
    default = {"algorithm.ref_quality_score.enable": True}
    spelt = default | {"algorithm.ref_quality_score.max_weight": 0.3}
    write_experiment(params, "A", {"linear": default, "linear_again": spelt})
    with pytest.raises(StudyError, match="same configuration"):
        build_grid(["A"], "cpu", params)


def test_resources_may_be_measured_of_an_equal_configuration(params: Path) -> None:
    write_experiment(params, "A", {"off": OFF})
    for name in ("E", "F"):
        write_experiment(params, name, {f"off_{name.lower()}": OFF}, exclusive=True)
    assert set(build_grid(["A", "E", "F"], "cpu", params).arm) == {"off", "off_e", "off_f"}
    write_experiment(params, "E", {"one": OFF, "other": OFF}, exclusive=True)
    with pytest.raises(StudyError, match="one and other are the same"):
        build_grid(["E"], "cpu", params)


def test_scale_without_seeds_is_refused(params: Path) -> None:
    write_experiment(params, "A", {"off": OFF})
    with pytest.raises(StudyError, match="no seeds for scale smoke"):
        build_grid(["A"], "smoke", params)


def test_all_problems_of_a_grid_are_told_at_once(params: Path) -> None:
    bad = {"algorithm.ref_quality_score.max_wieght": 0.2}
    write_experiment(params, "A", {"off": OFF, "odd": bad, "even": {"trainer.x": 1}})
    write_experiment(params, "B", {"off": WEAK})
    with pytest.raises(ProblemsError) as caught:
        build_grid(["A", "B", "Z"], "cpu", params)
    told = [str(problem) for problem in caught.value.problems]
    unknown = "Z.yaml: no such experiment. The names here are: A, B."
    words = ("arm even: unknown", "arm odd: unknown", "other overr", unknown)
    assert len(told) == len(words)
    for word, problem in zip(words, told, strict=True):
        assert word in problem


@pytest.mark.parametrize("text", ["", "garbage\n", "experiment\tarm\tseed\toverrides\n"])
def test_a_file_that_is_no_grid_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "grid.tsv"
    with pytest.raises(StudyError, match=r"grid\.tsv: cannot be read"):
        read_grid(path)
    path.write_text(text)
    with pytest.raises(StudyError, match=r"grid\.tsv.*`refblend study grid`"):
        read_grid(path)


def test_an_arm_without_blending_waits_for_no_judge(checkout) -> None:
    write_experiment(checkout, "A", {"off": OFF, "on": ON})
    jobs = Jobs("cpu", {"m2": ["A"]}, 2, 2)
    data = ["data/cpu/train.parquet", "data/cpu/val.parquet"]
    assert jobs.inputs("off") == [*data, *model_files("models/cpu/actor")]
    judge = model_files("models/cpu/judge_medium")
    assert set(jobs.inputs("on")) > {*jobs.inputs("off"), *judge}


ON = {"algorithm.ref_quality_score.enable": True}
STUDIES = {"m1": ["M1"], "m2": ["A", "E"], "m3": ["M3"]}


def write_study(params: Path) -> None:
    """M1 shares its arms with A, whose seeds are more; E is exclusive; M3 has fresh seeds."""
    write_experiment(params, "M1", {"off": OFF, "on": ON})
    write_experiment(params, "A", {"off": OFF, "weak": WEAK}, seeds={"cpu": [3, 1, 2]})
    lengths = {f"len{n}": {"data.max_response_length": n} for n in (64, 96)}
    write_experiment(params, "E", lengths, exclusive=True, common=ON)
    best = {"overlay": "chosen/{scale}.yaml"}
    seeds = {"cpu": [101, 102, 2]}
    write_experiment(params, "M3", {"off": OFF, "recommended": best}, seeds=seeds)


def jobs_of(blocks: dict[tuple[str, str], str]) -> list[tuple[str, str]]:
    """Arm and seeds of every job."""
    return list(dict.fromkeys((arm, block) for (arm, _), block in blocks.items()))


def test_blocks_hold_every_run_once_and_each_milestones_new_seeds_apart(params: Path) -> None:
    write_study(params)
    grid = build_grid(["M1", "A", "E", "M3"], "cpu", params)
    assert jobs_of(blocks_of(grid, STUDIES, 5, 5)) == [
        ("off", "1-2"),
        ("on", "1-2"),
        ("off", "3"),
        ("weak", "1-2-3"),
        ("len64", "1-2"),
        ("len96", "1-2"),
        ("off", "101-102"),
        ("recommended", "2"),
        ("recommended", "101-102"),
    ]
    for cut in (1, 2, 3):
        pieces = blocks_of(grid, STUDIES, cut, cut)
        assert all(seed in block.split("-") for (_, seed), block in pieces.items())
        unique = unique_runs(grid)
        assert sorted(pieces) == sorted(zip(unique.arm, unique.seed, strict=True))
        assert max(len(block.split("-")) for block in pieces.values()) == cut


def test_a_series_is_trained_in_blocks_of_all_its_arms(params: Path) -> None:
    write_study(params)
    write_experiment(params, "noise", {"off": OFF, "weak": WEAK}, seeds={"cpu": [3, 4, 5, 6, 7, 8]})
    grid = build_grid(["M1", "A", "E", "M3", "noise"], "cpu", params)
    studies = STUDIES | {"series": ["noise"]}
    assert jobs_of(blocks_of(grid, studies, 5, 2))[-6:] == [
        (arm, name) for arm in ("off", "weak") for name in ("4-5", "6-7", "8")
    ], "seed 3 is A's, with A's own blocks"


def test_a_milestone_wants_the_jobs_with_its_runs(checkout) -> None:
    write_study(checkout)
    write_experiment(
        checkout, "noise", {"off": OFF, "weak": WEAK}, seeds={"cpu": [3, 4, 5, 6, 7, 8]}
    )
    jobs = Jobs("cpu", STUDIES | {"series": ["noise"]}, 2, 2)
    wanted = ["runs/cpu/off/1-2.tested.json", "runs/cpu/on/1-2.tested.json"]
    assert jobs.markers("m1", "tested") == wanted, "none of A's third seed"
    seeds = [
        f"runs/cpu/{arm}/{name}.tested.json" for arm in ("off", "weak") for name in ("4-5", "6-7")
    ]
    assert jobs.block_markers("noise", 2) == seeds, "all jobs with a seed of the block"
    with pytest.raises(StudyError, match="noise has no block 4"):
        jobs.block_markers("noise", 4)
    assert jobs.exclusive == {"len64", "len96"}
    with pytest.raises(StudyError, match="no experiment Z"):
        jobs.markers("Z", "trained")
    for studies, remedy in (({"m2": ["A"]}, "There, m2 can be called. Or name"), ({}, "Name")):
        with pytest.raises(StudyError, match=rf"at scale cpu\. {remedy} another scale"):
            milestone_targets(studies, "m1", "cpu")


def test_an_experiment_may_name_what_its_actors_are_tested_on(checkout) -> None:
    write_experiment(checkout, "A", {"off": OFF, "on": ON})
    write_experiment(checkout, "B", {"off": OFF, "weak": WEAK}, test="data/{scale}/more.parquet")
    jobs = Jobs("cpu", {"m2": ["A", "B"]}, 2, 2)
    assert jobs.test_file("on") == "data/cpu/test.parquet"
    assert jobs.test_file("weak") == "data/cpu/more.parquet"
    with pytest.raises(StudyError, match=r"A and B test arm off on data/cpu/test.parquet and"):
        jobs.test_file("off")


def test_a_job_waits_for_the_runs_that_it_replays(checkout) -> None:
    replay = {
        "strategy": "replay",
        "replay_file": "runs/{scale}/on/seed_{partner_seed}/metrics.jsonl",
    }
    again = {"algorithm.ref_quality_score": replay}
    for name, seeds in (("M1", [1, 2]), ("A", [3]), ("M3", [4, 5])):
        write_experiment(checkout, name, {"on": ON, "again": again}, seeds={"cpu": seeds})
    jobs = Jobs("cpu", {"m1": ["M1"], "m2": ["A"], "m3": ["M3"]}, 2, 2)
    on = "runs/cpu/on/{}.trained.json"
    assert jobs.replayed("again", "3") == [on.format("3"), on.format("4-5")], "4 is its partner"
    assert jobs.replayed("again", "1-2") == [on.format("1-2")]
    assert jobs.replayed("on", "3") == []


def test_an_overlay_is_held_but_not_read(params: Path) -> None:
    """It may not exist yet: the arm is no double of another, and the trainer checks it."""
    best = {"overlay": "chosen/{scale}.yaml"}
    write_experiment(params, "A", {"on": ON, "recommended": best})
    grid = build_grid(["A"], "cpu", params)
    overrides = json.loads(grid[grid.arm == "recommended"].overrides.iloc[0])
    assert overrides == {"overlay": "chosen/cpu.yaml"}
    assert override_arguments(overrides) == []


def test_the_digest_is_of_the_arm_not_of_the_run(params: Path) -> None:
    digests = [
        configuration_digest(resolve_arm(OFF | change, "cpu", params))
        for change in (
            {},
            {"trainer.seed": 7, "trainer.default_local_dir": "runs/elsewhere"},
            {"trainer.test_freq": 7},
        )
    ]
    assert digests[0] == digests[1] != digests[2]


def test_arms_of_primary_contrasts_have_the_seeds_that_decide() -> None:
    specs = load_experiments(Path(__file__).parents[3] / "params")
    for name, spec in specs.items():
        if "cpu" not in spec.seeds or spec.exclusive:
            continue
        seeds = spec.seeds_by_arm("cpu")
        for contrast in spec.contrasts:
            for arm in contrast.arms if contrast.primary else ():
                assert len(seeds.get(arm, range(20))) >= 20, (name, arm)


def test_arms_with_seeds_of_their_own(params: Path) -> None:
    write_experiment(
        params,
        "A",
        {"off": OFF, "weak": WEAK, "other": WEAK | {"trainer.total_training_steps": 3}},
        seeds={"cpu": "11-13"},
        arm_seeds={"cpu": {"off": "11-15", "other": [11]}},
    )
    runs = unique_runs(build_grid(["A"], "cpu", params))
    seeds = {arm: list(map(int, part.seed)) for arm, part in runs.groupby("arm")}
    assert seeds == {"off": [11, 12, 13, 14, 15], "weak": [11, 12, 13], "other": [11]}
    spec = load_experiment(params / "study" / "A.yaml")
    assert spec.seeds_by_arm("cpu") == seeds
    assert spec.usual_seeds("cpu") == [11, 12, 13]
    assert spec.usual_seeds("gpu") == []


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"seeds": {"cpu": []}}, "seeds.cpu"),
        ({"seeds": {"laptop": [1]}}, "laptop"),
        ({"unknown": 1}, "unknown"),
        ({"arms": {"Bad-Name": {}}}, "Bad-Name"),
        ({"arms": {"off": {"a=b": 1}}}, "arms.off.a=b"),
        ({"arms": {"off": {"a": [b"bytes"]}}}, "arms.off.a.*not a valid JSON value"),
        ({"arms": {"off": {"overlay": 3}}}, "overlay"),
        ({"baselines": {"off": "absent"}}, "absent"),
        ({"arms_at": {"cpu": ["absent"]}}, "absent"),
        ({"arms_at": {"cpu": ["weak"]}}, "arms_at"),
        ({"baseline": "no", "facet": "f"}, "baseline names no.*facet is f"),
        ({"common": {"data": {"train_files": ["a"]}}}, "test would be data/{scale}/test.*`test`"),
        ({"seeds": {"cpu": "13-11"}}, "13-11 is not a range of 1 to 1000 seeds"),
        ({"arm_seeds": {"cpu": {"gone": [1]}}}, "arm_seeds.cpu names gone"),
        ({"arm_seeds": {"gpu": {"off": [1]}}}, "arm_seeds.gpu has no seeds.gpu beside it"),
        ({"arm_seeds": {"cpu": {"off": [2, 2]}}}, "arm_seeds.cpu.off.* repeats seed 2"),
        (
            {"arms_at": {"cpu": ["off"]}, "arm_seeds": {"cpu": {"weak": [1]}}},
            "arm_seeds.cpu names weak, which arms_at.cpu lacks",
        ),
    ],
)
def test_bad_experiments_are_refused(params, wrong, said) -> None:
    write_experiment(params, "A", **{"arms": {"off": OFF, "weak": WEAK}} | wrong)
    with pytest.raises(StudyError, match=said):
        load_experiment(params / "study" / "A.yaml")


@pytest.mark.parametrize("name", ["m1", "scoring", "series"])
def test_an_experiment_with_the_name_of_a_report_is_refused(params, name) -> None:
    write_experiment(params, name, {"off": OFF})
    with pytest.raises(StudyError, match=rf"{name}\.yaml: a report or a series has this name"):
        load_experiment(params / "study" / f"{name}.yaml")


@pytest.mark.parametrize("wrong", ["gpus: 1", "gpu: two", "gpu: 0", "gpu: -1"])
def test_a_bad_limit_of_seeds_is_refused(params, wrong) -> None:
    write_experiment(params, "A", arms={"off": OFF, "weak": WEAK})
    (params / "seeds.yaml").write_text(wrong)
    with pytest.raises(ConfigError, match=f"seeds.yaml: .*{wrong.split(':')[0]}"):
        load_experiment(params / "study" / "A.yaml")


def test_arms_that_keep_no_model_are_trained_only() -> None:
    """E and F measure resources; at scale gpu they are series of their own."""
    jobs = Jobs("gpu", {"series": ["E", "noisy_entropy"]}, seeds_per_job=5, seeds_per_block=4)
    assert {marker.split(".", 1)[1] for marker in jobs.block_markers("E", 1)} == {"trained.json"}
    assert jobs.markers("E", "tested") == []
    noisy = jobs.block_markers("noisy_entropy", 1)
    assert {marker.split(".", 1)[1] for marker in noisy} == {"tested.json"}
