"""What is read of one run's directory: its record, its metrics and its responses.

The evaluation on the test set is bound to the run that it measured (:func:`bound_to`): one that
another run left in the directory, or that measured an earlier checkpoint, does not count.
"""

import math
from collections.abc import Mapping, Sequence
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
RESPONSE_NUMBERS = ("reward", "acc", "judge_score", "length", "blended")
STATUSES = ("finished", "stopped", "failed", "incomplete", "missing")
"""``stopped``: by Ctrl-C or SIGTERM; ``incomplete``: killed. The next call resumes both."""


def read_run(directory: Path) -> tuple[dict[str, Any], pd.DataFrame | None, list[dict[str, Any]]]:
    """Record, metrics and responses of one run; problems become the record's status and reason."""
    record: dict[str, Any] = {"status": "missing", "reason": "no run directory"}
    if not directory.is_dir():
        return record, None, []
    values = None
    responses: list[dict[str, Any]] = []
    try:
        if (directory / "metrics.jsonl").exists():
            values = read_metrics(directory / "metrics.jsonl")
            record |= {
                "status": "incomplete",
                "reason": "killed before its end",
                "steps": int(values["step"].max()) if len(values) else 0,
            }
        else:
            record["reason"] = "no metrics"
        provenance = _read_object(directory / "provenance.json")
        record |= _origin(provenance)
        summary = _read_object(directory / "summary.json")
        if summary:
            record |= _outcome(summary)
            if record["status"] == "finished" and (values is None or values.empty):
                record |= {"status": "failed", "reason": "summary without metrics"}
        if record["status"] == "finished" and (
            refusal := _read_object(directory / UNCONFIRMED_NAME)
        ):
            reason = f"it may be another configuration's: its job was refused ({refusal['reason']})"
            record |= {"status": "failed", "reason": reason}
        if record["status"] == "finished" and values is not None:
            report, problem = read_test(directory, record["steps"])
            values = _with_test(values, report)
            record["reason"] = problem or record["reason"]
        responses = _read_responses(directory)
        if record["status"] == "finished" and values is not None:
            algorithm = _part(_read_object(directory / "config.json"), "algorithm")
            found = pd.Series(_alignment(algorithm, responses), dtype=float)
            values[ALIGNMENT] = values["step"].map(found)
    except (DataError, OSError, ValueError, KeyError, TypeError) as error:
        record |= {"status": "failed", "reason": f"unreadable: {shorten(str(error), 300)}"}
    return record, values, responses


def _alignment(algorithm: dict[str, Any], rows: Sequence[Mapping[str, Any]]) -> dict[int, float]:
    """:func:`alignment_by_step`; empty where a run did not use GRPO's advantages of ``blended``.

    Those it used are not recorded: another estimator's, such as the batch-whitened ones that
    ``gdpo`` needs, or those that ``hero`` multiplies by factors.
    """
    method = _part(algorithm, "ref_quality_score").get("method")
    if method in ("gdpo", "hero") or algorithm.get("adv_estimator", "grpo") != "grpo":
        return {}
    return alignment_by_step(rows, _truth(algorithm, "norm_adv_by_std_in_grpo") is not False)


def alignment_by_step(rows: Sequence[Mapping[str, Any]], norm_by_std: bool) -> dict[int, float]:
    """How well GRPO's advantages of the blended reward agreed with the truth, by recorded step.

    ``rows`` are recorded responses with step, uid, blended and acc; ``norm_by_std=False`` is
    Dr.GRPO. :mod:`refblend.advice.alignment` defines alignment; its reward is here the blended one.
    """
    from refblend.advice.alignment import Blend  # takes seconds, which reports save
    from refblend.advice.answer import samples_of

    names = {"uid": "prompt_id", "blended": "reward", "acc": "truth"}
    frame = pd.DataFrame(rows, columns=["step", *names]).rename(columns=names)
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


def _part(record: dict[str, Any], key: str) -> dict[str, Any]:
    """An object within a record; empty when it is absent or null."""
    return _checked(record, key, dict, "not an object") or {}


