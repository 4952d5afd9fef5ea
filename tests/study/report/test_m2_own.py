"""A user's own experiment, letters, arms and strategy: one file and ten lines, nothing else."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import m2_frames
import pandas as pd
import pytest

from refblend.ppo.weights import STRATEGIES, Strategy, register
from refblend.study.design.spec import experiments_of
from refblend.study.report.engine import draw, write_report, write_tables
from refblend.study.report.registry import Inputs, load_report, read_experiments
from refblend.study.runs.collect import write_collected

ZX = """\
title: Halves
question: Is half a weight enough?
leads: true
baseline: plain
seeds: {smoke: [1, 2]}
factors: {strategy: algorithm.ref_quality_score.strategy}
contrasts:
  - {name: half − whole, pairs: {mixed_up: gae_looking_weak_terminal}}
arms:
  plain: {algorithm.ref_quality_score.enable: false}
  mixed_up: {algorithm.ref_quality_score.strategy: halved}
  gae_looking_weak_terminal: {algorithm.ref_quality_score.strategy: linear}
"""


@pytest.fixture(scope="module")
def toy() -> Iterator[Strategy]:
    """A strategy as a user adds one."""
    yield register(
        Strategy(
            name="halved",
            weight=lambda entropy, params, at: params.max_weight / 2,
            parameters=("max_weight",),
            formula="w = w_max / 2",
        )
    )
    del STRATEGIES["halved"]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory, toy: Strategy) -> Path:
    """M2's report of a study whose only experiment is ZX, at scale smoke."""
    folder = tmp_path_factory.mktemp("own")
    params = folder / "params"
    for name in ("ppo.yaml", "scale/smoke.yaml", "workflow.yaml"):
        (params / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(m2_frames.PARAMS / name, params / name)
    (params / "study").mkdir()
    (params / "study" / "ZX.yaml").write_text(ZX)
    names = tuple(experiments_of("m2", params))
    specs = read_experiments(names, params)
    arms = specs["ZX"].arms_of("smoke")
    frames = m2_frames.collected([(arm, seed) for arm in arms for seed in (1, 2)])
    inputs = Inputs("smoke", names, folder / "frames", folder, folder / "results", params)
    write_collected(frames, inputs.collected)
    report, out = load_report("m2"), folder / "results" / "m2"
    write_tables(report, inputs, out)
    for figure in report.names("figure", inputs.experiments):
        draw(report, inputs, out / "figures" / f"{figure}.svg")
    write_report(report, inputs, out)
    return out


def test_one_file_gives_tables_forest_and_section(written: Path) -> None:
    summary = pd.read_csv(written / "tables" / "ZX_summary.csv")
    assert set(summary.arm) == {"plain", "mixed_up", "gae_looking_weak_terminal"}
    verdicts = pd.read_csv(written / "tables" / "verdicts.csv")
    assert verdicts[["experiment", "contrast", "treated", "reference"]].to_numpy().tolist() == [
        ["ZX", "half − whole", "mixed_up", "gae_looking_weak_terminal"]
    ]
    text = (written / "report.md").read_text()
    assert "\n## ZX. Halves\n\n*Is half a weight enough?*\n" in text
    assert text.count("(figures/ZX_forest.svg)") == 1
    assert "The arms differ in strategy." in text
    assert "| half − whole | " in text
    assert text.startswith("# M2")
    assert "Is half a weight enough?" in text.split("\n## ")[0]


def test_nothing_is_read_into_the_names_of_arms(written: Path) -> None:
    svg = (written / "figures" / "ZX_weight_steps.svg").read_text()
    assert "halved" in svg
    assert "linear" in svg
    assert "terminal" not in svg
    assert not list(written.glob("figures/ZX_judge*"))


def test_a_new_strategy_is_drawn_with_its_function_and_a_colour(written: Path) -> None:
    for name in ("ZX_weight_functions", "ZX_weight_entropy"):
        assert "halved" in (written / "figures" / f"{name}.svg").read_text()
