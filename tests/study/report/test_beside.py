"""What carries over between two scales, by stated verdicts."""

from pathlib import Path

import pandas as pd
import pytest

from refblend.errors import StudyError
from refblend.study.design.spec import ExperimentSpec, load_experiment
from refblend.study.report.beside import (
    Beside,
    beside_facts,
    beside_files,
    beside_table,
    compared,
    readable_beside,
    set_beside,
)
from refblend.study.report.counterparts import PER_SEED
from refblend.study.report.registry import Inputs
from refblend.study.report.verdicts import VERDICT_COLUMNS, read_verdicts
from refblend.study.stats.verdicts import VERDICTS

PARAMS = Path(__file__).parents[3] / "params"
PAIR = Beside("R", "A real model", "smollm", "cpu", Path("nowhere"))


def verdicts_of(*rows: dict[str, object]) -> pd.DataFrame:
    """A table of verdicts with these cells; the others are the same in all rows."""
    numbers = {"n": 4, "estimate": 0.03, "low": 0.01, "high": 0.05, "p": 0.1, "seeds_needed": 9}
    common = {"experiment": "R", "contrast": "c", "primary": True, "verdict": "better"}
    common |= {"treated": "linear", "reference": "off", "endpoint": "test_sampled"}
    common |= {"paired": True, "added": 0}
    table = pd.DataFrame([common | numbers | row for row in rows], columns=list(VERDICT_COLUMNS))
    return table.fillna({"margin": 0.02}).astype(VERDICT_COLUMNS)


def findings(own: pd.DataFrame, there: pd.DataFrame) -> list[tuple[str, str | None]]:
    return [(row["finding"], row["open_at"]) for row in compared(own, there, PAIR)]


@pytest.mark.parametrize("here", VERDICTS)
@pytest.mark.parametrize("there", VERDICTS)
def test_only_two_decisions_that_agree_carry_over(here: str, there: str) -> None:
    own, other = verdicts_of({"verdict": here}), verdicts_of({"verdict": there, "experiment": "A"})
    expected = {
        (True, True): ("undecided", "both"),
        (True, False): ("undecided", "smollm"),
        (False, True): ("undecided", "cpu"),
        (False, False): ("carries over" if here == there else "does not", None),
    }[here == "undecided", there == "undecided"]
    assert findings(own, other) == [expected]


def test_a_counterpart_has_the_same_arms_and_endpoint_and_the_primary_one_counts() -> None:
    own = verdicts_of({})
    others = [{"treated": "cosine"}, {"reference": "random"}, {"endpoint": "test_greedy"}]
    others += [{"treated": "off", "reference": "linear"}]
    assert findings(own, verdicts_of(*others)) == [("no counterpart", None)]
    assert findings(own, verdicts_of(*others).head(0)) == [("no counterpart", None)]
    several = verdicts_of(
        {"experiment": "A", "primary": False, "verdict": "worse"},
        {"experiment": "B", "verdict": "better"},
        {"experiment": "C", "verdict": "equivalent"},
    )
    (row,) = compared(own, several, PAIR)
    assert (row["there_experiment"], row["finding"]) == ("B", "carries over")
    (row,) = compared(own, several.head(1), PAIR)
    assert (row["there_experiment"], row["finding"]) == ("A", "does not")


@pytest.fixture
def inputs(tmp_path: Path) -> Inputs:
    """Of R at its scale."""
    results = tmp_path / "results" / "smollm"
    return Inputs("smollm", ("R",), tmp_path, tmp_path, results, PARAMS)


def written(inputs: Inputs, scale: str, table: pd.DataFrame) -> Path:
    path = inputs.results.parent / scale / "verdicts.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    table.to_csv(path, index=False)
    return path


def test_both_scales_tell_the_same(inputs: Inputs) -> None:
    own = verdicts_of(
        {"contrast": "first"},
        {"contrast": "second", "reference": "random", "verdict": "worse"},
        {"contrast": "third", "endpoint": "test_greedy", "primary": False, "verdict": "undecided"},
        {"contrast": "alone", "treated": "exp"},
    )
    there = own.head(3).assign(experiment="A", verdict="better")
    r, cpu = written(inputs, "smollm", own), written(inputs, "cpu", there)
    at_r = beside_table(inputs, read_verdicts(r))
    m3 = Inputs("cpu", ("M3",), inputs.collected, inputs.models, cpu.parent, PARAMS)
    pd.testing.assert_frame_equal(beside_table(m3, read_verdicts(cpu)), at_r)
    shown = readable_beside(at_r)
    assert list(shown["the finding"]) == [
        "carries over", "does not", "undecided (smollm)", "no counterpart",
    ]  # fmt: skip
    assert shown.iloc[2].tolist()[4:7] == [
        "undecided (R)", "+0.030 [+0.010, +0.050]", "better (A, exploratory)",
    ]  # fmt: skip
    assert shown.iloc[3].tolist()[5:7] == ["–", "–"]
    assert shown.contrast[2] == "third, exploratory"
    (facts,) = beside_facts(inputs, at_r)
    assert (facts["contrasts"], facts["compared"], facts["there"]) == (4, 3, "cpu")
    assert facts["counts"] == {"carries over": 1, "does not": 1, "undecided": 1}
    assert facts["open_at"] == {"smollm": 1, "cpu": 0, "both": 0}
    assert (beside_files(inputs), beside_files(m3)) == ([cpu], [r])


