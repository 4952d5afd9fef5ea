"""Numbers as readers see them: intervals, phrases, measures; tables as CSV, Markdown and LaTeX."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from refblend.files import atomic_path, write_text
from refblend.study.design.blocks import seed_ranges
from refblend.study.design.measures import label
from refblend.study.stats.statistics import Interval

Row = dict[str, Any]
"""A row of a summary."""

SHOWN = {
    "test_greedy": "greedy test acc.",
    "test_sampled": "sampled test acc.",
    "val_best": "val. acc., best",
    "val_auc": "val. acc., curve",
    "final_return": "return",
    "length_end": "length",
}
"""Measures of an experiment that learns, and their headings."""

DECIDING = ["p Holm (smallest)", "verdict", "interval excludes 0"]
"""Columns of a readable summary that would decide a second time what verdicts decide, in other
families."""

REPLACED = {"–": "--", "−": "$-$", "×": r"$\times$", "≤": r"$\le$", "≥": r"$\ge$", "₂": r"$_2$"}
"""Characters that classic LaTeX fonts lack."""


def interval_text(mean: float, low: float, high: float, signed: bool = False) -> str:
    """``0.512 [0.480, 0.544]``; no brackets without an interval, a dash without a value."""
    if pd.isna(mean):
        return "–"
    bounds = "" if pd.isna(low) else f" [{number(low, signed)}, {number(high, signed)}]"
    return number(mean, signed) + bounds


def number(value: float, signed: bool = False) -> str:
    """Three decimals below 10, one decimal below 1000, none above."""
    size = abs(value)
    digits = 3 if size < 10 else 1 if size < 1000 else 0
    return f"{value:+.{digits}f}" if signed else f"{value:.{digits}f}"


def readable_summary(summary: pd.DataFrame, endpoint: str) -> pd.DataFrame:
    """One row per arm of an experiment that learns.

    Columns: arm, n, mean and interval of :data:`SHOWN`, and for the endpoint the paired
    difference, the probability of improvement, Holm's p with the smallest possible one, the
    verdict, and whether the simultaneous interval excludes 0.
    """
    rows: dict[str, dict[str, Any]] = {}
    shown_measures = SHOWN if endpoint in SHOWN else {endpoint: label(endpoint)} | SHOWN
    for row in summary[summary.measure.isin(shown_measures)].to_dict("records"):
        cells = rows.setdefault(row["arm"], {"arm": row["arm"]})
        if row["measure"] == endpoint:
            cells |= _headline(row)
        cells[shown_measures[row["measure"]]] = cell(row, "mean")
    table = pd.DataFrame(list(rows.values()))
    if table.empty:
        return pd.DataFrame(columns=["arm", "n"])
    wanted = ["arm", "n", *shown_measures.values()]
    shown = [name for name in wanted if name in table]
    return table[[*shown, *[name for name in table if name not in shown]]]


def _headline(row: Row) -> dict[str, Any]:
    """What is said about one arm at the endpoint."""
    cells: dict[str, Any] = {"n": f"{row['n']} of {row['runs']}"}
    if pd.isna(row["baseline"]):
        compared = ("difference", "against", "P(improvement)", "p Holm (smallest)")
        said = {"verdict": "baseline", "interval excludes 0": "–", "note": row["note"]}
        return cells | dict.fromkeys(compared, "–") | said
    excludes = row["interval_excludes_0"]
    return cells | {
        "difference": change(row),
        "against": row["baseline"],
        "P(improvement)": probability(row),
        "p Holm (smallest)": f"{row['p_holm']:.3g} ({row['smallest_p_holm']:.3g})",
        "verdict": row["verdict"],
        "interval excludes 0": "–" if pd.isna(excludes) else "yes" if excludes else "no",
        "note": row["note"],
    }


def cell(row: Row, name: str, prefix: str = "", signed: bool = False) -> str:
    """A column with its interval, the columns ``<prefix>low`` and ``<prefix>high``."""
    return interval_text(row[name], row[f"{prefix}low"], row[f"{prefix}high"], signed)


def own(row: Row) -> str:
    """The arm's mean with its interval and n."""
    return f"{cell(row, 'mean')} (n = {row['n']})"


def difference(row: Row) -> str:
    """The paired difference with its interval and n; says so where there is none."""
    if pd.isna(row["diff"]):
        return "no pair"
    return f"{change(row)} ({row['pairs']} pair{'s' if row['pairs'] != 1 else ''})"


