"""The verdicts on M2's declared contrasts, which its first page leads with."""

import pandas as pd

from refblend.study.report.m2.study import REPORT, M2Study
from refblend.study.report.plotting import common as plot
from refblend.study.report.plotting.forest import FOREST, verdict_forest
from refblend.study.report.registry import Tables
from refblend.study.report.verdicts import readable_verdicts, verdicts


@REPORT.table("verdicts")
def all_verdicts(study: M2Study) -> pd.DataFrame:
    """One row per declared contrast, as in ``results/<scale>/verdicts.csv``."""
    learning = {name: study.experiments[name] for name in study.learning}
    return verdicts(study.values, learning, study.scale)


def primary(tables: Tables) -> pd.DataFrame:
    """The contrasts that answer the experiments' questions."""
    table = tables["verdicts"]
    return table[table.primary].reset_index(drop=True)


@REPORT.table("verdicts_main", shown=True)
def primary_verdicts(tables: Tables) -> pd.DataFrame:
    """The verdicts of the primary contrasts, for readers."""
    return readable_verdicts(primary(tables))


@REPORT.figure("verdicts", section="verdicts")
def forest(study: M2Study, tables: Tables) -> plot.Drawn:
    """Every primary contrast in units of its margin, better to the right."""
    table = primary(tables)
    names = table.experiment + ": " + table.treated + " − " + table.reference
    names = names.where(~names.duplicated(keep=False), names + " (" + table.contrast + ")")
    experiments = table.experiment.drop_duplicates()
    origin = study.origin(*experiments, arms={*table.treated, *table.reference})
    return verdict_forest(table, list(names)), (
        f"The primary contrasts, treated − reference, {FOREST} {origin}"
    )
