"""M2's report: whole at the smallest scale, with runs missing, and from the command line."""

import json
import re
from collections.abc import Mapping
from pathlib import Path

import m2_frames
import pandas as pd
import pytest
from typer.testing import CliRunner

from refblend.cli.study import app
from refblend.study.layout import M2_PLOT_DATA, M2_TABLES
from refblend.study.report.formats import write_table
from refblend.study.report.m2 import report as m2_report
from refblend.study.report.m2.report import section_of
from refblend.study.report.m2.study import M2Study
from refblend.study.report.m2.surprises import surprises
from refblend.study.report.m2.tables import m2_tables
from refblend.study.report.m2.text import level_text, swept_sentence, verdicts
from refblend.study.runs.collect import write_collected

CAPTIONS = {"A_forest": "Forest of A.", "A_weight_steps": "Weights.", "overview": "All."}


def no_drawing(study: M2Study, tables: Mapping[str, pd.DataFrame], out: Path) -> dict[str, str]:
    """Stands in for the figures, which have tests of their own."""
    assert set(tables) == set(M2_TABLES)
    return CAPTIONS


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of scale smoke by the command line; one run failed."""
    folder = tmp_path_factory.mktemp("m2")
    study = m2_frames.study("smoke", {"linear": -0.1, "linear_terminal": 0.1}, {("cosine", 1)})
    write_collected(study.collected, folder / "frames")
    scoring = folder / "scoring" / "tables"
    scoring.mkdir(parents=True)
    columns = "experiment,arm,responses,overlength,nonzero_rate,valid_rate,fallback_rate,auc,"
    columns += "auc_all,ece,tokens_per_response,seconds_per_response\n"
    rows = "D1,few_shot,360,0,0.98,0.98,0.02,0.7,0.7,0.2,437,0.02\n"
    rows += "D3,clip_off,360,120,0.65,0.65,0.3,,0.7,0.2,437,0.02\n"
    (scoring / "robustness.csv").write_text(columns + rows)
    arguments = ["m2", "--collected", folder / "frames", "--scale", "smoke", "--out", folder / "m2"]
    arguments += ["--params", m2_frames.PARAMS, "--scoring", scoring.parent]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(m2_report, "write_m2_figures", no_drawing)
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output or result.exception
    return folder / "m2"


def test_report_is_whole(written: Path) -> None:
    text = (written / "report.md").read_text()
    assert not re.search(r"\bnan\b|<NA>|\bNone\b|\binf\b", text)
    for name in "ABCDEFGH":
        assert f"\n## {name}. " in text
    for name, caption in CAPTIONS.items():
        assert text.count(f"(figures/{name}.png)") == 1
        assert f"*{caption}*" in text
    assert text.index("(figures/A_forest.png)") < text.index("\n## B. ")
    assert text.index("## Weight, entropy") < text.index("(figures/A_weight_steps.png)")
    assert "cannot give a p below 0.5 with 2 seeds" in text
    assert "so *not distinguishable* is its only possible answer" in text
    assert "| cosine" in text
    assert "worker died" in text
    assert "not identifiable, 2 levels with runs" in text
    assert "B, C and H ran under `terminal`, the better one under GRPO." in text
    assert "65.0% valid, non-zero scores, no AUC, 120 overlength of 360" in text


def test_every_table_in_three_forms(written: Path) -> None:
    for name in M2_TABLES:
        assert list(pd.read_csv(written / "tables" / f"{name}.csv"))
        assert (written / "tables" / f"{name}.md").stat().st_size
        tex = (written / "tables" / f"{name}.tex").read_text()
        assert tex.count(r"\toprule") == tex.count(r"\bottomrule") == 1


def test_numbers_for_dvc(written: Path) -> None:
    metrics = json.loads((written / "metrics.json").read_text())
    runs = len(pd.read_csv(written / "tables" / "per_seed.csv"))
    assert metrics["runs"] == {"planned": runs, "finished": runs - 1}
    summary = pd.read_csv(written / "tables" / "A_summary.csv")
    row = summary[(summary.arm == "linear") & (summary.measure == "test_greedy")].iloc[0]
    assert metrics["test_greedy"]["A"]["linear"]["diff"] == pytest.approx(row["diff"], abs=1e-5)
    assert metrics["levels"] == {"B_knee": None, "C_pivot": None}
    assert {path.stem for path in (written / "plots").iterdir()} == set(M2_PLOT_DATA)
    curve = pd.read_csv(written / "plots" / "val_accuracy.csv")
    assert not {"len256_ctx1024", "shared_serial"} & set(curve.arm)
    assert len(pd.read_csv(written / "plots" / "levels.csv")) == 4


def test_surprises_find_what_was_put_in() -> None:
    chosen = {name: spec for name, spec in m2_frames.specs().items() if name in "A"}
    effects = {"linear": -0.2, "linear_terminal": 0.2, "shuffled": 0.1}
    study = m2_frames.study("smoke", effects, experiments=chosen)
    tables = m2_tables(study)
    found = {surprise.rule: surprise.found for surprise in surprises(study, tables)}
    lower = next(hits for rule, hits in found.items() if rule.startswith("An arm lies below"))
    assert [text.split("`")[1] for text in lower] in (["linear"], [])
    longer = next(hits for rule, hits in found.items() if rule.startswith("Responses at the end"))
    assert {text.split("`")[1] for text in longer} == set(study.arms("A")) - {"off"}
    control = next(hits for rule, hits in found.items() if rule.startswith("A control"))
    assert control == ()  # shuffled_terminal is far below the judge


def test_sections_of_figures() -> None:
    assert [section_of(name) for name in ("A_forest", "BCGH_forest", "A_weight_steps")] == [
        "A",
        "B",
        "weight",
    ]
    assert section_of("overview") == ""


def test_text_of_levels_and_placements() -> None:
    row = {"identifiable": True, "chosen": 0.3, "low": 0.2, "high": 0.3, "stability": 0.7, "n": 3}
    assert level_text(row).startswith("0.3, 95 % interval over resampled seeds 0.2 to 0.3")
    assert "70%" in level_text(row)
    table = pd.DataFrame(
        {
            "estimator": ["grpo", "grpo"],
            "placement": ["per_token", "terminal"],
            "best": [True, False],
            "swept": [False, True],
        }
    )
    assert "NOT the better one under GRPO (`per_token`)" in swept_sentence(table)


def test_latex_escapes_what_latex_would_read(tmp_path: Path) -> None:
    frame = pd.DataFrame({"arm_name": ["50% & more_of #1", "–"], "value": [0.123456, None]})
    write_table(frame, "t", tmp_path)
    text = (tmp_path / "t.tex").read_text()
    assert r"50\% \& more\_of \#1 & 0.1235 \\" in text
    assert r"arm name & value \\" in text
    assert text.startswith(r"\begin{tabular}{lr}")
    assert "–" not in text
    write_table(frame.iloc[:0], "empty", tmp_path)
    assert r"\midrule" in (tmp_path / "empty.tex").read_text()


def test_verdicts_name_the_arms_and_what_was_out_of_reach() -> None:
    common = {"verdict": "not distinguishable", "smallest_p_holm": 0.5}
    rows = [
        {"arm": "a", "interval_excludes_0": True, **common},
        {"arm": "b", "interval_excludes_0": False, **common},
        {"arm": "c", "interval_excludes_0": None, **common},
    ]
    text = verdicts(rows)
    assert "higher none; lower none" in text
    assert "can give is 0.5" in text
    assert "excludes 0 for: `a`." in text
    assert "1 of them has no such interval" in text
    reachable = verdicts([{**rows[0], "verdict": "higher", "smallest_p_holm": 0.01}])
    assert "higher `a`" in reachable
    assert "could not have reached" not in reachable
