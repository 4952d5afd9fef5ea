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
from refblend.study.planning.power import (
    PowerQuestion,
    Spread,
    design_table,
    power_table,
    read_runs,
    read_spread,
)

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


@pytest.mark.parametrize("shared", [0.0, 0.05])
def test_spread_is_pooled_over_arms_and_pairs_are_without_what_seeds_share(shared: float) -> None:
    spread = read_spread(runs(shared=shared), "test_greedy", "off")
    assert spread.accuracy == pytest.approx(0.5, abs=0.005)
    assert spread.independent == pytest.approx((0.03**2 + shared**2) ** 0.5, rel=0.1)
    assert spread.paired == pytest.approx(0.03 * 2**0.5, rel=0.06)
    assert spread.seeds == 400


def test_a_larger_test_set_takes_away_its_own_noise_only() -> None:
    spread = read_spread(runs(), "test_greedy", "off")
    question = PowerQuestion(0.02, 0.02, test_sizes=(512, 2048))
    table = power_table(spread, question).set_index(["design", "test_problems"])
    now, larger = table.loc[("independent", 512)], table.loc[("independent", 2048)]
    assert now.deviation == pytest.approx(spread.independent)
    own = spread.independent**2 - 0.25 / 512
    assert larger.deviation == pytest.approx((own + 0.25 / 2048) ** 0.5, rel=1e-3)
    assert larger.seeds_difference < now.seeds_difference
    # Equivalence with a margin takes more seeds than a difference of that size.
    assert now.seeds_equivalence > 0


def test_what_is_hopeless_unknown_or_does_not_vary_has_no_number_of_seeds() -> None:
    spread = read_spread(runs(seeds=20), "test_greedy", "off")
    row = power_table(spread, PowerQuestion(1e-6, 0.02)).iloc[0]
    assert row.seeds_difference is pd.NA
    assert row.test_problems is pd.NA
    equal = read_spread(runs(seeds=4).assign(test_greedy=0.5), "test_greedy", "off")
    table = power_table(equal, PowerQuestion())
    assert (table.deviation == 0).all()
    numbers = table[["seeds_difference", "seeds_equivalence", "least_detectable"]]
    assert numbers.isna().all(axis=None)


def test_no_plan_has_fewer_seeds_than_the_exact_tests_need() -> None:
    """2/2⁶ and 2/70 are the first p of a difference below 0.05, 1/2⁵ and 1/20 those of equivalence;
    Student's test of runs that hardly vary would take two or three."""
    spread = Spread(0.5, independent=0.001, paired=0.001, seeds=3, pairs=5)
    table = power_table(spread, PowerQuestion(0.1, 0.1)).set_index("design")
    assert table.seeds_difference.to_dict() == {"paired": 6, "independent": 4}
    assert table.seeds_equivalence.to_dict() == {"paired": 5, "independent": 3}
    assert table.least_detectable.tolist() == [math.inf, math.inf]
    enough = power_table(Spread(0.5, 0.001, 0.001, seeds=4, pairs=6), PowerQuestion())
    assert (enough.least_detectable < 0.01).all()
    # Of more rearrangements than are tried, none has a p below 2/100,000.
    never = power_table(spread, PowerQuestion(0.1, 0.1, alpha=1e-6))
    assert never[["seeds_difference", "seeds_equivalence"]].isna().all(axis=None)


@pytest.mark.parametrize("experiments", [[], ["--experiments", "M3"]])
def test_what_no_difference_could_show_is_printed_as_none(tmp_path, monkeypatch, experiments):
    monkeypatch.setattr(ExperimentSpec, "seeds_of", lambda *_: [0, 1, 2])
    path = tmp_path / "per_seed.csv"
    table = runs(seeds=3)
    table.assign(test_sampled=table.test_greedy).to_csv(path, index=False)
    done = CliRunner().invoke(app, ["study", "power", str(path), *experiments])
    assert done.exit_code == 0, done.exception
    head, *rows = (line.split() for line in done.output.splitlines())
    assert [row[head.index("least_detectable")] for row in rows] == ["none", "none"]
    assert "inf" not in done.output


@pytest.mark.parametrize(
    ("table", "baseline", "message"),
    [
        (pd.DataFrame({"arm": ["off"], "seed": [1]}), "off", "no column test_greedy"),
        (runs(seeds=3).assign(test_greedy="finished"), "off", "no column test_greedy of numbers"),
        (runs(seeds=1), "off", "fewer than two seeds"),
        (runs(seeds=3), "none_such", "runs of none_such"),
    ],
)
def test_unusable_tables_are_refused(table: pd.DataFrame, baseline: str, message: str) -> None:
    with pytest.raises(StudyError, match=message):
        read_spread(table, "test_greedy", baseline)


def test_primary_contrasts_are_planned_by_their_own_endpoint_and_level() -> None:
    rng = np.random.default_rng(8)
    rows = [
        {"arm": arm, "seed": seed, "test_sampled": 0.3 + rng.normal(0, 0.02)}
        for arm in ("off", "decay")
        for seed in range(1, 9)
    ]
    values = pd.DataFrame(rows)
    asked = PowerQuestion(0.5, 0.5, test_sizes=(512, 2048))
    table = design_table(values, {"J": J}, "cpu", asked)
    assert set(table.endpoint) == {"train_acc_third", "test_sampled"}
    assert table[table.endpoint == "train_acc_third"].deviation.isna().all()
    planned = table[table.endpoint == "test_sampled"]
    assert set(planned.alpha) == {0.05 / 2}
    assert set(planned.declared) == {len(J.seeds_of("cpu", "decay"))}
    alone = PowerQuestion(J.effect, J.margin, alpha=0.05 / 2, test_sizes=(512, 2048))
    expected = power_table(read_spread(values, "test_sampled", "off"), alone)
    assert planned.seeds_equivalence.tolist() == expected.seeds_equivalence.tolist()
    # M3's other regimes are not trained at scale gpu, and count in no family there.
    few = design_table(values, {"M3": load_experiment(PARAMS / "study" / "M3.yaml")}, "gpu", asked)
    assert set(few.contrasts) == {1}
    with pytest.raises(StudyError, match="no primary contrast"):
        design_table(values, {"E": load_experiment(PARAMS / "study" / "E.yaml")}, "cpu", asked)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "cannot be read as a table"),
        (b"\xff\xfe\x00\x01" * 9, "cannot be read as a table"),
        (b"arm,test_greedy\noff,0.5\n", "no column seed"),
        (b"arm,seed\noff,one\n", "column seed has other than whole numbers"),
        (b"arm,seed\noff,1\noff,2\noff,1\n", "arm off, seed 1 has several rows"),
    ],
)
def test_a_file_that_is_no_table_of_runs_is_named(tmp_path, content, message) -> None:
    path = tmp_path / "per_seed.csv"
    path.write_bytes(content)
    with pytest.raises(StudyError, match=message) as caught:
        read_runs(path)
    assert str(path) in str(caught.value)
    assert "Give a table with a row per run" in str(caught.value)
