"""The default grid of scale gpu: its size, and its plan in GPU-hours."""

from pathlib import Path

import pytest

from refblend.errors import StudyError
from refblend.study.design.grid import build_grid, unique_runs
from refblend.study.design.names import MILESTONES
from refblend.study.design.spec import experiments_of
from refblend.study.planning import gpu

ROOT = Path(__file__).resolve().parents[3]
RECORD = ROOT / "results" / "gpu" / "check.md"
PARAMS = ROOT / "params"
DEFAULT = [name for m in MILESTONES for name in experiments_of(m, PARAMS, "gpu")]


def test_the_default_grid_has_the_specification_s_size() -> None:
    runs = unique_runs(build_grid(DEFAULT, "gpu", PARAMS))
    arms = set(runs.arm)
    assert {"off", "linear", "cosine", "exp", "piecewise"} <= arms
    assert len([arm for arm in arms if arm.startswith("noisy_")]) == 3
    assert set(runs.seed) == {"1", "101"}
    assert len(runs) <= 20
    assert not {"E", "F"} & set(DEFAULT)
    assert {"E", "F"} <= set(experiments_of("series", PARAMS, "gpu"))


def test_the_plan_stays_within_thirty_gpu_hours() -> None:
    arms = gpu.plan(DEFAULT, PARAMS, RECORD)
    hours = sum(runs * each for runs, each in arms.values())
    assert arms["off"][1] < arms["linear"][1], "a judge takes time"
    assert 5 < hours <= 30
    dedicated = gpu.plan(["F"], PARAMS, RECORD)
    assert dedicated["dedicated_serial"][1] == pytest.approx(2 * dedicated["shared_serial"][1])


def test_models_cost_by_their_size(tmp_path: Path) -> None:
    as_large = tmp_path / "check.md"
    as_large.write_text(RECORD.read_text().replace("| 494.0 million |", "| 1500.0 million |"))
    same, larger = (gpu.plan(["M1"], PARAMS, record) for record in (as_large, RECORD))
    start = gpu.START_S / 3600
    for spent in (lambda a: a["off"][1] - start, lambda a: a["linear"][1] - a["off"][1]):
        assert spent(larger) / spent(same) == pytest.approx(1500 / 494)
    of_7b = gpu.plan(["M1"], PARAMS, RECORD, "gpu7b")
    assert of_7b["off"][1] - start == pytest.approx(14 * (larger["off"][1] - start))


@pytest.mark.parametrize("scale", ["gpu", "gpu7b"])
def test_the_plan_names_card_and_model(
    scale: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    gpu.main(scale)
    said = capsys.readouterr().out
    assert "NVIDIA H200" in said
    assert "with a model of 0.5B" in said


def test_a_record_without_a_stage_is_refused(tmp_path: Path) -> None:
    record = tmp_path / "check.md"
    with pytest.raises(StudyError, match=r"check\.md has no row for parameters, log_prob"):
        gpu.stage_costs(record)
    record.write_text(RECORD.read_text().replace("| update |", "| no update |"))
    with pytest.raises(StudyError, match="no row for update"):
        gpu.stage_costs(record)
