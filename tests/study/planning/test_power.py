"""From a table of runs to the seeds that a comparison needs."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from refblend.cli.main import app
from refblend.errors import StudyError
from refblend.study.design.spec import ExperimentSpec, load_experiment
from refblend.study.planning.power import deviations, power_table, read_runs

PARAMS = Path(__file__).parents[3] / "params"
J = ExperimentSpec.model_validate(
    {
        "title": "Early help, late harm",
        "question": "Does the blend help early and harm late?",
        "baseline": "off",
        "contrasts": [
            {"name": name, "primary": True, "endpoint": endpoint, "pairs": {treated: reference}}
            for name, endpoint, treated, reference in (
                ("early", "train_acc_third", "decay", "off"),
                ("late", "test_sampled", "decay", "off"),
            )
        ],
        "seeds": {"cpu": "11-30"},
        "arm_seeds": {"cpu": {"off": "11-50"}},
        "arms": {"off": {}, "decay": {}},
    }
)


def runs(seeds: int = 400, deviation: float = 0.03, shared: float = 0.0) -> pd.DataFrame:
    rng = np.random.default_rng(5)
    common = rng.normal(0, shared, seeds)
    rows = [
        {"arm": arm, "seed": seed, "test_greedy": 0.5 + common[seed] + rng.normal(0, deviation)}
        for arm in ("off", "linear", "cosine")
        for seed in range(seeds)
    ]
    return pd.DataFrame(rows)


def plan(values: pd.DataFrame, effect: float = 0.1, **changed: object) -> pd.DataFrame:
    """The plan of one primary contrast by greedy test accuracy, by design."""
    contrast = {"name": "x", "primary": True, "pairs": {"linear": "off"}}
    tree = J.model_dump() | {"contrasts": [contrast], "arms": {"off": {}, "linear": {}}}
    tree |= {"seeds": {"cpu": [1, 2, 3]}, "arm_seeds": {}} | changed
    spec = ExperimentSpec.model_validate(tree)
    return power_table(values, {"J": spec}, "cpu", effect=effect).set_index("design")


@pytest.mark.parametrize("shared", [0.0, 0.05])
def test_spread_is_pooled_over_arms_and_pairs_are_without_what_seeds_share(shared: float) -> None:
    spread = deviations(runs(shared=shared), "test_greedy", "off")
    assert spread["independent"] == pytest.approx((0.03**2 + shared**2) ** 0.5, rel=0.1)
    assert spread["paired"] == pytest.approx(0.03 * 2**0.5, rel=0.06)


def test_what_is_hopeless_or_does_not_vary_has_no_number_of_seeds() -> None:
    assert plan(runs(seeds=20), effect=1e-6).seeds_difference.isna().all()
    table = plan(runs(seeds=4).assign(test_greedy=0.5))
    assert (table.deviation == 0).all()
    numbers = table[["seeds_difference", "seeds_equivalence", "least_detectable"]]
    assert numbers.isna().all(axis=None)


def test_no_plan_has_fewer_seeds_than_the_exact_tests_need() -> None:
    """2/2⁶ and 2/70 are the first p of a difference below 0.05, 1/2⁵ and 1/20 those of equivalence;
    Student's test of runs that hardly vary would take two or three."""
    values = runs(seeds=20, deviation=0.001)
    table = plan(values, margin=0.1)
    assert table.seeds_difference.to_dict() == {"paired": 6, "independent": 4}
    assert table.seeds_equivalence.to_dict() == {"paired": 5, "independent": 3}
    assert table.least_detectable.tolist() == [math.inf, math.inf], "three are declared"
    assert (plan(values, seeds={"cpu": "1-6"}).least_detectable < 0.01).all()
    # Of more rearrangements than are tried, none has a p below 2/100,000.
    never = plan(values, margin=0.1, alpha=1e-6)
    assert never[["seeds_difference", "seeds_equivalence"]].isna().all(axis=None)


def test_what_no_difference_could_show_is_printed_as_none(tmp_path, monkeypatch):
    three = lambda spec, scale: {arm: [0, 1, 2] for arm in spec.arms}  # noqa: E731
    monkeypatch.setattr(ExperimentSpec, "seeds_by_arm", three)
    path = tmp_path / "per_seed.csv"
    table = runs(seeds=3)
    table.assign(test_sampled=table.test_greedy).to_csv(path, index=False)
    done = CliRunner().invoke(app, ["study", "power", str(path), "M3"])
    assert done.exit_code == 0, done.exception
    head, *rows, legend = (line.split() for line in done.output.splitlines())
    assert set(head[-5:]) - {"declared"} <= {word.strip(",:") for word in legend}
    assert [row[head.index("least_detectable")] for row in rows] == ["none", "none"]
    assert "inf" not in done.output


@pytest.mark.parametrize(
    ("table", "baseline", "message"),
    [
        (runs(seeds=3).assign(test_greedy="finished"), "off", "test_greedy has no numbers"),
        (runs(seeds=1), "off", "fewer than two seeds"),
        (runs(seeds=3), "none_such", "runs of none_such"),
    ],
)
def test_unusable_tables_are_refused(table: pd.DataFrame, baseline: str, message: str) -> None:
    with pytest.raises(StudyError, match=message):
        deviations(table, "test_greedy", baseline)


def test_contrasts_are_planned_by_their_own_endpoint_and_level() -> None:
    rng = np.random.default_rng(8)
    rows = [
        {"arm": arm, "seed": seed, "test_sampled": 0.3 + rng.normal(0, 0.02)}
        for arm in ("off", "decay")
        for seed in range(1, 9)
    ]
    values = pd.DataFrame(rows)
    table = power_table(values, {"J": J}, "cpu")
    assert set(table.endpoint) == {"train_acc_third", "test_sampled"}
    assert set(table.alpha) == {0.05 / 2}
    assert table[table.endpoint == "train_acc_third"].deviation.isna().all()
    planned = table[table.endpoint == "test_sampled"]
    assert planned.declared.tolist() == [20, 20]
    spread = deviations(values, "test_sampled", "off")
    assert planned.deviation.tolist() == [spread["paired"], spread["independent"]]
    # M3's other regimes are not trained at scale gpu, and count in no family there.
    few = power_table(values, {"M3": load_experiment(PARAMS / "study" / "M3.yaml")}, "gpu")
    assert set(few.contrasts) == {1}
    explored = J.model_copy(
        update={"contrasts": [c.model_copy(update={"primary": False}) for c in J.contrasts]}
    )
    assert power_table(values, {"J": explored}, "cpu").equals(table), "where none is primary"
    with pytest.raises(StudyError, match="no contrast at scale cpu"):
        power_table(values, {"E": load_experiment(PARAMS / "study" / "E.yaml")}, "cpu")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "cannot be read as a table of runs"),
        (b"\xff\xfe\x00\x01" * 9, "cannot be read as a table of runs"),
        (b"arm,test_greedy\noff,0.5\n", "no column seed"),
        (b"arm,seed\noff,one\n", "column seed has other than whole numbers"),
        (b"arm,seed\noff,1\noff,2\noff,01\n", "arm off, seed 1 has several rows"),
        (b"arm,seed\noff,99999999999999999999\n", "cannot be read as a table of runs"),
    ],
)
def test_a_file_that_is_no_table_of_runs_is_named(tmp_path, content, message) -> None:
    path = tmp_path / "per_seed.csv"
    path.write_bytes(content)
    with pytest.raises(StudyError, match=message) as caught:
        read_runs(path)
    assert str(path) in str(caught.value)
    assert "Give a table with a row per run" in str(caught.value)
