"""Compare the tables of two studies: did another machine, or another commit, find the same?

    git worktree add ../committed && make study
    python scripts/compare_results.py ../committed/results/cpu results/cpu

Every CSV below both folders is compared cell by cell. Times, memory, energy and where a run came
from are left out, because they belong to the machine. Ends with status 1 when a table is missing,
has another shape, or has a cell that differs by more than the tolerance.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import typer
from rich.console import Console
from rich.table import Column, Table

COSTS = re.compile(
    r"seconds|_s$|\(s\)|time|hours|energy|co2e|memory|throughput|tokens_a_second"
    r"|^step_"
)
"""Columns that say what a run cost, and measures that do where they stand in rows."""
ORIGIN = {"commit", "dirty", "hardware", "models", "resumed"}
"""Columns that say where a run came from; warm starts differ between machines by rounding."""
COST_TABLES = re.compile(r"^(resources|costs\w*|\w+_costs)$")
"""Tables of nothing else; their measures stand in rows."""


@dataclass(frozen=True)
class Comparison:
    """One table in both folders, named by its path below them."""

    name: str
    cells: int = 0
    equal: int = 0
    """Cells that are the same, digit by digit."""
    close: int = 0
    """Cells within the tolerance, equal ones included."""
    largest: float = np.nan
    """Relative difference of the worst number; inf for other text, nan for none."""
    where: str = ""
    """Its column and row, or why the tables could not be compared."""


def without_costs(table: pd.DataFrame) -> pd.DataFrame:
    """A table without columns and rows that belong to the machine; rows keep their numbers."""
    kept = [name for name in table.columns if not COSTS.search(name) and name not in ORIGIN]
    rows = table[~table["measure"].str.contains(COSTS)] if "measure" in table.columns else table
    return rows[kept]


def compare_tables(name: str, ours: Path, theirs: Path, tolerance: float) -> Comparison:
    """Compare two files cell by cell; |a − b| ÷ max(|a|, |b|) ≤ ``tolerance`` counts as close."""
    for path in (ours, theirs):
        if not path.exists():
            return Comparison(name, cells=1, where=f"{path} does not exist")
    tables = [pd.read_csv(path, dtype=str, keep_default_na=False) for path in (ours, theirs)]
    a, b = map(without_costs, tables)
    if a.shape != b.shape or list(a.columns) != list(b.columns):
        return Comparison(name, cells=1, where=f"shapes {a.shape} and {b.shape}, or other columns")
    same = a.to_numpy() == b.to_numpy()
    x, y = (t.apply(pd.to_numeric, errors="coerce").to_numpy(dtype=float) for t in (a, b))
    size = np.maximum(np.abs(x), np.abs(y))
    gap = np.divide(np.abs(x - y), size, out=np.zeros_like(size), where=size > 0)
    gap = np.where(same, 0.0, np.where(np.isnan(x) | np.isnan(y), np.inf, gap))
    if not gap.size:
        return Comparison(name)
    row, column = np.unravel_index(int(gap.argmax()), gap.shape)
    where = f"{a.columns[column]}, row {a.index[row] + 1}" if gap.max() else ""
    return Comparison(
        name, gap.size, int(same.sum()), int((gap <= tolerance).sum()), float(gap.max()), where
    )


def main(
    first: Annotated[Path, typer.Argument(help="A folder of results, e.g. results/cpu.")],
    second: Annotated[Path, typer.Argument(help="Another one.")],
    tolerance: Annotated[float, typer.Option(help="Relative difference that passes.")] = 1e-4,
) -> None:
    """Compare the tables of two studies but for what belongs to the machine."""
    names = {
        path.relative_to(folder).as_posix()
        for folder in (first, second)
        for path in folder.rglob("*.csv")
        if not COST_TABLES.match(path.stem)
    }
    if not names:
        raise typer.BadParameter(f"no table below {first} and {second}")
    found = [compare_tables(n, first / n, second / n, tolerance) for n in sorted(names)]
    columns = ("cells", "equal", f"within {tolerance:g}", "largest difference", "where")
    table = Table(Column("table", no_wrap=True), *columns)
    for of in found:
        sizes = (of.cells, of.equal, of.close)
        table.add_row(of.name, *(f"{n:,}" for n in sizes), f"{of.largest:.2g}", of.where)
    sums = [sum(getattr(of, key) for of in found) for key in ("cells", "equal", "close")]
    table.add_row("all", *(f"{n:,}" for n in sums))
    Console().print(table)
    if sums[2] < sums[0]:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
