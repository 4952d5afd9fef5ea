"""Every measure of the experiments that learn, and the main ones of all for readers."""

from collections.abc import Sequence

import pandas as pd

from refblend.study.design.measures import with_endpoint
from refblend.study.report.m2.costs import readable_costs
from refblend.study.report.m2.study import REPORT, M2Study, learns
from refblend.study.report.readable import Row, readable_summary
from refblend.study.report.registry import Tables
from refblend.study.report.summary import MAIN_MEASURES, summarise


@REPORT.table("{experiment}_summary", each=learns)
def experiment_summary(
    study: M2Study, experiment: str, measures: Sequence[str] | None = None
) -> pd.DataFrame:
    """One row per measure and arm of an experiment, as :func:`..summary.summarise` gives it.

    Arms whose runs failed have rows too, with n = 0; measures that no run of the experiment has
    are left out. By default the main measures and the experiment's endpoint.
    """
    if measures is None:
        measures = with_endpoint(study.experiments[experiment].endpoint, MAIN_MEASURES)
    family = study.family(experiment)
    return summarise(family, lambda measure: study.wide(experiment, measure), measures)


@REPORT.table("{experiment}_main", shown=True, each=lambda spec: True)
def experiment_main(study: M2Study, tables: Tables, experiment: str) -> pd.DataFrame:
    """The main measures of an experiment, one row per arm, each with its interval in one cell."""
    spec = study.experiments[experiment]
    if spec.exclusive:
        return readable_costs(tables[f"{experiment}_costs"], list(spec.factors))
    return readable_summary(tables[f"{experiment}_summary"], spec.endpoint)


def summary_rows(tables: Tables, experiment: str, measure: str) -> list[Row]:
    """Rows of a summary that have values of a measure, in the order of the arms."""
    table = tables[f"{experiment}_summary"]
    return table[(table.measure == measure) & (table.n > 0)].to_dict("records")


def endpoint_rows(study: M2Study, tables: Tables, experiment: str) -> list[Row]:
    """Those of the measure that the experiment is decided by."""
    return summary_rows(tables, experiment, study.experiments[experiment].endpoint)
