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
    """The frames of every run ``<arm>/seed_<n>`` below a folder."""
    found = [path.parent for path in sorted(folder.glob("*/seed_*/metrics.jsonl"))]
    names = [(path.parent.name, path.name.removeprefix("seed_")) for path in found]
    grid = pd.DataFrame(names, columns=RUN).assign(overrides="")
    return collect(grid, folder.name, folder.parent)


def compare_values(ours: pd.DataFrame, theirs: pd.DataFrame) -> pd.DataFrame:
    """Both values of each metric; NaN where one side has none.

    Args:
        ours, theirs: metrics of runs, one row per (arm, seed, step), one column per metric.

    Returns:
        Columns ``arm``, ``seed``, ``step``, ``metric``, ``archived``, ``anew``, ``equal``.
    """
    long = [f.melt(STEP, var_name="metric").dropna() for f in (ours, theirs)]
    sides = [f[~f["metric"].str.startswith(TIMING_PREFIXES)] for f in long]
    both = sides[0].merge(
        sides[1], on=[*STEP, "metric"], how="outer", suffixes=("_archived", "_anew")
    )
    both = both.rename(columns={"value_archived": "archived", "value_anew": "anew"})
    return both.assign(equal=both["archived"] == both["anew"])


def equal_responses(ours: pd.DataFrame, theirs: pd.DataFrame) -> bool:
    """Whether the recorded responses of a run are the same, in the same order."""
    return ours.reset_index(drop=True).equals(theirs.reset_index(drop=True))


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
    if anew.runs.empty:
        raise typer.BadParameter(f"no run below {runs}; expected {runs}/<arm>/seed_<n>")
    table = Table("run", "status", "values", "equal", "responses", "first difference")
    passed = True
    for run in anew.runs.itertuples():
        frames = [
            frame[(frame["arm"] == run.arm) & (frame["seed"] == run.seed)]
            for of in (committed, anew)
            for frame in (of.metrics, of.responses)
        ]
        values = compare_values(frames[0], frames[2])
        texts = equal_responses(frames[1], frames[3])
        first = ""
        if not values["equal"].all():
            row = values[~values["equal"]].iloc[0]
            first = f"{row.metric}, step {row.step}: {row.archived} archived, {row.anew} anew"
        sizes = (f"{len(values):,}", f"{values['equal'].sum():,}")
        responses = f"{len(frames[3]):,} {'equal' if texts else 'that differ'}"
        table.add_row(f"{run.arm}, seed {run.seed}", run.status, *sizes, responses, first)
        passed &= run.status == "finished" and not first and texts
    Console().print(table)
    if not passed:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
