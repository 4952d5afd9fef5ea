"""Milestone M1's input: the runs of one experiment, and the quality of the models they use."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from refblend.errors import StudyError
from refblend.study.design.spec import ExperimentSpec
from refblend.study.report.plotting.style import arm_colours
from refblend.study.report.registry import Inputs, Report
from refblend.study.report.shared import (
    RunStudy,
    origin_of,
    quality_of_arms,
    register_run_tables,
)
from refblend.study.runs.collect import read_collected
from refblend.study.runs.measures import wide
from refblend.study.runs.model_quality import actor_table, read_quality


@dataclass(frozen=True)
class M1Study(RunStudy):
    """What tables, figures and text are made from."""

    experiment: ExperimentSpec
    quality: dict[str, Any]
    """Model → its quality report; empty where the models are the user's."""
    scale: str

    @property
    def baseline(self) -> str:
        """The arm that differences are taken against."""
        return self.experiment.baseline

    @property
    def arms(self) -> list[str]:
        """All arms of the scale, in the order of their file."""
        return list(self.experiment.arms_of(self.scale))

    @property
    def treated(self) -> list[str]:
        """All arms but the baseline."""
        return [arm for arm in self.arms if arm != self.baseline]

    @property
    def colours(self) -> dict[str, Any]:
        """Arm → colour."""
        return arm_colours(self.collected.runs.arm, self.baseline)

    @property
    def warm_start(self) -> float:
        """Greedy test accuracy of the actor that all runs start from; NaN if not measured."""
        table = actor_table(self.quality)
        row = table[table.model == "actor"]
        return float(row["greedy"].iloc[0]) if len(row) else np.nan

    def wide(self, measure: str) -> pd.DataFrame:
        """One row per seed, one column per arm."""
        seeds = sorted({int(seed) for seed in self.collected.runs.seed})
        return wide(self.values, measure, self.arms).reindex(seeds)


def read_study(inputs: Inputs) -> M1Study:
    """Read the runs and the models' quality reports, as far as there are any.

    Raises:
        StudyError: frames or reports cannot be read, or M1 has several experiments.
    """
    if len(inputs.experiments) != 1:
        raise StudyError(
            f"m1 answers one question but has {len(inputs.experiments)} experiments",
            "Give one file of params/study `milestone: m1`, the others another.",
        )
    (experiment,) = inputs.experiments.values()
    quality = read_quality(quality_of_arms(inputs))
    return M1Study(read_collected(inputs.collected), experiment, quality, inputs.scale)


REPORT = Report("m1", "M1 stability", read_study, origin_of)
register_run_tables(REPORT, resources_shown=True)
