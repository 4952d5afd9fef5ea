"""What DVC shows of the reports: plots with one colour per arm, metrics in one narrow table."""

import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import yaml

from refblend.files import write_json
from refblend.study.design.spec import experiments_of
from refblend.study.report.registry import load_report, read_experiments
from refblend.study.report.shared import headline
from refblend.study.runs.collect import Collected

ROOT = Path(__file__).parents[3]


def test_every_plot_is_coloured_by_arm() -> None:
    plots = yaml.safe_load((ROOT / "dvc.yaml").read_text())["plots"]
    drawn = [spec for entry in plots if isinstance(entry, dict) for spec in entry.values()]
    assert drawn
    for spec in drawn:
        template = ROOT / ".dvc" / "plots" / f"{spec['template']}.json"
        colour = json.loads(template.read_text())["encoding"]["color"]["field"]
        assert colour == "arm"
        for name, column in spec["y"].items():
            milestone, stem = name.split("/")[2], Path(name).stem
            assert stem in load_report(milestone).names("plot", {})
            if (ROOT / "results" / "cpu" / milestone / "report.md").exists():  # not yet M3's
                frame = pd.read_csv(ROOT / name.replace("${scale}", "cpu"))
                assert {colour, spec["x"], column} <= set(frame.columns)


def test_the_metrics_of_all_milestones_are_one_narrow_table(tmp_path: Path) -> None:
    """`dvc metrics show` on the numbers that the reports write, with the longest values."""
    runs = pd.DataFrame({"arm": "linear", "seed": range(9999), "status": "missing"})
    metrics = pd.DataFrame(
        {"arm": "linear", "seed": 0, "metric": "incidents/oom", "value": [98765.0]}
    )
    row = {"mean": 0.1234567, "diff": -0.1234567, "diff_low": -0.1234567, "diff_high": -0.1234567}
    numbers = headline(Collected(runs, metrics, pd.DataFrame()), row)
    assert set(numbers) == {"accuracy", "diff", "low", "high", "runs", "missing", "incidents"}
    files = [f"results/smollm/{name}/metrics.json" for name in ("m1", "m2", "m3")]
    for name in files:
        write_json(tmp_path / name, numbers)
    stages = {
        Path(name).parts[2]: {"cmd": "true", "metrics": [{name: {"cache": False}}]}
        for name in files
    }
    (tmp_path / "dvc.yaml").write_text(yaml.safe_dump({"stages": stages}))
    dvc = Path(sys.executable).with_name("dvc")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run([dvc, "init", "-q"], cwd=tmp_path, check=True)
    done = subprocess.run(
        [dvc, "metrics", "show"], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 1 + len(files), "a header, and a line per milestone"
    assert all(name in done.stdout for name in (*numbers, *files))
    assert max(map(len, lines)) <= 120, done.stdout


def test_the_shown_figures_are_previews() -> None:
    plots = yaml.safe_load((ROOT / "dvc.yaml").read_text())["plots"]
    for name in (Path(entry) for entry in plots if isinstance(entry, str)):
        experiments = read_experiments(
            tuple(experiments_of(name.parts[2], ROOT / "params", "cpu")), ROOT / "params"
        )
        figures = load_report(name.parts[2]).artifacts(experiments, "figure")
        assert [figure.name for figure in figures if figure.preview] == [name.stem]
