"""The table of verdicts: every declared contrast of some experiments, for all reports."""

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from refblend.study.design.measures import ACCURACIES, ORDERED, label
from refblend.study.design.spec import ExperimentSpec
from refblend.study.report.readable import plus_minus
from refblend.study.report.study import Study
from refblend.study.runs.measures import wide
from refblend.study.stats.verdicts import Contrast, decide, interval_of, is_paired

_NAMES = (
    "experiment", "contrast", "primary", "n", "estimate", "low", "high", "p", "p_adjusted",
    "verdict", "treated", "reference", "endpoint", "margin", "alpha", "paired", "p_equivalence",
    "p_equivalence_adjusted", "least_p_adjusted", "detectable", "seeds_needed", "added",
)  # fmt: skip
VERDICT_COLUMNS = dict.fromkeys(_NAMES, "float64")
VERDICT_COLUMNS |= dict.fromkeys(("experiment", "contrast", "verdict", "endpoint"), "str")
VERDICT_COLUMNS |= {"treated": "str", "reference": "str", "primary": "bool", "paired": "bool"}
VERDICT_COLUMNS |= {"n": "int64", "added": "int64", "seeds_needed": "Int64"}
"""Most are explained at :func:`refblend.study.stats.verdicts.decide`."""


def verdicts(
    values: pd.DataFrame, experiments: Mapping[str, ExperimentSpec], scale: str
) -> pd.DataFrame:
    """One row per contrast whose arms the experiment has at the scale: :data:`VERDICT_COLUMNS`.

    The primary contrasts of an experiment are one family that is adjusted, its exploratory ones
    another, and so are those of each round that was added when the earlier ones were known.
    ``values`` are those of :func:`refblend.study.runs.measures.run_measures`.
    """
    rows: list[dict[Any, Any]] = []
    for name, spec in experiments.items():
        stated = pd.DataFrame(_stated(values, spec, scale))
        if stated.empty:
            continue
        for _, alike in stated.groupby(["endpoint", "added"]):
            stated.loc[alike.index, "paired"] = is_paired(list(alike.runs))
        for _, family in stated.groupby([~stated.primary, "added"]):
            found = decide(list(family.runs), list(family.paired), spec.alpha)
            table = family.join(found.set_index(family.index))
            rows += table.assign(experiment=name, alpha=spec.alpha).to_dict("records")
    return pd.DataFrame(rows, columns=list(VERDICT_COLUMNS)).astype(VERDICT_COLUMNS)


def _stated(values: pd.DataFrame, spec: ExperimentSpec, scale: str) -> Iterator[dict[str, Any]]:
    """What an experiment states of its contrasts at a scale, in the order of its file, and runs."""
    seeds = spec.seeds_by_arm(scale)
    for contrast in spec.contrasts:
        endpoint, margin = spec.endpoint_of(contrast), spec.margin_of(contrast)
        table = wide(values, endpoint, seeds)
        row = {"contrast": contrast.name, "primary": contrast.primary, "endpoint": endpoint}
        row |= {"margin": margin, "added": contrast.round_at(scale)}
        for treated, reference in spec.pairs_of(contrast, scale):
            runs = Contrast(table[treated], table[reference], margin, ORDERED[endpoint])
            yield row | {"treated": treated, "reference": reference, "runs": runs}


def headline(study: Study, table: pd.DataFrame) -> pd.DataFrame:
    """The primary verdicts for readers, with both accuracies, paired as where they are declared."""
    rows, named = [], ["experiment", "treated", "reference", "endpoint"]
    paired = table.drop_duplicates(named).set_index(named)["paired"].to_dict()
    for row in table[table.primary].to_dict("records"):
        cells = {
            "experiment": row["experiment"],
            "treated − reference": pair_of(row),
            "verdict": f"**{row['verdict']}**",
            "n": row["n"],
            "by": label(row["endpoint"]),
            "difference": difference_of(row),
        }
        for measure, name in ACCURACIES.items():
            values = study.wide(row["experiment"], measure)
            runs = Contrast(values[row["treated"]], values[row["reference"]], row["margin"])
            pairs = paired.get((*(row[name] for name in named[:3]), measure), row["paired"])
            found = interval_of(*runs.runs(pairs), pairs, 1 - row["alpha"])
            cells[name] = plus_minus(*found, signed=True)
        rows.append(cells)
    return pd.DataFrame(rows)


def verdict_lines(table: pd.DataFrame) -> list[str]:
    """One line for each contrast: its verdict, its arms, the difference and how many runs."""
    return [
        f"**{row['verdict']}**: {pair_of(row)} {difference_of(row)}, n = {row['n']}, "
        f"{label(row['endpoint'])}"
        for row in table.to_dict("records")
    ]


def pair_of(row: Mapping[Any, Any]) -> str:
    """The two arms of a verdict."""
    return f"`{row['treated']}` − `{row['reference']}`"


def difference_of(row: Mapping[Any, Any]) -> str:
    """The difference of a verdict with half its interval."""
    return plus_minus(row["estimate"], row["low"], row["high"], row["n"], signed=True)


def decided_at(table: pd.DataFrame, measure: str) -> dict[tuple[str, str], str]:
    """The verdicts on declared contrasts by a measure, by their arms; a primary one counts."""
    rows = table[table.endpoint == measure].sort_values("primary", kind="stable")
    return dict(zip(zip(rows.treated, rows.reference, strict=True), rows.verdict, strict=True))
