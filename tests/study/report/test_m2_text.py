"""M2's report: whole at the smallest scale with a run missing, and its sentences."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import m2_frames
import pandas as pd
import pytest

from refblend.study.report.engine import draw, environment, read_caption, write_report, write_tables
from refblend.study.report.m2.answers import assumed
from refblend.study.report.m2.surprises import surprises
from refblend.study.report.registry import Inputs, load_report
from refblend.study.report.verdicts import by_verdict
from refblend.study.runs.collect import RESPONSE_COLUMNS, write_collected

SAY = environment().get_template("_answers.md.j2").module
COLUMNS = "experiment,arm,responses,overlength,nonzero_rate,valid_rate,fallback_rate,auc,"
COLUMNS += "auc_all,ece,tokens_per_response,seconds_per_response\n"
ROWS = "D1,few_shot,360,0,0.98,0.98,0.02,0.7,0.7,0.2,437,0.02\n"
ROWS += "D3,clip_off,360,120,0.65,0.65,0.3,,0.7,0.2,437,0.02\n"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of scale smoke with experiment D; one run failed."""
    folder = tmp_path_factory.mktemp("m2")
    study = m2_frames.study("smoke", {"linear": -0.1, "linear_terminal": 0.1}, {("cosine", 1)})
    inputs = Inputs(
        scale="smoke",
        study=tuple(study.experiments),
        collected=folder / "frames",
        models=folder / "models",
        results=folder / "results",
        params=m2_frames.PARAMS,
    )
    write_collected(study.collected, inputs.collected)
    scoring = inputs.results / "scoring" / "tables"
    scoring.mkdir(parents=True)
    (scoring / "robustness.csv").write_text(COLUMNS + ROWS)
    report, out = load_report("m2"), inputs.results / "m2"
    write_tables(report, inputs, out)
    for figure in report.names("figure", inputs.experiments):
        draw(report, inputs, out / "figures" / f"{figure}.svg")
    write_report(report, inputs, out)
    return out


def test_report_is_whole(written: Path) -> None:
    text = (written / "report.md").read_text()
    assert not re.search(r"\bnan\b|<NA>|\bNone\b|\binf\b", text)
    places = [text.index(f"\n## {name}. ") for name in "ABCDEFGHIJKL"]
    assert places == sorted(places)
    specs = m2_frames.specs()
    for figure in load_report("m2").artifacts(specs, "figure"):
        svg = written / "figures" / f"{figure.name}.svg"
        assert text.count(f"(figures/{figure.name}.svg)") == 1
        assert f"*{read_caption(svg)}*" in text
    assert "cannot give a p below 0.5 with 2 seeds" in text
    assert "so it can call nothing better or worse" in text
    assert "| cosine" in text
    assert "- `cosine`, seed 1: **failed**, worker died" in text
    assert "not identifiable, 2 levels with runs" in text
    assert "H ran under `terminal`, the better one under GRPO." in text
    assert "65.0% valid, non-zero scores, no AUC, 120 overlength of 360" in text


def test_the_first_page_gives_the_verdicts(written: Path) -> None:
    page, answers = (written / "report.md").read_text().split("\n## ", maxsplit=2)[:2]
    table = pd.read_csv(written / "tables" / "verdicts.csv")
    primary = table[table.primary]
    assert len(primary) == len(re.findall(r"^\| [A-L] ", page, flags=re.MULTILINE)) > 5
    # Two seeds cannot decide anything, and the page says so and what it would take.
    assert f"Of {len(primary)} primary contrasts 0 are better, 0 worse, 0 equivalent and" in page
    assert "whatever the effect" in page
    assert page.count("Does blending a judge's score into the rewards help") == 1
    assert "**Does the judge's score help? (against no blend)** Open: undecided are" in page
    assert "(J; training accuracy (sampled), mean, first third)" in page
    row = primary.query("treated == 'linear_terminal' and reference == 'off'").iloc[0]
    assert f"{row.estimate:+.3f} [{row.low:+.3f}, {row.high:+.3f}]" in page
    assert f"`linear_terminal` − `off` (G) {row.seeds_needed:.0f}, " in page
    assert page.count("(figures/") == 1
    assert answers.startswith("Answers")
    assert "Among the arms of A `linear_terminal` has the best mean test accuracy" in answers
    assert "B, knee of max_weight: not identifiable" in answers


