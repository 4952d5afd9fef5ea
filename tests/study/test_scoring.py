"""The scoring study from reports with known numbers: tables, figures, sentences."""

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

from refblend.cli.study import app
from refblend.errors import StudyError
from refblend.study.layout import SCORING_FIGURES, SCORING_TABLES
from refblend.study.report.scoring.figures import FIGURES
from refblend.study.runs.model_quality import judge_table, reliability_bins


def write(folder: Path, **reports: dict[str, Any]) -> None:
    folder.mkdir(exist_ok=True)
    for name, report in reports.items():
        (folder / f"{name}.json").write_text(json.dumps(report))


def call(folder: Path, *judges: str) -> Path:
    arguments = ["scoring", "--robustness", folder / "robustness.json"]
    arguments += ["--attacks", folder / "attacks.json", "--scale", "cpu", "--out", folder / "out"]
    arguments += [folder / f"{judge}.json" for judge in judges]
    result = CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return folder / "out"


@pytest.fixture
def reports(tmp_path: Path, scoring_reports: ModuleType) -> Path:
    write(
        tmp_path / "in",
        robustness=scoring_reports.robustness(),
        attacks=scoring_reports.attacks(),
        judge_weak=scoring_reports.quality("judge_weak", 0.6),
        judge_medium=scoring_reports.quality("judge_medium", 0.86),
    )
    return tmp_path / "in"


def test_everything_is_written_and_said(reports: Path) -> None:
    out = call(reports, "judge_weak", "judge_medium")
    for name in SCORING_TABLES:
        assert len(pd.read_csv(out / "tables" / f"{name}.csv"))
        assert "|" in (out / "tables" / f"{name}.md").read_text()
    captions = json.loads((out / "figures" / "captions.json").read_text())
    text = (out / "report.md").read_text()
    for name in SCORING_FIGURES:
        assert (out / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<dc:date>" not in (out / "figures" / f"{name}.svg").read_text()
        assert f"(figures/{name}.png)" in text
        assert captions[name] in text
        assert "n = " in captions[name]
        assert "Commit 0123456789." in captions[name]
    for words in (
        "- Judge `weak`: AUC 0.610 by the expected score (0.600 as written)",
        "most effective of 3 is `close_quote` (closing the quote)",
        "from 0.125 to 0.425: lift +0.300 [+0.200, +0.400], n = 20. 2 of 3",
        "no attack changed the prompt's structure (0 of 60 attacked prompts",
        "71.0% valid with 32 (AUC 0.750, 24.0 used), 91.0% valid with 64",
        "off, 12 were overlength and 60.0% did.",
        "Of the very long ones 91.0% got a valid score with clipping (AUC 0.750) and 0.0% without",
    ):
        assert words in text, words

    attacks = pd.read_csv(out / "tables" / "attacks.csv")
    assert attacks.attack.tolist() == ["close_quote", "system_role", "polite"]
    families = pd.read_csv(out / "tables" / "attack_families.csv").set_index("family")
    row = families.loc["instructions"]
    assert (row.attacks, row.most_effective, row.interval_above_0) == (2, "system_role", 1)
    assert row.mean_lift == pytest.approx(0.06)
    metrics = json.loads((out / "metrics.json").read_text())
    assert metrics["robustness"]["clip_off"]["overlength"] == 12
    assert metrics["attacks"]["largest_lift"] == 0.3
    assert metrics["judges"]["judge_medium compact"]["auc"] == pytest.approx(0.76)


def test_a_broken_structure_is_said(reports: Path, scoring_reports: ModuleType) -> None:
    write(reports, attacks=scoring_reports.attacks(structure_changed=3))
    text = (call(reports, "judge_weak") / "report.md").read_text()
    assert "`close_quote` changed 3 of 20 prompts" in text
    assert "no attack changed" not in text


def test_figures_are_the_declared_ones() -> None:
    assert tuple(FIGURES) == SCORING_FIGURES


def test_a_judge_without_groups_and_bins(reports: Path, scoring_reports: ModuleType) -> None:
    bare = scoring_reports.quality()
    for form in bare["forms"].values():
        form |= {"by_length": [], "by_difficulty": [], "reliability": [], "histogram": []}
    write(reports, judge_bare=bare)
    assert "judge_bare" in (call(reports, "judge_bare") / "tables" / "judge_quality.md").read_text()


def test_reports_of_another_command_are_refused(reports: Path, scoring_reports: ModuleType) -> None:
    write(reports, attacks=scoring_reports.quality())
    with pytest.raises(StudyError, match=r"attacks\.json: has no 'attacks'"):
        call(reports, "judge_weak")
    (reports / "robustness.json").unlink()
    with pytest.raises(StudyError, match="cannot be read"):
        call(reports, "judge_weak")


def test_judge_table(scoring_reports: ModuleType) -> None:
    table = judge_table({"actor": {"greedy": 0.3}, "judge_medium": scoring_reports.quality()})
    assert table.form.tolist() == ["few_shot", "compact"]
    assert table.auc.tolist() == pytest.approx([0.86, 0.76])
    assert table["valid at 32"].tolist() == [0.97, 0.97]
    assert reliability_bins({"judge_medium": scoring_reports.quality()})["count"].sum() == 110
    assert judge_table({}).empty
