"""Progress of long loops: a live bar on a terminal, a line every few seconds in a log."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

LINE_SECONDS = 10.0


@contextlib.contextmanager
def step_progress(label: str, first: int, last: int) -> Iterator[Callable[..., None]]:
    """Yield ``show(done, note="")``; ``done`` counts from ``first`` to ``last``."""
    console = Console(stderr=True)
    if console.is_terminal:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
        )
        with Progress(*columns, console=console) as progress:
            task = progress.add_task(label, total=last, completed=first, note="")
            yield lambda done, note="": progress.update(task, completed=done, note=note)
        return

    shown = time.monotonic()

    def show(done: int, note: str = "") -> None:
        nonlocal shown
        if done >= last or time.monotonic() - shown >= LINE_SECONDS:
            shown = time.monotonic()
            print(f"{label}: {done}/{last}  {note}", file=sys.stderr, flush=True)

    yield show
