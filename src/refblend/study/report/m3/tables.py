"""All tables of milestone M3 by name."""

import pandas as pd

from refblend.study.recommend.choose import CANDIDATE_COLUMNS
from refblend.study.recommend.overlay import candidates_table
from refblend.study.report.m3.costs import costs_table
from refblend.study.report.m3.study import ARMS, BASELINE, DEFAULTS, RECOMMENDED, M3Study
from refblend.study.report.readable import readable_summary
from refblend.study.report.summary import Family, summarise
from refblend.study.runs.incidents import in_run_order, incidents_table, resources
from refblend.study.runs.measures import stability
from refblend.study.runs.run_measures import MEASURES, wide

MEASURED = (
    "test_greedy",
    "test_sampled",
    "val_final",
    "val_best",
    "val_auc",
    "final_return",
    "entropy_end",
    "length_end",
    "step_seconds",
)
"""What the arms are compared by, the headline first."""

ALIAS = f"{RECOMMENDED} against {DEFAULTS}"
"""Column of the recommended arm once more, for its comparison with the spec's defaults."""

PAIRS = ((DEFAULTS, BASELINE), (RECOMMENDED, BASELINE), (ALIAS, DEFAULTS))
"""The comparisons of M3, stated before the runs; those of a measure are one family (Holm)."""


def m3_tables(study: M3Study) -> dict[str, pd.DataFrame]:
    """All tables by the names of :data:`refblend.study.layout.M3_TABLES`."""
    raw = confirmation(study)
    readable = readable_summary(raw)
    return {
        "confirmation": raw.replace({"arm": {ALIAS: RECOMMENDED}}),
        "confirmation_main": readable.replace({"arm": {ALIAS: RECOMMENDED}}),
        "per_seed": per_seed(study),
        "candidates": candidates_table(dict(study.record), CANDIDATE_COLUMNS),
        "dropped": dropped_table(study),
        "stability": in_run_order(stability(study.collected.counted_metrics), study.collected.runs),
        "incidents": incidents_table(study.collected),
        "resources": resources(study.collected),
        "costs": costs_table(study),
    }


def confirmation(study: M3Study) -> pd.DataFrame:
    """One row per measure and comparison, see :mod:`refblend.study.report.summary`.

    The arm ``recommended`` has two rows a measure: against the baseline, and (under the name
    :data:`ALIAS`) against the spec's defaults.
    """

    def values_of(measure: str) -> pd.DataFrame:
        table = wide(study.values, measure, ARMS).reindex(study.seeds)
        return table.assign(**{ALIAS: table[RECOMMENDED]})

    return summarise(Family("M3", (*ARMS, ALIAS), PAIRS), values_of, MEASURED)


def per_seed(study: M3Study) -> pd.DataFrame:
    """Every run with its measures; runs that did not finish keep their row."""
    columns = [name for name in MEASURES if name in set(study.values.measure)]
    table = study.values.pivot(index=["arm", "seed"], columns="measure", values="value")
    table = table.reindex(columns=columns).reset_index()
    table.columns.name = None
    return in_run_order(table, study.collected.runs)


def dropped_table(study: M3Study) -> pd.DataFrame:
    """Arms that were no candidates, and why."""
    return pd.DataFrame(list(study.record["dropped"].items()), columns=["arm", "reason"])
