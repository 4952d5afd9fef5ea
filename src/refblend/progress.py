"""Progress of long loops: a line every few seconds on standard error."""

import sys
import time
from collections.abc import Callable

LINE_SECONDS = 10.0


def step_progress(label: str, last: int) -> Callable[..., None]:
    """``show(done, note="")``, to be called whenever more of the ``last`` steps are done."""
    shown = time.monotonic()

    def show(done: int, note: str = "") -> None:
        nonlocal shown
        if done >= last or time.monotonic() - shown >= LINE_SECONDS:
            shown = time.monotonic()
            print(f"{label}: {done}/{last}  {note}", file=sys.stderr, flush=True)

    return show
