"""Contrasts between two arms that no baseline column answers, as the experiments declare them."""

from dataclasses import dataclass
from typing import Any

import pandas as pd

from refblend.study.design.measures import with_endpoint
from refblend.study.report.m2.study import REPORT, M2Study
from refblend.study.report.readable import compared_cells, interval_text
from refblend.study.report.summary import Family, empty_summary, summarise

CONTRAST_MEASURES = (
    "test_greedy", "test_sampled", "val_best", "val_auc", "final_return", "length_end",
)  # fmt: skip


@dataclass(frozen=True)
class Contrast:
    """``treated`` − ``reference``, seed by seed, within an experiment."""

    name: str
    treated: str
    reference: str


def declared(study: M2Study, experiment: str) -> list[Contrast]:
    """The contrasts of an experiment whose two arms the study has at this scale."""
    arms = study.arms(experiment)
    return [
        Contrast(contrast.name, treated, reference)
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


def _family(study: M2Study, experiment: str, mine: list[Contrast]) -> pd.DataFrame:
    """The contrasts of one experiment, each with columns of its own for its two arms."""
    names = {f"{c.treated} − {c.reference}": c for c in mine}

    def values_of(measure: str) -> pd.DataFrame:
        table = study.wide(experiment, measure)
        columns = {f"{name} treated": table[c.treated] for name, c in names.items()}
        return pd.DataFrame(
            columns | {f"{name} reference": table[c.reference] for name, c in names.items()}
        )

    treated = {f"{name} treated": contrast for name, contrast in names.items()}
    pairs = [(f"{name} treated", f"{name} reference") for name in names]
    family = Family(f"{experiment} contrasts", list(treated), pairs)
    table = summarise(
        family, values_of, with_endpoint(study.experiments[experiment].endpoint, CONTRAST_MEASURES)
    )
    found = table["arm"].map(treated)
    return table.assign(
        experiment=experiment,
        contrast=[contrast.name for contrast in found],
        arm=[contrast.treated for contrast in found],
        baseline=[contrast.reference for contrast in found],
    )


@REPORT.table("contrasts_main", shown=True)
def contrasts_main(study: M2Study, tables: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """The contrasts of each experiment's endpoint, one row each, intervals in one cell."""
    rows: list[dict[str, Any]] = [
        {
            "experiment": row["experiment"],
            "contrast": row["contrast"],
            "arm": row["arm"],
            "against": row["against"],
            "pairs": row["pairs"],
            "difference": interval_text(row["diff"], row["diff_low"], row["diff_high"], True),
            "P(improvement)": interval_text(
                row["prob_improvement"], row["prob_low"], row["prob_high"]
            ),
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
