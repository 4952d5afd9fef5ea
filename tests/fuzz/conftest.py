"""Counts the fuzz cases of each target; prints the table and writes it as JSON when asked to.

``REFBLEND_FUZZ_CASES`` is the number of cases over all targets, ``REFBLEND_FUZZ_JSON`` the file.
"""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from fuzz_support import TALLY

from refblend.provenance import git_state

START = time.monotonic()
TARGETS = {
    "configuration": "configuration files and overrides",
    "rows": "parquet and jsonl rows, GSM8K",
    "scoring": "judge templates, corpora, responses",
    "grid": "experiment files, grid.tsv",
    "checkpoints": "checkpoint directories",
    "runs": "run directories: identity, summary, provenance, rollouts",
    "directories": "calls for another run, other code, kills at file operations",
    "metrics": "metrics.jsonl",
    "models": "model directories",
}


@pytest.fixture(scope="module", autouse=True)
def no_fsync() -> Iterator[None]:
    """What is fuzzed is what stands in files, not that it survives a loss of power."""
    with mock.patch("os.fsync"):
        yield


def table() -> list[dict[str, Any]]:
    """One row a target."""
    names = ("cases", "passed", "accepted", "refused", "command_line")
    return [
        {"target": target, "inputs": inputs, **{n: TALLY.get(target, {}).get(n, 0) for n in names}}
        for target, inputs in TARGETS.items()
    ]


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Write the JSON record."""
    out = os.environ.get("REFBLEND_FUZZ_JSON")
    if not out or not TALLY:
        return
    rows = table()
    record = {
        "headline": {
            "value": sum(row["passed"] for row in rows),
            "goal": sum(row["cases"] for row in rows),
            "what": "hostile inputs that were accepted and read correctly, or refused with file, "
            "reason and remedy",
        },
        "failed_tests": session.testsfailed,
        "seconds": round(time.monotonic() - START, 1),
        "targets": rows,
        "git": git_state(Path(__file__).parent),
    }
    Path(out).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the table as Markdown."""
    if not TALLY:
        return
    rows = table()
    terminalreporter.section("fuzz")
    write = terminalreporter.write_line
    write("| target | inputs | cases | accepted | refused | of these by the command line |")
    write("|---|---|---:|---:|---:|---:|")
    numbers = ("cases", "accepted", "refused", "command_line")
    for row in [
        *rows,
        {"target": "all", "inputs": ""} | {n: sum(r[n] for r in rows) for n in numbers},
    ]:
        write(
            " | ".join(
                ["", row["target"], row["inputs"], *(f"{row[n]:,}" for n in numbers), ""]
            ).strip()
        )
