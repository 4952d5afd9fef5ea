"""The checks that can fail a milestone after its report, and the record of a failed run."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from refblend.errors import RefblendError, StudyError
from refblend.files import write_json
from refblend.identity import read_identity
from refblend.study.runs.collect import Collected
from refblend.study.runs.incidents import incident_totals
from refblend.trainer.run_directory import FAILURES_NAME, UNCONFIRMED_NAME, read_summary

SIGNALLED = 128
"""Exit statuses from this value on mean that a signal ended the process."""


def check_milestone(collected: Collected, tolerated: Mapping[str, int]) -> dict[str, Any]:
    """The record of the checks that every run finished and that incidents are tolerable.

    ``tolerated`` has the largest acceptable number of each kind of incident over all runs.
    StudyError names all checks that failed.
    """
    runs, totals = collected.runs, incident_totals(collected)
    failures = [
        f"{row.arm} seed {row.seed} is {row.status}" + (f" ({row.reason})" if row.reason else "")
        for row in runs[runs.status != "finished"].itertuples()
    ]
    failures += [
        f"{totals[kind]} {kind} incidents (tolerated: {limit})"
        for kind, limit in tolerated.items()
        if totals[kind] > limit
    ]
    if failures:
        raise StudyError(
            "; ".join(failures),
            "See the report and docs/how-to/stability.md; the next call tries failed runs again.",
        )
    return {"runs": len(runs), "incidents": totals, "tolerated": dict(tolerated)}


def record_failure(runs: Sequence[Path], status: int, log: Path | None = None) -> list[Path]:
    """Record which runs of a job failed, after the job ended with an error.

    A run whose summary says finished is left alone. A failed run keeps the reason that the trainer
    wrote in this attempt (the trainer writes no ``exit_status``; we do), every other run gets the
    log's last line. ``failures.jsonl`` has one line per attempt: the workflow sees that the number
    has changed and tries the run again at its next call.

    A job that was refused (status 2) before any run began has not compared its finished runs with
    what it asks for: they may be another configuration's. So may those behind a run that was
    killed. They are marked as unconfirmed, and do not count until a job has compared them.

    Returns the failed runs; StudyError if all have finished, so that none explains the error.
    """
    last_words = _last_words(log) if log else ""
    summaries = {run: read_summary(run) for run in runs}
    finished = [run for run, summary in summaries.items() if summary.get("status") == "finished"]
    failed = [run for run in runs if run not in finished]
    if not failed:
        raise StudyError(
            f"training ended with status {status}, and no seed had failed: {last_words}",
            "See the log; the next call tries again.",
        )
    reasons = {
        run: str(summary.get("reason") or last_words)
        for run, summary in summaries.items()
        if summary.get("status") == "failed" and "exit_status" not in summary
    }
    for run in failed:
        run.mkdir(parents=True, exist_ok=True)
        record = _append_failure(run, status, reasons.get(run, last_words))
        write_json(run / "summary.json", record)
    refused = status == RefblendError.exit_status and not reasons
    killed = [place for place, run in enumerate(runs) if run in failed and run not in reasons]
    for run in runs[0 if refused else min(killed, default=len(runs)) :]:
        if run in finished:
            write_json(run / UNCONFIRMED_NAME, _append_failure(run, status, last_words))
    return failed


def _append_failure(run: Path, status: int, reason: str) -> dict[str, Any]:
    """Add an attempt to the run's ``failures.jsonl``, and return its record."""
    # Whose failure it is: null before the run marked its directory.
    identity = read_identity(run)
    record = {"status": "failed", "exit_status": status, "reason": reason, "identity": identity}
    with open(run / FAILURES_NAME, "a", encoding="utf-8") as stream:
        stream.write(json.dumps(record) + "\n")
    return record


def block_record(runs: Sequence[Path]) -> dict[str, dict[str, Any]]:
    """Status and identity of every run of a block, by seed: the content of the job's marker.

    StudyError if a run has no summary, or was stopped: the job is not done.
    """
    record = {}
    for run in runs:
        summary = read_summary(run)
        if not summary or summary.get("status") == "stopped":
            raise StudyError(f"{run} has not ended", "The next call resumes the run.")
        unconfirmed = (run / UNCONFIRMED_NAME).exists()
        record[run.name.removeprefix("seed_")] = {
            "status": "failed" if unconfirmed else str(summary["status"]),
            "identity": read_identity(run),
        }
    return record


def _last_words(log: Path) -> str:
    if not log.exists():
        return ""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")