def test_the_page_counts_every_kind_of_verdict() -> None:
    row = {"treated": "a", "reference": "b", "experiment": "X", "estimate": 0.1, "low": 0.05}
    row |= {"high": 0.15, "seeds_needed": 12, "n": 4, "label": "accuracy"}
    kinds = ("better", "worse", "equivalent", "undecided")
    facts = {"rows": [row] * 4, "margins": ["0.02"], "alphas": ["0.05"], "exploratory": 3}
    facts |= {kind: [row] for kind in kinds} | {"unreachable": 0}
    text = SAY.page(facts, {"judge": facts, "other": facts}, "accuracy")
    assert "1 is better, 1 worse, 1 equivalent and 1 undecided" in text
    assert "**Does the judge's score help? (against no blend)** In part: `a` is better" in text
    assert "**What else matters?** `a` is better than `b` (X): +0.100 [+0.050, +0.150]; " in text
    assert text.count("`b` (X): +0.100 [+0.050, +0.150]") == 8
    assert "undecided is `a` − `b` (X): +0.100" in text
    assert "in seeds per arm: `a` − `b` (X) 12." in text
    assert "whatever the effect" not in text
    assert "`a` − `b` (X; accuracy)" in SAY.page(facts, {"judge": facts}, "length")


@pytest.mark.parametrize(
    ("kinds", "word"),
    [
        (["better", "better"], "Yes"),
        (["better", "undecided"], "In part"),
        (["worse", "equivalent"], "No"),
        (["worse", "undecided"], "Not shown"),
        (["undecided"], "Open"),
    ],
)
def test_a_question_is_answered_by_what_is_decided(kinds: list[str], word: str) -> None:
    rows = [{"verdict": kind, "least_p_adjusted": 0.01, "alpha": 0.05} for kind in kinds]
    assert SAY.reply(by_verdict(rows)) == word


def test_each_section_begins_with_its_answer(written: Path) -> None:
    text = (written / "report.md").read_text()
    for name, spec in m2_frames.specs().items():
        section = text.split(f"\n## {name}. ")[1].split("\n## ")[0]
        _, question, answer, *_ = section.split("\n\n")
        assert question == f"*{spec.question.strip()}*"
        assert "`" in answer
        assert section.index(answer) < section.index("\n|")


def test_every_table_as_csv_and_those_shown_as_latex(written: Path) -> None:
    for table in load_report("m2").artifacts(m2_frames.specs(), "table"):
        assert list(pd.read_csv(written / "tables" / f"{table.name}.csv"))
        tex = written / "tables" / f"{table.name}.tex"
        assert tex.exists() == table.shown
        if table.shown:
            assert tex.read_text().count(r"\toprule") == 1


def test_numbers_for_dvc(written: Path) -> None:
    metrics = json.loads((written / "metrics.json").read_text())
    runs = len(pd.read_csv(written / "tables" / "per_seed.csv"))
    assert (metrics["runs"], metrics["missing"]) == (runs, 1)
    summary = pd.read_csv(written / "tables" / "A_summary.csv")
    treated = summary[(summary.measure == "test_greedy") & summary["diff"].notna()]
    best = treated.loc[treated["mean"].idxmax()]
    numbers = {"accuracy": "mean", "diff": "diff", "low": "diff_low", "high": "diff_high"}
    for name, column in numbers.items():
        assert metrics[name] == pytest.approx(best[column], abs=1e-4)
    curve = pd.read_csv(written / "plots" / "val_accuracy.csv")
    assert not {"len256_ctx1024", "shared_serial"} & set(curve.arm)
    assert len(pd.read_csv(written / "plots" / "levels.csv")) == 4


def found_by(study: m2_frames.M2Study) -> Callable[[str], list[str]]:
    """What the surprise finds whose rule begins with these words."""
    found = surprises(study, m2_frames.tables_of(study))
    return lambda words: next(hits for rule, hits in found.items() if rule.startswith(words))