def _number(record: dict[str, Any], key: str) -> Any:
    """A finite number, or None where it is absent or null."""
    value = record.get(key)
    if value is None or (type(value) in (int, float) and abs(value) < 2**63):  # not NaN either
        return value
    raise ValueError(f"{key} is {show(value)}, not a number")


def _truth(record: dict[str, Any], key: str) -> bool | None:
    return _checked(record, key, bool, "neither true nor false")


def _checked(record: dict[str, Any], key: str, kind: type, otherwise: str) -> Any:
    """A value of a kind, or None where it is absent or null."""
    value = record.get(key)
    if value is None or isinstance(value, kind):
        return value
    raise ValueError(f"{key} is {show(value)}, {otherwise}")


def _outcome(summary: dict[str, Any]) -> dict[str, Any]:
    """Status and reason from summary.json; without a status the run finished."""
    status = str(summary.get("status", "finished"))
    if status not in STATUSES:
        return {"status": "failed", "reason": f"unknown status {show(status)}"}
    return {"status": status, "reason": str(summary.get("reason") or "")}


def _origin(provenance: dict[str, Any]) -> dict[str, Any]:
    """Where a run comes from and what it used, from provenance.json."""
    totals, git, machine = (_part(provenance, key) for key in ("totals", "git", "hardware"))
    gpus = machine.get("gpus") or []
    parts = [
        str(machine.get("cpu") or ""),
        f"{machine['cores']} cores" if machine.get("cores") else "",
        ", ".join(gpus),
    ]
    models = [
        f"{Path(path).name} {str(digest)[:DIGITS]}"
        for path, digest in _part(provenance, "models").items()
    ]
    return {
        "wall_time_s": _number(totals, "wall_time_s"),
        "energy_kwh": _number(totals, "energy_kwh_estimated"),
        "kg_co2e": _number(totals, "kg_co2e_estimated"),
        "resumed": max(0, len(provenance.get("sessions", [])) - 1) if provenance else None,
        "commit": str(git.get("commit") or ""),
        "dirty": _truth(git, "dirty"),
        "hardware": ", ".join(part for part in parts if part),
        "models": "; ".join(models) or None,
    }


def _with_test(values: pd.DataFrame, report: dict[str, Any]) -> pd.DataFrame:
    if not report:
        return values
    numbers = {
        f"test/{name}": float(_number(report, name))
        for name, value in report.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    added = pd.DataFrame(numbers, index=[values.index[values["step"].argmax()]])
    return values.join(added)


def _read_responses(directory: Path) -> list[dict[str, Any]]:
    """Rows of ``rollouts/*.jsonl`` without the texts and without an incomplete last line.

    ValueError, with file and line, if another line is no record or a value has the wrong type.
    """
    rows = []
    for path in sorted(directory.glob("rollouts/*.jsonl")):
        # Not splitlines(): a response may hold other line separators, such as U+2028.
        *lines, _torn = path.read_bytes().split(b"\n")
        for number, line in enumerate(lines, start=1):
            try:
                rows.append(_response(parse_json(line)))
            except ValueError as error:
                raise ValueError(f"{path.name}, line {number}: {error}") from None
    return rows


def _response(record: Any) -> dict[str, Any]:
    if not isinstance(record, dict):
        raise ValueError("not a JSON object")
    if type(record.get("step")) is not int:
        raise ValueError("no step")
    read: dict[str, Any] = {"step": _number(record, "step"), "uid": str(record.get("uid"))}
    for name in RESPONSE_NUMBERS:
        read[name] = _number(record, name)
    read["judge_valid"] = _truth(record, "judge_valid")
    return read | {"judge_path": _checked(record, "judge_path", str, "not text")}


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
    measured = _part(report, "of")
    if not measured:
        return {}, f"{TEST_NAME} does not say which run it measured: {remedy}"
    if measured.get("identity") is None or measured["identity"] != read_identity(directory):
        return {}, f"{TEST_NAME} belongs to another run: {remedy}"
    if measured.get("step") != steps:
        return {}, f"{TEST_NAME} measured step {show(measured.get('step'))} of {steps}: {remedy}"
    return report, ""
