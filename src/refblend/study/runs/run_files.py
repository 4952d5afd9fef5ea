"""What is read of one run's directory: its record, its metrics and its responses.

The evaluation on the test set is bound to the run that it measured (:func:`bound_to`): one that
another run left in the directory, or that measured an earlier checkpoint, does not count.
"""

import math
from pathlib import Path
from typing import Any

import pandas as pd

from refblend.documents import MalformedError, parse_json, shorten, show
from refblend.errors import DataError
from refblend.files import read_object
from refblend.identity import read_identity
from refblend.trainer.run_directory import UNCONFIRMED_NAME
from refblend.trainer.tracking import read_metrics

TEST_NAME = "test.json"
ALIGNMENT = "rollouts/alignment"
"""The metric of :func:`alignment_by_step`."""
MANY_STEPS = 4
"""Test problems whose solutions have so many steps or more count as one difficulty."""
DIGITS = 8
"""Of a model's digest, enough to tell models apart."""
STATUSES = ("finished", "stopped", "failed", "incomplete", "missing")
"""``stopped``: by Ctrl-C or SIGTERM; ``incomplete``: killed. The next call resumes both."""
ORIGIN_COLUMNS = {
    "wall_time_s": "float64",
    "energy_kwh": "float64",
    "kg_co2e": "float64",
    "resumed": "Int64",
    "commit": "str",
    "dirty": "boolean",
    "hardware": "str",
    "models": "str",
}
KEPT_COLUMNS = {
    "step": "int64",
    "reward": "float64",
    "acc": "float64",
    "judge_score": "float64",
    "judge_valid": "boolean",
    "judge_path": "str",
    "length": "float64",
}
"""What is kept of a response; its alignment needs ``blended`` and ``uid``, too."""
_UNREADABLE = (
    DataError, OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError
)  # fmt: skip
"""What reading a file raises that the trainer cannot have written."""


def read_run(directory: Path) -> tuple[dict[str, Any], pd.DataFrame, pd.DataFrame]:
    """Record, metrics and responses of one run; problems become the record's status and reason.

    The metrics have a row for each step, the responses :data:`KEPT_COLUMNS`.
    """
    record: dict[str, Any] = {"status": "missing", "reason": "no run directory"}
    values, responses = pd.DataFrame({"step": []}), pd.DataFrame()
    if not directory.is_dir():
        return record, values, responses
    try:
        record["reason"] = "no metrics"
        if (directory / "metrics.jsonl").exists():
            values = read_metrics(directory / "metrics.jsonl")
            steps = int(values["step"].max()) if len(values) else 0
            record = {"status": "incomplete", "reason": "killed before its end", "steps": steps}
        record |= _origin(_read_object(directory / "provenance.json"))
        record |= _outcome(directory, values)
        responses = _read_responses(directory)
        if record["status"] == "finished":
            report, problem = read_test(directory, record["steps"])
            record["reason"] = problem or record["reason"]
            numbers = {
                f"test/{name}": float(value)
                for name, value in report.items()
                if isinstance(value, int | float) and not isinstance(value, bool)
            }
            last = values.index[values["step"].argmax()]
            values = values.join(pd.DataFrame(numbers, index=[last]))
            algorithm = _read_object(directory / "config.json").get("algorithm") or {}
            found = pd.Series(alignment_by_step(algorithm, responses), dtype=float)
            aligned = values["step"].map(found).rename(ALIGNMENT)
            values = pd.concat([values, aligned], axis=1)
    except _UNREADABLE as error:
        record |= {"status": "failed", "reason": f"unreadable: {shorten(str(error), 300)}"}
    return record, values, responses


def typed(frame: pd.DataFrame, columns: dict[str, str]) -> pd.DataFrame:
    """These columns in these types; ValueError or TypeError for a value that has another."""
    return frame.reindex(columns=list(columns)).astype(columns).reset_index(drop=True)


def alignment_by_step(algorithm: dict[str, Any], responses: pd.DataFrame) -> dict[int, float]:
    """How well GRPO's advantages of the blended reward agreed with the truth, by recorded step.

    ``responses`` have step, uid, blended and acc. :mod:`refblend.advice.alignment` defines
    alignment; its reward is here the blended one. Empty where the run used other advantages, which
    are not recorded: another estimator's, such as the batch-whitened ones that ``gdpo`` needs, or
    those that ``hero`` multiplies by factors.
    """
    from refblend.advice.alignment import Blend  # takes seconds, which reports save
    from refblend.advice.answer import samples_of

    method = (algorithm.get("ref_quality_score") or {}).get("method")
    if method in ("gdpo", "hero") or algorithm.get("adv_estimator", "grpo") != "grpo":
        return {}
    norm_by_std = algorithm.get("norm_adv_by_std_in_grpo") is not False
    names = {"uid": "prompt_id", "blended": "reward", "acc": "truth"}
    frame = responses.reindex(columns=["step", *names]).rename(columns=names)
    found = {}
    for step, part in frame.assign(judge_score=0.0).groupby("step"):
        try:
            sums = samples_of(part).sums([Blend(0.0)], norm_by_std)
        except DataError:  # no prompt has two responses
            continue
        value = float(sums.alignment()[0])
        if math.isfinite(value):
            found[int(str(step))] = value
    return found