def change(row: Row) -> str:
    """The paired difference with its interval."""
    return cell(row, "diff", "diff_", signed=True)


def estimate(row: Row) -> str:
    """The difference of a verdict with its interval."""
    return cell(row, "estimate", signed=True)


def probability(row: Row) -> str:
    """Probability of improvement with its interval."""
    return cell(row, "prob_improvement", "prob_")


def interval(found: Interval, signed: bool = False) -> str:
    """An interval with its estimate."""
    return interval_text(found.estimate, found.low, found.high, signed)


def counts(incidents: Mapping[str, int]) -> str:
    """``overlength 0, oom 0, …``."""
    return ", ".join(f"{name.replace('_', '-')} {count}" for name, count in incidents.items())


def names(arms: Iterable[str]) -> str:
    """Arms as code, separated by commas; "none" for none."""
    return ", ".join(f"`{arm}`" for arm in arms) or "none"


def words(name: str) -> str:
    """A name without underscores."""
    return name.replace("_", " ")


def listed(numbers: Iterable[int]) -> str:
    """Different numbers, ascending: ``4, 16 or 50``."""
    texts = [str(number) for number in sorted(set(numbers))]
    return " or ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts)


def seed_text(seeds: Mapping[str, Sequence[int]]) -> str:
    """Seeds of arms, those that most arms have first: ``11 to 26 (`off`: 11 to 60)``."""
    arms: dict[str, list[str]] = {}
    for arm, own in seeds.items():
        arms.setdefault(seed_ranges(own), []).append(f"`{arm}`")
    usual, *others = sorted(arms, key=lambda text: len(arms[text]), reverse=True)
    special = "; ".join(f"{', '.join(arms[text])}: {text}" for text in others)
    return f"{usual} ({special})" if special else usual


def write_csv(frame: pd.DataFrame, path: str | Path) -> None:
    """Write a CSV file with six significant digits, atomically."""
    with atomic_path(path) as temporary:
        frame.to_csv(temporary, index=False, float_format="%.6g")


def write_latex(frame: pd.DataFrame, path: str | Path) -> None:
    """Write a table with the texts that Markdown shows."""
    write_text(path, to_latex(*_shown(frame)))


def to_markdown(frame: pd.DataFrame) -> str:
    """A Markdown table; numbers with up to four significant digits, missing values as a dash."""
    if frame.empty:
        return "No data."
    shown, right = _shown(frame)
    shown = shown.map(lambda text: text.replace("|", "\\|"))  # a pipe would end the cell
    sides = ["right" if flag else "left" for flag in right]
    return str(shown.to_markdown(index=False, disable_numparse=True, colalign=sides))


def to_latex(shown: pd.DataFrame, right: Sequence[bool]) -> str:
    r"""A ``tabular`` with ``\toprule``, ``\midrule`` and ``\bottomrule``; needs ``booktabs`` only.

    Of texts, escaped; ``right`` says of every column whether it is aligned to the right.
    """
    styler = shown.style.hide(axis="index").format(escape="latex")
    styler = styler.format_index(escape="latex", axis=1)
    columns = "".join("r" if flag else "l" for flag in right)
    text = styler.to_latex(hrules=True, column_format=columns)
    for character, replacement in REPLACED.items():
        text = text.replace(character, replacement)
    return str(text)


def _shown(frame: pd.DataFrame) -> tuple[pd.DataFrame, list[bool]]:
    """The texts of a table, and which columns hold numbers.

    Columns that nothing fills stay in the CSV only; a table without rows shows all its columns.
    """
    empty = frame.isna() | frame.eq("")
    kept = frame if frame.empty else frame.loc[:, ~empty.all()]
    shown = pd.DataFrame({name: kept[name].map(_cell).astype("str") for name in kept})
    shown.columns = pd.Index([words(str(name)) for name in kept.columns])
    return shown, [pd.api.types.is_numeric_dtype(dtype) for dtype in kept.dtypes]


def _cell(value: Any) -> str:
    """One cell on one line."""
    if value is None or pd.isna(value):
        return "–"
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, float | np.floating):
        number = float(value)
        return f"{number:.0f}" if abs(number) >= 1000 else f"{number:.4g}"
    return str(value).replace("\n", " ")
