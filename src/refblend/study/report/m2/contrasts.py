"""Contrasts between two arms that no baseline column answers, as the experiments declare them."""

from typing import Any

import pandas as pd

from refblend.study.design.measures import with_endpoint
from refblend.study.report.m2.study import REPORT, M2Study
from refblend.study.report.readable import change, compared_cells, probability
from refblend.study.report.summary import Family, empty_summary, summarise

CONTRAST_MEASURES = (
    "test_greedy", "test_sampled", "val_best", "val_auc", "final_return", "length_end",
)  # fmt: skip


def declared(study: M2Study, experiment: str) -> list[tuple[str, str, str]]:
    """Name, treated arm and reference of contrasts whose arms the study has at this scale."""
    arms = study.arms(experiment)
    return [
        (contrast.name, treated, reference)
        for contrast in study.experiments[experiment].contrasts
        for treated, reference in contrast.pairs.items()
        if treated in arms and reference in arms
    ]


@REPORT.table("contrasts")
def contrasts(study: M2Study) -> pd.DataFrame:
    """All contrasts; those of one experiment and measure are one family.

    A treated arm may appear in several contrasts, so each pair is summarised under its own name.

    Returns:
        Columns experiment, contrast, then those of a summary without the arm's own numbers.
    """
    stated = {name: declared(study, name) for name in study.experiments}
    parts = [_family(study, name, mine) for name, mine in stated.items() if mine]
    table = pd.concat(parts or [empty_summary()], ignore_index=True)
    table = table.reindex(columns=["experiment", "contrast", *empty_summary().columns])
    own = ["iqm", "low", "high", "boot_low", "boot_high", "runs", "n", "mean"]
    return table.drop(columns=own).rename(columns={"baseline": "against"})


def _family(study: M2Study, experiment: str, mine: list[tuple[str, str, str]]) -> pd.DataFrame:
    """The contrasts of one experiment, each with columns of its own for its two arms."""
    pairs = [
        (f"{treated} − {reference} treated", f"{treated} − {reference} reference")
        for _, treated, reference in mine
    ]
    stated = {pair[0]: contrast for pair, contrast in zip(pairs, mine, strict=True)}
    columns = {pair[0]: treated for pair, (_, treated, _) in zip(pairs, mine, strict=True)}
    columns |= {pair[1]: reference for pair, (*_, reference) in zip(pairs, mine, strict=True)}

    def values_of(measure: str) -> pd.DataFrame:
        table = study.wide(experiment, measure)
        return pd.DataFrame({name: table[arm] for name, arm in columns.items()})

    family = Family(f"{experiment} contrasts", list(stated), list(dict.fromkeys(pairs)))
    measures = with_endpoint(study.experiments[experiment].endpoint, CONTRAST_MEASURES)
    table = summarise(family, values_of, measures)
    found = pd.DataFrame(table["arm"].map(stated).tolist(), columns=["contrast", "arm", "baseline"])
    return table.assign(experiment=experiment, **found)


@REPORT.table("contrasts_main", shown=True)
def contrasts_main(study: M2Study, tables: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """The contrasts of each experiment's endpoint, one row each, intervals in one cell."""
    rows: list[dict[str, Any]] = [
        {name: row[name] for name in ("experiment", "contrast", "arm", "against", "pairs")}
        | {
            "difference": change(row),
            "P(improvement)": probability(row),
            **compared_cells(row),
            "note": row["note"],
        }
        for row in at_endpoint(study, tables["contrasts"]).to_dict("records")
    ]
    columns = ["experiment", "contrast", "arm", "against", "pairs", "difference"]
    return pd.DataFrame(rows, columns=None if rows else columns)


def at_endpoint(study: M2Study, table: pd.DataFrame) -> pd.DataFrame:
    """Rows of a table of several experiments that hold each one's endpoint."""
    endpoints = {name: spec.endpoint for name, spec in study.experiments.items()}
    return table[table.measure == table.experiment.map(endpoints)]
