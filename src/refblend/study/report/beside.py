"""An experiment's verdicts beside those of another scale: what carries over, and what does not.

The experiment names the scale in its file (``beside``). Each of its contrasts has at most one
counterpart there: the same two arms by the same endpoint; if several experiments have it, the first
that calls it primary, else the first. Where none declares it, the arms' runs there are compared all
the same (:mod:`.counterparts`), which is exploratory. A finding *carries over* where both scales
decide and say the same, *does not* where both decide and differ, and is *undecided* where either
is: that neither supports nor contradicts it.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from refblend.study.design.measures import label
from refblend.study.design.spec import load_experiments
from refblend.study.report.counterparts import PER_SEED, Counterparts
from refblend.study.report.readable import estimate
from refblend.study.report.registry import Inputs
from refblend.study.report.verdicts import VERDICT_COLUMNS, read_verdicts

CARRIES, DIFFERS, UNDECIDED, ALONE = "carries over", "does not", "undecided", "no counterpart"
SAME = ["treated", "reference", "endpoint"]
"""What a contrast and its counterpart have in common."""
THERE = {"experiment": "str", "primary": "boolean", "n": "Int64", "verdict": "str"}
THERE |= dict.fromkeys(("estimate", "low", "high", "margin", "detectable"), "float64")
THERE |= {"declared": "boolean"}
"""What is told of a counterpart, as ``there_<column>``."""
COLUMNS = {"scale": "str"} | VERDICT_COLUMNS | {"there_scale": "str"}
COLUMNS |= {f"there_{name}": dtype for name, dtype in THERE.items()}
COLUMNS |= {"finding": "str", "open_at": "str"}
"""The experiment's verdicts, their counterparts, which of the four findings, and where it is
undecided: a scale, or ``both``."""

SHOWN = [
    "contrast", "treated − reference", "by", "difference", "verdict", "difference there",
    "verdict there", "the finding",
]  # fmt: skip
"""Columns for readers; verdicts name their experiments."""


@dataclass(frozen=True)
class Beside:
    """An experiment at its scale, and the scale that it is set beside."""

    experiment: str
    title: str
    scale: str
    there: str
    path: Path
    """Verdicts of the one of the two scales whose report this is not; they need not be there."""


def set_beside(inputs: Inputs) -> list[Beside]:
    """The report's experiments beside other scales, and those of other scales beside this one."""
    found = []
    for name, spec in load_experiments(inputs.params).items():
        if spec.beside is None:
            continue
        own = name in inputs.study and inputs.scale in spec.seeds
        scales = [inputs.scale] if own else spec.seeds if spec.beside == inputs.scale else []
        for scale in scales:
            other = spec.beside if own else scale
            path = inputs.results.parent / other / "verdicts.csv"
            found.append(Beside(name, spec.title, scale, spec.beside, path))
    return found


def beside_files(inputs: Inputs) -> list[Path]:
    """The other scales' verdicts that are there, and the runs that they are set beside."""
    found = []
    for each in set_beside(inputs):
        runs = [] if each.there == inputs.scale else [each.path.parent / PER_SEED]
        found += [path for path in (each.path, *runs) if path.exists()]
    return found


def beside_table(inputs: Inputs, here: pd.DataFrame) -> pd.DataFrame:
    """One row per contrast of :func:`set_beside` whose verdicts are there: :data:`COLUMNS`.

    ``here`` are the verdicts of the report's own scale.
    """
    rows: list[dict[str, Any]] = []
    for each in set_beside(inputs):
        other = read_verdicts(each.path)
        if len(other):
            own, there = (here, other) if each.scale == inputs.scale else (other, here)
            runs = Counterparts(each.there, inputs.results.parent / each.there, inputs.params)
            rows += compared(own[own.experiment == each.experiment], there, each, runs.of)
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(COLUMNS)


