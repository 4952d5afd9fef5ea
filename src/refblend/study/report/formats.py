"""One table, three files: CSV for machines, Markdown in reports, LaTeX (booktabs) for papers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from refblend.files import atomic_path, write_text

REPLACED = {"–": "--", "−": "$-$", "×": r"$\times$", "≤": r"$\le$", "≥": r"$\ge$", "₂": r"$_2$"}
"""Characters that classic LaTeX fonts lack."""


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

    Args:
        shown: texts; everything that LaTeX would read as markup is escaped.
        right: of every column, whether it is aligned to the right.
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
    kept = frame if frame.empty else frame.dropna(axis="columns", how="all")
    shown = pd.DataFrame({name: kept[name].map(_cell).astype("str") for name in kept})
    shown.columns = pd.Index([str(name).replace("_", " ") for name in kept.columns])
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
