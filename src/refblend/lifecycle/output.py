"""Standard output and error that outlive their reader.

Where a pipe is closed (``refblend train … | head``) the text is dropped, and the run goes on.
"""

import io
import os
import sys
from typing import Any


class _Outlasting(io.FileIO):
    """A descriptor that points to the null device once its reader is gone."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self.fileno())
            os.close(null)
            return len(data)


def outlast_readers() -> None:
    """Make this process's standard output and error survive the end of a pipe."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # else closed, or replaced by a test
            settings = {
                name: getattr(stream, name)
                for name in ("encoding", "errors", "line_buffering", "write_through")
            }
            file = _Outlasting(stream.detach().fileno(), "w", closefd=False)
            # In place: log handlers that were set up before, Snakemake's too, keep the stream.
            io.TextIOWrapper.__init__(stream, io.BufferedWriter(file), **settings)
