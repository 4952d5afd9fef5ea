"""The scoring study from reports with known numbers: tables, figures, sentences."""

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pytest

from refblend.errors import StudyError
from refblend.study.report.engine import read_caption
from refblend.study.report.registry import load_report
from refblend.study.runs.model_quality import judge_table, reliability_bins

Render = Callable[..., Path]
JUDGES = {"judge_weak": 0.6, "judge_medium": 0.86, "judge_strong": 0.9}


def write(folder: Path, **reports: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, report in reports.items():
        (folder / f"{name}.json").write_text(json.dumps(report))


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    """Where robustness and attacks lie."""
    return tmp_path / "results" / "cpu" / "scoring" / "measurements"


@pytest.fixture
def root(tmp_path: Path, measured: Path, scoring_reports: ModuleType) -> Path:
    write(measured, robustness=scoring_reports.robustness(), attacks=scoring_reports.attacks())
    judges = {name: scoring_reports.quality(name, auc) for name, auc in JUDGES.items()}
    write(tmp_path / "models" / "cpu" / "quality", **judges)
    made = tmp_path / "runs" / "cpu" / "_collected" / "scoring" / "circumstances"
    write(made, robustness=scoring_reports.circumstances())
    return tmp_path


def test_everything_is_written_and_said(root: Path, render: Render) -> None:
    out = render(root, "scoring")
    report, text = load_report("scoring"), (out / "report.md").read_text()
    for table in report.artifacts({}, "table"):
        assert len(pd.read_csv(out / "tables" / f"{table.name}.csv"))
        assert (out / "tables" / f"{table.name}.tex").exists() == table.shown
    for figure in report.artifacts({}, "figure"):
        svg = out / "figures" / f"{figure.name}.svg"
        caption = read_caption(svg)
        assert "<dc:date>" not in svg.read_text()
        assert f"(figures/{figure.name}.svg)\n\n*{caption}*" in text
        assert "n = " in caption
        assert "Commit 0123456789." in caption
    for words in (
        "- Judge `weak`: AUC 0.610 by the expected score (0.600 as written)",
        "most effective of 3 is `close_quote` (closing the quote)",
        "from 0.125 to 0.425: lift +0.300 [+0.200, +0.400], n = 20. 2 of 3",
        "no attack changed the prompt's structure (0 of 60 attacked prompts",
        "71.0% valid with 32 (AUC 0.750, 24.0 used), 91.0% valid with 64",
        "off, 12 were overlength and 60.0% did.",
        "Of the very long ones 91.0% got a valid score with clipping (AUC 0.750) and 0.0% without",
        "1. **0.860** for the question: What does judge_medium see?",
        "- answer: `` 1+1=3 ⏎ #### 3 ``\n   - the judge wrote: `` \\box{0.86} ``",
    ):
        assert words in text, words
    assert "judge_strong see" not in text

    attacks = pd.read_csv(out / "tables" / "attacks.csv")
    assert attacks.attack.tolist() == ["close_quote", "system_role", "polite"]
    families = pd.read_csv(out / "tables" / "attack_families.csv").set_index("family")
    row = families.loc["instructions"]
    assert (row.attacks, row.most_effective, row.interval_above_0) == (2, "system_role", 1)
    assert row.mean_lift == pytest.approx(0.06)
    metrics = json.loads((out / "metrics.json").read_text())
    assert metrics == {"auc": pytest.approx(0.87), "lift": 0.3}


def test_a_broken_structure_is_said(
    root: Path, measured: Path, scoring_reports: ModuleType, render: Render
) -> None:
    write(measured, attacks=scoring_reports.attacks(structure_changed=3))
    text = (render(root, "scoring") / "report.md").read_text()
    assert "`close_quote` changed 3 of 20 prompts" in text
    assert "no attack changed" not in text


def test_a_judge_without_groups_bins_and_examples(
    root: Path, scoring_reports: ModuleType, render: Render
) -> None:
    bare = scoring_reports.quality("judge_bare")
    for form in bare["forms"].values():
        form |= {"by_length": [], "by_difficulty": [], "reliability": [], "histogram": []}
        del form["misjudged"]
    write(root / "models" / "cpu" / "quality", **dict.fromkeys(JUDGES, bare))
    assert "judge_medium" in (render(root, "scoring") / "report.md").read_text()


def test_reports_of_another_command_are_refused(
    root: Path, measured: Path, scoring_reports: ModuleType, render: Render
) -> None:
    write(measured, attacks=scoring_reports.quality())
    with pytest.raises(StudyError, match=r"attacks\.json: has no 'attacks'"):
        render(root, "scoring")
    (measured / "robustness.json").unlink()
    with pytest.raises(StudyError, match="cannot be read"):
        render(root, "scoring")


def test_judge_table(scoring_reports: ModuleType) -> None:
    table = judge_table({"actor": {"greedy": 0.3}, "judge_medium": scoring_reports.quality()})
    assert table.form.tolist() == ["few_shot", "compact"]
    assert table.auc.tolist() == pytest.approx([0.86, 0.76])
    assert table["valid at 32"].tolist() == [0.97, 0.97]
    assert reliability_bins({"judge_medium": scoring_reports.quality()})["count"].sum() == 110
    assert judge_table({}).empty