def _read_object(path: Path) -> dict[str, Any]:
    """A JSON object, empty when the file does not exist."""
    try:
        return read_object(path) if path.exists() else {}
    except MalformedError as error:
        raise ValueError(f"{path.name}: {error}") from None


def _outcome(directory: Path, values: pd.DataFrame) -> dict[str, Any]:
    """Status and reason from summary.json, if it is there."""
    summary = _read_object(directory / "summary.json")
    if not summary:
        return {}
    status, reason = str(summary.get("status")), str(summary.get("reason") or "")
    if status not in STATUSES:
        status, reason = "failed", f"unknown status {show(status)}"
    elif status == "finished" and values.empty:
        status, reason = "failed", "summary without metrics"
    elif status == "finished" and (refusal := _read_object(directory / UNCONFIRMED_NAME)):
        why = f"its job was refused ({refusal['reason']})"
        status, reason = "failed", f"it may be another configuration's: {why}"
    return {"status": status, "reason": reason}


def _origin(provenance: dict[str, Any]) -> dict[str, Any]:
    """Where a run comes from and what it used, from provenance.json: :data:`ORIGIN_COLUMNS`."""
    totals, git, machine, models = (
        provenance.get(key) or {} for key in ("totals", "git", "hardware", "models")
    )
    cores = f"{machine['cores']} cores" if machine.get("cores") else ""
    parts = [machine.get("cpu") or "", cores, ", ".join(machine.get("gpus") or [])]
    used = [f"{Path(path).name} {digest[:DIGITS]}" for path, digest in models.items()]
    origin = {
        "wall_time_s": totals.get("wall_time_s"),
        "energy_kwh": totals.get("energy_kwh_estimated"),
        "kg_co2e": totals.get("kg_co2e_estimated"),
        "resumed": max(0, len(provenance.get("sessions", [])) - 1) if provenance else None,
        "commit": git.get("commit") or "",
        "dirty": git.get("dirty"),
        "hardware": ", ".join(part for part in parts if part),
        "models": "; ".join(used) or None,
    }
    typed(pd.DataFrame([origin]), ORIGIN_COLUMNS)
    return origin


def _read_responses(directory: Path) -> pd.DataFrame:
    """The responses of ``rollouts/*.jsonl`` without their texts, and without a torn last line.

    ValueError, with file and line, for another line that is not JSON.
    """
    columns, rows = KEPT_COLUMNS | {"blended": "float64", "uid": "str"}, []
    for path in sorted(directory.glob("rollouts/*.jsonl")):
        # Not splitlines(): a response may hold other line separators, such as U+2028.
        *lines, _torn = path.read_bytes().split(b"\n")
        for number, line in enumerate(lines, start=1):
            try:
                record = parse_json(line)
            except ValueError as error:
                raise ValueError(f"{path.name}, line {number}: {error}") from None
            rows.append({name: record.get(name) for name in columns})
    return typed(pd.DataFrame(rows), columns)


def bound_to(directory: Path, step: int) -> dict[str, Any]:
    """What an evaluation measured: the run's identity, and the step of its checkpoint."""
    return {"identity": read_identity(directory), "step": step}


def read_test(directory: Path, steps: int) -> tuple[dict[str, Any], str]:
    """The evaluation of a run of so many steps, and why it does not count; empty without one.

    ValueError if the file is damaged.
    """
    report = _read_object(directory / TEST_NAME)
    if not report:
        return {}, ""
    remedy = "run `refblend evaluate` again"
    measured = report.get("of") or {}
    if not measured:
        return {}, f"{TEST_NAME} does not say which run it measured: {remedy}"
    if measured.get("identity") is None or measured["identity"] != read_identity(directory):
        return {}, f"{TEST_NAME} belongs to another run: {remedy}"
    if measured.get("step") != steps:
        return {}, f"{TEST_NAME} measured step {show(measured.get('step'))} of {steps}: {remedy}"
    return report, ""
