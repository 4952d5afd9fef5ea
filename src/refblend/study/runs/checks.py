"""The checks that can fail a milestone after its report, and the record of a failed run."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from refblend.errors import StudyError
from refblend.files import read_object, write_json
from refblend.identity import read_identity
from refblend.study.runs.collect import Collected
from refblend.study.runs.incidents import incident_totals

SIGNALLED = 128
"""Exit statuses from this value on mean that a signal ended the process."""


def check_milestone(collected: Collected, tolerated: Mapping[str, int]) -> dict[str, Any]:
    """The record of the checks that every run finished and that incidents are tolerable.

    ``tolerated`` has the largest acceptable number of each kind of incident over all runs.

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
            "See the report and docs/how-to/stability.md; the next call tries failed runs again.",
        )
    return {"runs": len(collected.runs), "incidents": totals, "tolerated": dict(tolerated)}


def record_failure(
    runs: str | Path | Sequence[str | Path], status: int, log: str | Path | None = None
) -> list[Path]:
    """Record which runs of a job failed, after the job ended with an error.

    A run whose summary says finished is left alone. A failed run keeps the reason that the trainer
    wrote in this attempt (the trainer writes no ``exit_status``; we do), every other run gets the
    log's last line. ``failures.jsonl`` has one line per attempt: the workflow sees that the number
    has changed and tries the run again at its next call.

    Returns:
        The failed runs.

    Raises:
        StudyError: all runs have finished, so none of them explains the job's error.
    """
    directories = [Path(run) for run in ([runs] if isinstance(runs, str | Path) else runs)]
    last_words = _last_words(Path(log)) if log else ""
    failed = []
    for run in directories:
        summary = _summary(run)
        if summary.get("status") == "finished":
            continue
        own = summary.get("status") == "failed" and "exit_status" not in summary
        reason = str(summary.get("reason") or last_words) if own else last_words
        # Whose failure it is: null before the run marked its directory.
        record = {"status": "failed", "exit_status": status, "reason": reason}
        record["identity"] = read_identity(run)
        run.mkdir(parents=True, exist_ok=True)
        with open(run / "failures.jsonl", "a", encoding="utf-8") as stream:
            stream.write(json.dumps(record) + "\n")
        write_json(run / "summary.json", record)
        failed.append(run)
    if not failed:
        raise StudyError(
            f"training ended with status {status}, and no seed had failed: {last_words}",
            "See the log; the next call tries again.",
        )
    return failed


def block_record(runs: Sequence[str | Path]) -> dict[str, dict[str, Any]]:
    """Status and identity of every run of a block, by seed: the content of the job's marker.

    Raises:
        StudyError: a run has no summary, so the job is not done.
    """
    record = {}
    for run in map(Path, runs):
        summary = _summary(run)
        if not summary:
            raise StudyError(f"{run}: no summary.json", "The next call resumes the run.")
        record[run.name.removeprefix("seed_")] = {
            "status": str(summary.get("status", "finished")),
            "identity": read_identity(run),
        }
    return record


def _summary(run: Path) -> dict[str, Any]:
    """A run's summary; empty when there is none or it is damaged."""
    path = run / "summary.json"
    try:
        return read_object(path) if path.exists() else {}
    except ValueError:
        return {}


def _last_words(log: Path, limit: int = 300) -> str:
    """The last non-empty line of a log, shortened."""
    if not log.exists():
        return ""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return next((line.strip()[:limit] for line in reversed(lines) if line.strip()), "")
