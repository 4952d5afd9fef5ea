"""``make chaos``: many injections, a few at a time; the table of outcomes."""

import shutil
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from common import record, show, work_tree
from rich.console import Console
from rich.progress import Progress

from chaos.plan import (
    DIRECTORY,
    SHORT,
    SHORT_DIRECTORY,
    Injection,
    directory_injections,
    injections,
)
from chaos.runs import ROOT, Run
from chaos.strike import Result, strike

SHARED_MEMORY = Path("/dev/shm")


def main(
    count: Annotated[int, typer.Option(help="Number of injections.", min=1)] = 108,
    directories: Annotated[int, typer.Option(help="Cases of a run's directory.", min=0)] = 16,
    lanes: Annotated[int, typer.Option(help="Runs at a time.", min=1)] = 2,
    seed: Annotated[int, typer.Option(help="Of order and moments.")] = 0,
    only: Annotated[str, typer.Option(help="Part of a target's name; no file.")] = "",
    short: Annotated[
        bool, typer.Option(help="Three fixed injections and two directory cases; no file.")
    ] = False,
) -> None:
    """Inject faults into runs at scale smoke; exit status 1 if one of them failed."""
    folder = Path("build/chaos").resolve()
    shutil.rmtree(folder, ignore_errors=True)
    before = set(SHARED_MEMORY.iterdir())
    console = Console()
    undisturbed = Run(folder / "undisturbed" / "seed_1")
    ended = undisturbed.train()
    if ended.status:
        console.print(ended.output, markup=False)
        raise SystemExit("the undisturbed run failed")
    expected = undisturbed.result()
    every = [*injections(count, seed), *directory_injections(directories, seed)]
    if short:
        one_each = directory_injections(len(DIRECTORY), seed)
        every = [*SHORT, *(case for case in one_each if case.target in SHORT_DIRECTORY)]
    cases = [case for case in every if only in case.target]
    commit = work_tree()["commit"]
    with Progress(console=console) as progress, ThreadPoolExecutor(lanes) as pool:
        task = progress.add_task("injections", total=len(cases))
        rows = []
        for row in pool.map(lambda case: _outcome(case, folder, expected), cases):
            rows.append(row | {"commit": commit})
            progress.advance(task)
            progress.console.print(
                f"{row['number']} {row['target']} {row['signal']} after line {row['after_lines']}"
                f" + {row['delay_s']} s: {row['outcome']}. {row.get('message', '')}",
                markup=False,
                highlight=False,
            )
    left = sorted(map(str, set(SHARED_MEMORY.iterdir()) - before))
    good = sum(row["outcome"] != "failed" for row in rows)
    counts = Counter((row["target"], row["signal"], row["outcome"]) for row in rows)
    counted = [[*key, count] for key, count in sorted(counts.items())]
    show("outcomes", ["target or case", "signal", "outcome", "number"], counted)
    console.print(f"undisturbed: {ended.seconds:.0f} s; left in shared memory: {left or 'nothing'}")
    if not short and not only:
        figures = {"injections": rows, "left_in_shared_memory": left}
        record("chaos", "faults survived", good, len(rows), figures)
    sys.exit(good < len(rows) or bool(left))


def _outcome(case: Injection, folder: Path, expected: Result) -> dict[str, Any]:
    """The row of a case; the run directory of a failed one stays."""
    directory = folder / f"{case.number}" / "seed_1"
    row: dict[str, Any] = asdict(case)
    try:
        row |= strike(case, directory, expected)
    except AssertionError as error:
        return row | {"outcome": "failed", "message": str(error)}
    shutil.rmtree(directory.parent)
    return row


if __name__ == "__main__":
    assert Path.cwd() == ROOT, "call it from the repository's root"
    typer.run(main)
