"""Standard output and error that outlive their reader.

In ``refblend train … | head`` the reader of a pipe ends first, and Ctrl-C ends ``tee`` together
with the run. Whoever writes then gets an error, or a signal, in the middle of a step. Here the
text that nobody reads is dropped instead, so that a closed pipe neither ends nor fails a run.
"""

import io
import logging
import os
import sys
from typing import Any, TextIO


class _Outlasting(io.FileIO):
    """A descriptor that is pointed to the null device once its reader has gone."""

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
