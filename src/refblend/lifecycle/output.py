"""Standard output and error that outlive their reader.

Where a pipe is closed (``refblend train … | head``) the text is dropped, and the run goes on.
"""

import io
import logging
import os
import sys
from typing import Any, TextIO


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
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        try:
            descriptor = stream.fileno()
        except (AttributeError, OSError):  # closed, or replaced by a test
            continue
        stream.flush()
        lasting = io.TextIOWrapper(
            io.BufferedWriter(_Outlasting(descriptor, "w", closefd=False)),
            encoding=stream.encoding,
            errors=stream.errors,
            line_buffering=stream.line_buffering,
            write_through=stream.write_through,
        )
        setattr(sys, name, lasting)
        for handler in _handlers():
            if handler.stream is stream:
                handler.setStream(lasting)


def _handlers() -> "list[logging.StreamHandler[TextIO]]":
    """Handlers that were set up before, Snakemake's among them."""
    loggers = [logging.root, *logging.root.manager.loggerDict.values()]
    found = [h for each in loggers if isinstance(each, logging.Logger) for h in each.handlers]
    return [handler for handler in found if isinstance(handler, logging.StreamHandler)]
