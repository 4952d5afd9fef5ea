"""Numbers as readers see them, and tables as CSV and Markdown."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from refblend.files import atomic_path


def number(value: float, signed: bool = False) -> str:
    """Three decimals below 10, one decimal below 1000, none above; a dash for a missing value."""
    if pd.isna(value):
        return "–"
    size = abs(value)
    digits = 3 if size < 10 else 1 if size < 1000 else 0
    return f"{value:+.{digits}f}" if signed else f"{value:.{digits}f}"


def plus_minus(estimate: float, low: float, high: float, n: int, signed: bool = False) -> str:
    """``0.512 ±0.032``, a mean and half its interval, from three values on; a dash without any."""
    half = (high - low) / 2 if n > 2 else np.nan
    return number(estimate, signed) + ("" if pd.isna(half) else f" ±{number(half)}")


def words(name: str) -> str:
    """A name without underscores."""
    return name.replace("_", " ")


def write_csv(frame: pd.DataFrame, path: str | Path) -> None:
    """Write a CSV file with six significant digits, atomically."""
    with atomic_path(path) as temporary:
        frame.to_csv(temporary, index=False, float_format="%.6g")


def to_markdown(frame: pd.DataFrame) -> str:
    """A Markdown table; numbers with up to four significant digits, missing values as a dash.

    Columns that nothing fills are left out.
    """
    if frame.empty:
        return "No data."
    kept = frame.loc[:, ~(frame.isna() | frame.eq("")).all()]
    numeric = [pd.api.types.is_numeric_dtype(dtype) for dtype in kept.dtypes]
    lines = [
        [words(str(name)) for name in kept],
        ["--:" if flag else ":--" for flag in numeric],
        *(map(_cell, row) for row in kept.itertuples(index=False)),
    ]
    return "\n".join(f"|{'|'.join(cells)}|" for cells in lines)


def _cell(value: Any) -> str:
    """One cell on one line; a pipe would end it."""
    if value is None or pd.isna(value):
        return "–"
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, float | np.floating):
        value = float(value)
        return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return str(value).replace("\n", " ").replace("|", "\\|")