def compared(
    own: pd.DataFrame,
    there: pd.DataFrame,
    beside: Beside,
    computed: Callable[[Mapping[Any, Any]], dict[str, Any] | None] = lambda row: None,
) -> list[dict[str, Any]]:
    """Every verdict of an experiment with its counterpart, if any, and what comes of it.

    ``computed`` finds the counterpart of a row that no experiment there declares.
    """
    # Stable: among equals the first in the table stays the first.
    first = there.sort_values("primary", ascending=False, kind="stable").drop_duplicates(SAME)
    counterparts: dict[tuple[Any, ...], dict[Any, Any]] = {
        tuple(row[key] for key in SAME): row | {"declared": True}
        for row in first.to_dict("records")
    }
    rows = []
    for row in own.to_dict("records"):
        counterpart = counterparts.get(tuple(row[key] for key in SAME)) or computed(row)
        told = {f"there_{name}": counterpart[name] for name in THERE} if counterpart else {}
        finding, open_at = finding_of(row, counterpart, beside)
        more = {"finding": finding, "open_at": open_at, "there_scale": beside.there}
        rows.append({"scale": beside.scale} | row | told | more)
    return rows


def finding_of(
    row: dict[Any, Any], counterpart: dict[Any, Any] | None, beside: Beside
) -> tuple[str, str | None]:
    """What two verdicts say together, and where that is undecided."""
    if counterpart is None:
        return ALONE, None
    verdicts = {beside.scale: row["verdict"], beside.there: counterpart["verdict"]}
    undecided = [scale for scale, verdict in verdicts.items() if verdict == UNDECIDED]
    if undecided:
        return UNDECIDED, "both" if len(undecided) == 2 else undecided[0]
    return (CARRIES if len(set(verdicts.values())) == 1 else DIFFERS), None


def readable_beside(table: pd.DataFrame) -> pd.DataFrame:
    """:func:`beside_table` for readers: both differences with their intervals, and the finding."""
    rows = [_readable(row) for row in table.to_dict("records")]
    return pd.DataFrame(rows, columns=SHOWN).astype("str")


def _readable(row: dict[Any, Any]) -> dict[str, str]:
    """A row for readers: the columns :data:`SHOWN`."""
    there, undecided = counterpart_of(row), row["finding"] == UNDECIDED
    cells = [
        row["contrast"] + _exploratory(row),
        f"{row['treated']} − {row['reference']} ",
        label(row["endpoint"]),
        estimate(row),
        f"{row['verdict']} ({row['experiment']})",
        estimate(there) if there else "–",
        f"{there['verdict']} ({there['experiment']}{_exploratory(there)}{_undeclared(there)})"
        if there
        else "–",
        row["finding"] + (f" ({row['open_at']})" if undecided else ""),
    ]
    return dict(zip(SHOWN, cells, strict=True))


def counterpart_of(row: dict[Any, Any]) -> dict[str, Any] | None:
    """The counterpart in a row of :func:`beside_table`: :data:`THERE` and its ``scale``."""
    if row["finding"] == ALONE:
        return None
    return {name: row[f"there_{name}"] for name in ("scale", *THERE)}


def _exploratory(row: dict[Any, Any]) -> str:
    return "" if row["primary"] else ", exploratory"


def _undeclared(there: dict[Any, Any]) -> str:
    return "" if there["declared"] else ", not declared there"


def beside_facts(inputs: Inputs, table: pd.DataFrame) -> list[dict[str, Any]]:
    """What the text says of each of :func:`set_beside`: how many contrasts carry over, do not, are
    undecided and where, how many have a counterpart, and how many of those are ``undeclared``."""
    facts = []
    for each in set_beside(inputs):
        part = table[(table.experiment == each.experiment) & (table.scale == each.scale)]
        counts, at = Counter(part.finding), Counter(part.open_at.dropna())
        facts.append(
            {
                "experiment": each.experiment,
                "title": each.title,
                "scale": each.scale,
                "there": each.there,
                "file": "/".join(("results", *each.path.parts[-2:])),
                "contrasts": len(part),
                "compared": len(part) - counts[ALONE],
                "undeclared": int((~part.there_declared.fillna(True).astype(bool)).sum()),
                "counts": {name: counts[name] for name in (CARRIES, DIFFERS, UNDECIDED)},
                "open_at": {name: at[name] for name in (each.scale, each.there, "both")},
            }
        )
    return facts
