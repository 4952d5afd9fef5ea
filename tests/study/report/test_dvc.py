"""What DVC shows of the reports: plots with one colour per arm, metrics in one narrow table."""

import json
from pathlib import Path

import pandas as pd
import yaml

from refblend.study.report.registry import load_report, milestone_experiments, read_experiments

ROOT = Path(__file__).parents[3]


def test_every_plot_has_its_template_and_data() -> None:
    plots = yaml.safe_load((ROOT / "dvc.yaml").read_text())["plots"]
    drawn = [spec for entry in plots if isinstance(entry, dict) for spec in entry.values()]
    assert drawn
    for spec in drawn:
        template = ROOT / ".dvc" / "plots" / f"{spec['template']}.json"
        colour = json.loads(template.read_text())["encoding"]["color"]["field"]
        for name, column in spec["y"].items():
            frame = pd.read_csv(ROOT / name.replace("${scale}", "cpu"))
            assert {colour, spec["x"], column} <= set(frame.columns)
            milestone, stem = name.split("/")[2], Path(name).stem
            assert stem in load_report(milestone).names("plot", {})


def test_the_shown_figures_are_previews() -> None:
    plots = yaml.safe_load((ROOT / "dvc.yaml").read_text())["plots"]
    for name in (Path(entry) for entry in plots if isinstance(entry, str)):
        experiments = read_experiments(
            tuple(milestone_experiments(name.parts[2], ROOT / "params")), ROOT / "params"
        )
        figures = load_report(name.parts[2]).artifacts(experiments, "figure")
        assert [figure.name for figure in figures if figure.preview] == [name.stem]
