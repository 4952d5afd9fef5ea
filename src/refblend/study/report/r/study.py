"""R's input: the runs of one experiment, as M1's, and the scale that they are set beside.

Tables and figures of single runs, curves, stability and the judge are M1's, registered again; what
is decided is R's own: the verdicts on its contrasts, and which of them carry over.
"""

from dataclasses import dataclass, replace

import pandas as pd

from refblend.study.report.beside import beside_table, readable_beside
from refblend.study.report.m1 import figures  # noqa: F401 - they register
from refblend.study.report.m1 import study as few_arms
from refblend.study.report.readable import DECIDING, interval, readable_summary
from refblend.study.report.registry import Inputs, Report, Tables
from refblend.study.report.shared import origin_of
from refblend.study.report.verdicts import readable_of_one, refuse_mixed_models, verdicts
from refblend.study.runs.curves import start_and_end
from refblend.study.stats.statistics import student_interval

DECIDED_OTHERWISE = ("verdict", "arm_main")
"""Tables of M1 that decide by other rules than the verdicts."""


@dataclass(frozen=True)
class RStudy(few_arms.M1Study):
    """What tables, figures and text are made from."""

    inputs: Inputs


def read_study(inputs: Inputs) -> RStudy:
    """Read the runs and the models' quality reports, as far as there are any.

    Raises:
        StudyError: frames or reports cannot be read, there are several experiments, or a contrast
            compares runs of different models.
    """
    read = few_arms.read_study(inputs, "r")
    refuse_mixed_models(read.collected.runs, inputs.experiments, inputs.scale)
    return RStudy(read.collected, read.experiment, read.quality, read.scale, inputs)


REPORT = Report("r", "R real model", read_study, origin_of)
REPORT.entries.extend(
    replace(entry, preview=False)
    for entry in few_arms.REPORT.entries
    if entry.name not in DECIDED_OTHERWISE
)


@REPORT.table("verdicts")
def all_verdicts(study: RStudy) -> pd.DataFrame:
    """One row per declared contrast, as in ``results/<scale>/verdicts.csv``."""
    return verdicts(study.values, study.inputs.experiments, study.scale)


@REPORT.table("verdicts_main", shown=True)
def declared_verdicts(tables: Tables) -> pd.DataFrame:
    """The same for readers; the primary contrasts answer the question."""
    return readable_of_one(tables["verdicts"])


@REPORT.table("beside")
def set_beside(study: RStudy, tables: Tables) -> pd.DataFrame:
    """Every contrast with its counterpart at the other scale, see :mod:`..beside`."""
    return beside_table(study.inputs, tables["verdicts"])


@REPORT.table("beside_main", shown=True)
def set_beside_for_readers(tables: Tables) -> pd.DataFrame:
    """The same for readers."""
    return readable_beside(tables["beside"])


@REPORT.table("arm_main", shown=True)
def arm_main(study: RStudy, tables: Tables) -> pd.DataFrame:
    """The main measures, one row per arm; what is decided, the verdicts say."""
    table = readable_summary(tables["arm_summary"], study.experiment.endpoint)
    return table.drop(columns=DECIDING, errors="ignore")


@REPORT.table("outside_test", shown=True)
def outside_test(study: RStudy) -> pd.DataFrame:
    """Every arm's greedy accuracy on the sanity set before and after training, and its change."""
    ends = start_and_end(study.metrics)
    part = ends[(ends.measure == "sanity") & ends.gain.notna()]
    rows = []
    for arm in study.arms:
        mine = part[part.arm == arm]
        if len(mine):
            change = interval(student_interval(mine.gain), signed=True)
            before, after = mine.start.mean(), mine.final.mean()
            rows.append((arm, len(mine), before, after, change))
    return pd.DataFrame(rows, columns=["arm", "n", "before", "after", "change"])
