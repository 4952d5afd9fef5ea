"""What makes a milestone fail after its report is written, and how a failed run is recorded."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from refblend.errors import StudyError
from refblend.files import write_json
from refblend.study.collect import Collected
from refblend.study.report import incident_totals

SIGNALLED = 128
"""Exit statuses from here on mean that a signal ended the process."""


def check_milestone(collected: Collected, tolerated: Mapping[str, int]) -> dict[str, Any]:
    """Check that every run finished and that incidents stay within what is tolerated.

    Args:
        collected: the runs of the milestone.
        tolerated: kind of incident → largest acceptable number over all runs.

    Returns:
        The record of the checks, all passed.

    Raises:
        StudyError: a check failed; all failures are named.
    """
    runs = collected.runs[collected.runs.status != "finished"]
    failures = [
        f"{row.arm} seed {row.seed} is {row.status}" + (f" ({row.reason})" if row.reason else "")
        for row in runs.itertuples()
    ]
    totals = incident_totals(collected)
    failures += [
        f"{totals[kind]} {kind} incidents (tolerated: {limit})"
        for kind, limit in tolerated.items()
        if totals.get(kind, 0) > limit
    ]
    if failures:
        raise StudyError(
            "; ".join(failures),
            "See the report and docs/runbooks/stability.md; the next call tries failed runs again.",
        )
    return {"runs": len(collected.runs), "incidents": totals, "tolerated": dict(tolerated)}


def record_failure(run: str | Path, status: int, log: str | Path | None = None) -> None:
    """Write ``summary.json`` of a run that ended with an error, and count the attempt.

    ``failures.jsonl`` keeps one line an attempt: the workflow sees that the number has changed and
    tries the run again at its next call.
    """
    run = Path(run)
    reason = _last_words(Path(log)) if log else ""
    record = {"status": "failed", "exit_status": status, "reason": reason}
    run.mkdir(parents=True, exist_ok=True)
    with open(run / "failures.jsonl", "a", encoding="utf-8") as stream:
        stream.write(json.dumps(record) + "\n")
    write_json(run / "summary.json", record)


def _last_words(log: Path, limit: int = 300) -> str:
    """The last line of a log that is not empty, shortened."""
    if not log.exists():
        return ""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return next((line.strip()[:limit] for line in reversed(lines) if line.strip()), "")
