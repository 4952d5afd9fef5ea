from pathlib import Path

import pandas as pd
import pytest
from fuzz_support import content
from made_runs import grid_of, write_run

from refblend.embedded.pack import unpack_models
from refblend.embedded.recipe import load_recipe
from refblend.errors import StudyError
from refblend.provenance import hash_inputs
from refblend.study.design.names import COLLECTED
from refblend.study.design.spec import load_experiment
from refblend.study.runs.checks import record_failure
from refblend.study.runs.collect import (
    collect,
    copy_quality,
    read_collected,
    refuse_mixed_models,
    used_models,
    write_collected,
)
from refblend.study.runs.incidents import incident_counts
from refblend.study.runs.measures import accuracy_by_step, series


def test_every_run_is_a_row_whatever_became_of_it(tmp_path) -> None:
    root = tmp_path / "cpu"
    write_run(root / "off" / "seed_1", 1, blended=False)
    write_run(root / "off" / "seed_2", 2, status="incomplete")
    record_failure([root / "off" / "seed_3"], 1)
    write_run(root / "linear" / "seed_1", 1)
    (root / "linear" / "seed_1" / "summary.json").write_text("{torn")
    write_run(root / "linear" / "seed_2", 2)
    (root / "linear" / "seed_2" / "metrics.jsonl").write_text("no json\n")
    names = [("off", 1), ("off", 2), ("off", 3), ("linear", 1), ("linear", 2), ("linear", 3)]
    collected = collect(grid_of(*names), "cpu", tmp_path)
    assert list(collected.runs.status) == ["finished", "incomplete", *["failed"] * 3, "missing"]
    assert "unreadable" in collected.runs.reason[3]
    assert "line 1" in collected.runs.reason[4]
    assert len(collected.finished) == 1
    assert set(collected.counted_metrics.arm) == {"off"}


def test_numbers_come_through_unchanged(tmp_path) -> None:
    write_run(tmp_path / "cpu" / "linear" / "seed_1", 1, steps=20)
    collected = collect(grid_of(("linear", 1)), "cpu", tmp_path)
    run = collected.runs.iloc[0]
    assert (run.steps, run.wall_time_s, run.resumed) == (20, 101.0, 0)
    assert (run.commit, run.hardware) == ("0123456789abcdef", "Test CPU, 2 cores")
    accuracy = accuracy_by_step(collected.metrics)["value"]
    assert (accuracy.iloc[0], accuracy.iloc[-1]) == (pytest.approx(0.2), pytest.approx(0.45))
    test = series(collected.metrics, "test/greedy")
    assert (test.step.item(), test.value.item()) == (20, pytest.approx(0.57))
    assert len(collected.responses) == 128
    assert set(collected.responses.step) == {5, 20}


def test_frames_survive_the_files(tmp_path) -> None:
    write_run(tmp_path / "cpu" / "linear" / "seed_1", 1)
    collected = collect(grid_of(("linear", 1), ("off", 1)), "cpu", tmp_path)
    write_collected(collected, tmp_path)
    read = read_collected(tmp_path)
    pd.testing.assert_frame_equal(read.runs, collected.runs)
    pd.testing.assert_frame_equal(read.responses, collected.responses)
    pd.testing.assert_frame_equal(read.metrics, collected.metrics)


def test_an_archive_stands_in_for_runs_that_are_gone_only(tmp_path) -> None:
    grid = grid_of(("linear", 1), ("linear", 2))
    write_run(tmp_path / "cpu" / "linear" / "seed_1", 1)
    archive = collect(grid, "cpu", tmp_path)
    write_collected(archive, tmp_path)
    (tmp_path / "cpu" / "linear" / "seed_1").rename(tmp_path / "gone")
    write_run(tmp_path / "cpu" / "linear" / "seed_2", 2)
    later = collect(grid, "cpu", tmp_path)
    both = collect(grid, "cpu", tmp_path, archive=tmp_path)
    assert dict(both.runs.set_index("seed").status) == {1: "finished", 2: "finished"}
    for seed, part in ((1, archive), (2, later)):
        for frame in ("metrics", "responses"):
            kept = getattr(both, frame)
            own = getattr(part, frame)
            pd.testing.assert_frame_equal(kept[kept.seed == seed].reset_index(drop=True), own)