def test_without_verdicts_there_is_no_row(inputs: Inputs) -> None:
    assert beside_files(inputs) == []
    table = beside_table(inputs, verdicts_of({}))
    assert (len(table), len(readable_beside(table))) == (0, 0)
    (facts,) = beside_facts(inputs, table)
    assert (facts["contrasts"], facts["file"]) == (0, "results/cpu/verdicts.csv")
    other = Inputs("gpu", (), inputs.collected, inputs.models, inputs.results, PARAMS)
    assert set_beside(other) == []


def test_what_is_no_table_of_verdicts_is_refused(inputs: Inputs) -> None:
    path = written(inputs, "cpu", verdicts_of({}).drop(columns="verdict"))
    with pytest.raises(StudyError, match=r"cpu/verdicts\.csv: the verdicts cannot be read"):
        beside_table(inputs, verdicts_of({}))
    path.write_text("")
    with pytest.raises(StudyError, match="cannot be read"):
        read_verdicts(path)


def test_an_experiment_is_not_set_beside_its_own_scale() -> None:
    spec = load_experiment(PARAMS / "study" / "R.yaml")
    assert spec.beside == "cpu"
    with pytest.raises(ValueError, match="beside is smollm, a scale at which the experiment"):
        ExperimentSpec.model_validate(spec.model_dump() | {"beside": "smollm"})


def with_runs(inputs: Inputs, **arms: dict[int, float]) -> Path:
    """M2's table of runs at scale cpu, with ``test_sampled`` of each arm by seed."""
    path = inputs.results.parent / "cpu" / PER_SEED
    path.parent.mkdir(parents=True)
    rows = [(arm, seed, value) for arm, own in arms.items() for seed, value in own.items()]
    pd.DataFrame(rows, columns=["arm", "seed", "test_sampled"]).to_csv(path, index=False)
    return path


def test_what_no_experiment_declares_is_compared_from_the_arms_runs(inputs: Inputs) -> None:
    seeds = range(11, 31)  # G has both arms on these; `off` has others, too
    low = {seed: 0.3 + 0.001 * (seed % 5) for seed in seeds}
    high = {seed: 0.6 + 0.002 * (seed % 3) for seed in (*seeds, 35, 101)}
    runs = with_runs(inputs, linear=low, off=high)
    own = verdicts_of({"verdict": "worse"}, {"treated": "exp"}, {"endpoint": "test_greedy"}).assign(
        alpha=0.05
    )
    written(inputs, "cpu", verdicts_of({"endpoint": "val_auc", "experiment": "A"}))
    table = beside_table(inputs, own)
    assert list(table.finding) == ["carries over", "no counterpart", "no counterpart"]
    row = table.iloc[0]
    expected = sum(low[seed] - high[seed] for seed in seeds) / len(seeds)
    assert (row.there_n, row.there_verdict, row.there_experiment) == (20, "worse", "G")
    assert row.there_estimate == pytest.approx(expected)
    assert not row.there_primary
    assert "worse (G, exploratory, not declared there)" in readable_beside(table).iloc[0].tolist()
    (facts,) = beside_facts(inputs, table)
    assert (facts["compared"], facts["undeclared"]) == (1, 1)
    assert runs in beside_files(inputs)
    runs.write_text("arm\n1\n")
    with pytest.raises(StudyError, match=r"per_seed\.csv: the runs cannot be read"):
        beside_table(inputs, own)


def test_one_pair_of_runs_is_no_counterpart(inputs: Inputs) -> None:
    with_runs(inputs, linear={11: 0.3}, off={11: 0.5, 12: 0.5})
    written(inputs, "cpu", verdicts_of({"endpoint": "val_auc", "experiment": "A"}))
    assert list(beside_table(inputs, verdicts_of({})).finding) == ["no counterpart"]