def judged(study: m2_frames.M2Study) -> pd.DataFrame:
    """Eight responses to one prompt of every run of H, four of them right; the strong judge puts
    four of these above the wrong ones, the medium one three, the weak one two."""
    rows = [
        {"arm": arm, "seed": seed, "step": 20, "acc": float(place < 4), "judge_valid": True}
        | {"judge_score": float(place < {"weak": 2, "medium": 3, "strong": 4}[judge])}
        for arm, seeds in study.seeds("H").items()
        if (judge := study.resolved[arm].judge) and study.resolved[arm].blends
        for seed in seeds
        for place in range(8)
    ]
    return pd.DataFrame(rows).reindex(columns=list(RESPONSE_COLUMNS)).astype(RESPONSE_COLUMNS)


def test_surprises_find_what_was_put_in() -> None:
    chosen = {"A": m2_frames.specs()["A"]}
    effects = {"linear": -0.2, "linear_terminal": 0.2, "shuffled": 0.1}
    study = m2_frames.study("smoke", effects, experiments=chosen)
    found = found_by(study)
    assert [text.split("`")[1] for text in found("An arm lies below")] == ["linear"]
    equal = found_by(m2_frames.study("smoke", experiments=chosen))
    assert equal("An arm lies below") == []
    longer = {text.split("`")[1] for text in found("Responses at the end")}
    assert longer == set(study.arms("A")) - {"off"}
    assert found("A control") == []  # shuffled_terminal is far below the judge


def test_surprises_read_judges_and_strategies_from_the_configuration() -> None:
    chosen = {name: spec for name, spec in m2_frames.specs().items() if name in "AH"}
    effects = {"inverse": 0.3, "weak_constant_terminal": 0.3, "strong_linear_terminal": 0.3}
    effects |= {"constant": 0.2, "random_terminal": 0.4}
    study = m2_frames.study("cpu", effects, experiments=chosen)
    study = replace(study, collected=replace(study.collected, responses=judged(study)))
    found = found_by(study)
    rising = [text.split("`")[1::2] for text in found("A weight that rises")]
    assert ["inverse", "linear"] in rising
    assert {one for one, _ in rising} == {"inverse"}
    judges = [text.split("`")[1::2] for text in found("A judge with a higher AUC")]
    assert ["strong_constant_terminal", "weak_constant_terminal"] in judges
    assert "strong_linear_terminal" not in {one for one, _ in judges}
    assert any("`linear` − `constant`" in text for text in found("A weight that follows"))
    assert any("`random_terminal`" in text for text in found("A control"))


def test_text_of_levels_and_assumed_placements() -> None:
    row = {"identifiable": True, "chosen": 0.3, "low": 0.2, "high": 0.3, "stability": 0.7, "n": 3}
    assert SAY.level(row).startswith("0.3, 95 % interval over resampled seeds 0.2 to 0.3")
    assert "70%" in SAY.level(row)
    chosen = {name: spec for name, spec in m2_frames.specs().items() if name in "GH"}
    study = m2_frames.study("smoke", experiments=chosen)
    table = pd.DataFrame(
        {
            "estimator": ["grpo", "grpo"],
            "placement": ["per_token", "terminal"],
            "best": [True, False],
            "swept": [False, True],
        }
    )
    sentence = SAY.assumed(assumed(study, table, "G"))
    assert sentence.startswith("H ran under `terminal`, which is NOT the better one under GRPO")
    assert "(`per_token`)" in sentence


def test_verdicts_name_the_arms_and_what_was_out_of_reach() -> None:
    common = {"verdict": "undecided", "smallest_p_holm": 0.5}
    rows = [
        {"arm": "a", "interval_excludes_0": True, **common},
        {"arm": "b", "interval_excludes_0": False, **common},
        {"arm": "c", "interval_excludes_0": None, **common},
    ]
    text = SAY.verdicts(rows)
    assert "better none; worse none; equivalent none; undecided `a`, `b`, `c`." in text
    assert "can give is 0.5" in text
    assert "excludes 0 for: `a`." in text
    assert "1 of them has no such interval" in text
    reachable = SAY.verdicts([{**rows[0], "verdict": "better", "smallest_p_holm": 0.01}])
    assert "better `a`;" in reachable
    assert "could not have reached" not in reachable