@pytest.mark.parametrize("name", COLLECTED)
def test_a_missing_or_damaged_file_is_an_error_with_a_remedy(tmp_path, name) -> None:
    write_collected(collect(grid_of(("off", 1)), "cpu", tmp_path), tmp_path)
    (tmp_path / name).write_text("torn")
    with pytest.raises(StudyError, match=r"cannot be read.*`refblend study archive`"):
        read_collected(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(StudyError, match="cannot be read"):
        read_collected(tmp_path)


def test_incidents_are_summed_and_absent_runs_stay_unknown(tmp_path) -> None:
    write_run(tmp_path / "cpu" / "linear" / "seed_1", 1, incidents={"overlength": 3, "drift": 1})
    counts = incident_counts(collect(grid_of(("linear", 1), ("linear", 2)), "cpu", tmp_path))
    assert counts.loc[0, ["overlength", "drift", "judge_error"]].tolist() == [3, 1, 0]
    assert counts.loc[1, "overlength"] is pd.NA


def test_no_run_at_all_gives_empty_frames(tmp_path) -> None:
    collected = collect(grid_of(("off", 1)), "cpu", tmp_path)
    assert list(collected.runs.status) == ["missing"]
    assert collected.metrics.empty
    assert collected.responses.empty
    write_collected(collected, tmp_path / "out")
    assert read_collected(tmp_path / "out").metrics.empty


def test_models_are_read_from_their_record() -> None:
    runs = pd.DataFrame({"arm": ["a", "b", "c"], "seed": [1, 2, 3]})
    runs["models"] = ["actor 11111111; judge_weak 22222222", None, "my actor 33333333"]
    assert used_models(runs).to_dict("split")["data"] == [
        ["a", 1, "actor", "11111111"],
        ["a", 1, "judge_weak", "22222222"],
        ["c", 3, "my actor", "33333333"],
    ]
    assert used_models(runs[1:2]).empty


def test_arms_of_the_same_seeds_are_compared_seed_by_seed() -> None:
    root = Path(__file__).resolve().parents[3]
    spec = load_experiment(root / "params" / "study" / "R.yaml")
    runs = pd.DataFrame([(a, s) for a in spec.arms for s in range(1, 6)], columns=["arm", "seed"])
    runs["models"] = [f"actor {8 * str(seed)}" for seed in runs.seed]
    refuse_mixed_models(runs, {"R": spec}, "smollm")
    runs.loc[0, "models"] = "actor 99999999"
    with pytest.raises(StudyError, match=r"actor 9{8} \(off, seed 1\) and 1{8} \(linear, seed 1\)"):
        refuse_mixed_models(runs, {"R": spec}, "smollm")


def test_the_committed_runs_started_from_the_kept_models(tmp_path) -> None:
    """Else no contrast may compare a new run with them."""
    root = Path(__file__).resolve().parents[3]
    results = root / "results" / "cpu"
    recipe = load_recipe(root / "params" / "embedded" / "cpu.yaml")
    unpack_models(results / "pieces" / "models.tar.xz", recipe, tmp_path)
    used = used_models(pd.read_csv(results / "runs.csv")).drop_duplicates("role")
    kept = hash_inputs([], [tmp_path / role for role in used.role]).models.values()
    assert [digest[:8] for digest in kept] == list(used.digest)


def test_measurements_of_the_models_are_kept_with_their_times(tmp_path) -> None:
    models, made, out = (tmp_path / name for name in ("models", "made", "results"))
    measured, when = models / "quality/actor.json", made / "judge_weak.json"
    for file in (measured, when):
        file.parent.mkdir(parents=True)
        file.write_text("1")
    copy_quality(models, made, out)
    kept = {"quality/actor.json": b"1", "quality/circumstances/judge_weak.json": b"1"}
    assert content(out) == kept
