"""Compare runs trained anew with the archive of a study: are their numbers the committed ones?

    snakemake runs/cpu/oracle/101.tested.json --cores 2 --config scale=cpu
    python scripts/compare_runs.py results/cpu runs/cpu

Every metric of every step, the test and every recorded response of the runs below the second
folder are compared with the first's ``runs.parquet`` and ``responses.parquet``, digit by digit;
times, memory and energy are left out, because they belong to the machine. Ends with status 1 when a
number differs, is missing or is in one of them only.
"""

from pathlib import Path
from typing import Annotated

import pandas as pd
import typer
from rich.console import Console
from rich.table import Table

from refblend.errors import RefblendError
from refblend.study.runs.collect import RUN, STEP, Collected, collect, read_collected
from refblend.trainer.tracking import TIMING_PREFIXES


def runs_below(folder: Path) -> Collected:
    """The frames of every run ``<arm>/seed_<n>`` below a folder; BadParameter if it has none."""
    found = [path.parent for path in sorted(folder.glob("*/seed_*/metrics.jsonl"))]
    names = [(path.parent.name, path.name.removeprefix("seed_")) for path in found]
    if not names:
        raise typer.BadParameter(f"no run below {folder}; expected {folder}/<arm>/seed_<n>")
    grid = pd.DataFrame(names, columns=RUN).assign(overrides="")
    return collect(grid, folder.name, folder.parent)


def compare_values(ours: pd.DataFrame, theirs: pd.DataFrame) -> pd.DataFrame:
    """Both values of each metric of runs (arm, seed, step, a column per metric), but for times.

    Columns: arm, seed, step, metric, ``archived`` and ``anew`` (NaN where one has none), ``equal``.
    """
    sides = [
        frame.melt(STEP, var_name="metric", value_name=name).dropna()
        for frame, name in ((ours, "archived"), (theirs, "anew"))
    ]
    both = sides[0].merge(sides[1], on=[*STEP, "metric"], how="outer")
    both = both[~both["metric"].str.startswith(TIMING_PREFIXES)]
    return both.assign(equal=both["archived"] == both["anew"])


def main(
    archive: Annotated[Path, typer.Argument(help="Results with an archive, e.g. results/cpu.")],
    runs: Annotated[Path, typer.Argument(help="Folder of the runs' arms, e.g. runs/cpu.")],
) -> None:
    """Compare runs that were trained anew with a study's archive, number by number."""
    try:
        committed = read_collected(archive)
    except RefblendError as error:
        raise typer.BadParameter(str(error)) from None
    anew = runs_below(runs)
    table = Table("run", "status", "values", "equal", "responses", "first difference")
    passed = True
    for run in anew.runs.itertuples():
        ours, theirs = (
            [f[(f.arm == run.arm) & (f.seed == run.seed)] for f in (of.metrics, of.responses)]
            for of in (committed, anew)
        )
        values = compare_values(ours[0], theirs[0])
        texts = ours[1].reset_index(drop=True).equals(theirs[1].reset_index(drop=True))
        first = ""
        if not values["equal"].all():
            row = values[~values["equal"]].iloc[0]
            first = f"{row.metric}, step {row.step}: {row.archived} archived, {row.anew} anew"
        sizes = (f"{len(values):,}", f"{values['equal'].sum():,}")
        responses = f"{len(theirs[1]):,} {'equal' if texts else 'that differ'}"
        table.add_row(f"{run.arm}, seed {run.seed}", run.status, *sizes, responses, first)
        passed &= run.status == "finished" and not first and texts
    Console().print(table)
    if not passed:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
