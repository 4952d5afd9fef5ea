"""All tables of milestone M3."""

import pandas as pd

from refblend.study.design.measures import MEASURES
from refblend.study.recommend.choose import CANDIDATE_COLUMNS
from refblend.study.recommend.overlay import candidates_table
from refblend.study.report.m3.study import REPORT, M3Study
from refblend.study.report.readable import readable_summary
from refblend.study.report.registry import Tables
from refblend.study.report.summary import Family, summarise
from refblend.study.runs.incidents import in_run_order
from refblend.study.runs.measures import wide

MEASURED = (
    "test_greedy", "test_sampled", "val_final", "val_best", "val_auc", "final_return",
    "entropy_end", "length_end", "step_seconds",
)  # fmt: skip
"""The measures by which arms are compared."""


@REPORT.table("confirmation")
def confirmation(study: M3Study) -> pd.DataFrame:
    """One row per measure and comparison, see :mod:`refblend.study.report.summary`.

    The comparisons were stated before the runs; those of a measure are one family (Holm). An arm
    has a row for the baseline and one for every stated contrast of its own.
    """
    return _summary(study).replace({"arm": _aliases(study)})


@REPORT.table("confirmation_main", shown=True)
def confirmation_main(study: M3Study) -> pd.DataFrame:
    """The main measures, one row per comparison."""
    summary = readable_summary(_summary(study), study.confirmation.endpoint)
    return summary.replace({"arm": _aliases(study)})


@REPORT.table("per_seed", shown=True)
def per_seed(study: M3Study) -> pd.DataFrame:
    """Every run with its measures; runs that did not finish keep their row."""
    columns = [name for name in MEASURES if name in set(study.values.measure)]
    table = study.values.pivot(index=["arm", "seed"], columns="measure", values="value")
    table = table.reindex(columns=columns).reset_index()
    table.columns.name = None
    return in_run_order(table, study.collected.runs)


@REPORT.table("candidates", shown=True)
def candidates(study: M3Study) -> pd.DataFrame:
    """All candidates, from the simplest on."""
    return candidates_table(dict(study.record), CANDIDATE_COLUMNS)


@REPORT.table("dropped", shown=True)
def dropped(study: M3Study) -> pd.DataFrame:
    """Arms that were not candidates, and why."""
    return pd.DataFrame(list(study.record["dropped"].items()), columns=["arm", "reason"])


def comparison_rows(study: M3Study, tables: Tables) -> pd.DataFrame:
    """Rows of ``confirmation`` by the endpoint, one per comparison, the recommended arm's first."""
    table = tables["confirmation"]
    table = table[(table.measure == study.confirmation.endpoint) & table["diff"].notna()]
    return (
        table.set_index(["arm", "baseline"])
        .reindex(pd.MultiIndex.from_tuples(study.confirmation.comparisons))
        .rename_axis(["arm", "baseline"])
        .reset_index()
    )


def _summary(study: M3Study) -> pd.DataFrame:
    """All measures and comparisons; the treated arm of a contrast under an alias of its own."""
    roles = study.confirmation
    aliases = {_alias(*pair): pair for pair in roles.contrasts}
    pairs = [(arm, roles.baseline) for arm in roles.arms if arm != roles.baseline]
    pairs += [(alias, reference) for alias, (_, reference) in aliases.items()]

    def values_of(measure: str) -> pd.DataFrame:
        table = wide(study.values, measure, roles.arms).reindex(study.seeds)
        return table.assign(**{alias: table[arm] for alias, (arm, _) in aliases.items()})

    measures = dict.fromkeys((roles.endpoint, *MEASURED))
    return summarise(Family(roles.name, (*roles.arms, *aliases), pairs), values_of, list(measures))


def _alias(arm: str, reference: str) -> str:
    return f"{arm} against {reference}"


def _aliases(study: M3Study) -> dict[str, str]:
    return {_alias(*pair): pair[0] for pair in study.confirmation.contrasts}
