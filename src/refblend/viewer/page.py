"""A run as one HTML page that needs no network: curves of all metrics, and its responses."""

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

from refblend import __version__
from refblend.files import write_text
from refblend.scoring.measure.record import plain
from refblend.viewer.console import header
from refblend.viewer.run import Response, Run, differences, legend, q_origin

MAX_RESPONSES = 5000
"""Responses on a page at most: the newest recorded steps that fit, and the first one."""
_PLACE = "/*DATA*/null"


def write_page(path: Path, run: Run, other: Run | None = None) -> tuple[int, int]:
    """Write the page, atomically; ``other`` is a run to compare the curves with.

    Returns the number of responses on the page, and of those that the run recorded.
    """
    responses, recorded = _responses(run)
    data = {
        "version": __version__,
        "title": str(run.path),
        "header": header(run),
        "labels": run.labels,
        "legend": legend(run),
        "runs": [_curves(r) for r in (run, other) if r is not None],
        "differences": [] if other is None else differences(run, other),
        "responses": responses,
        "recorded": recorded,
    }
    template = files("refblend.viewer").joinpath("page.html").read_text(encoding="utf-8")
    write_text(path, template.replace(_PLACE, for_script(data), 1))
    return len(responses), recorded


def for_script(value: Any) -> str:
    """JSON that can stand in a script element, whatever the texts contain; null for NaN."""
    text = json.dumps(plain(value), ensure_ascii=False, separators=(",", ":"))
    return text.translate({code: f"\\u{code:04x}" for code in map(ord, "<>\u2028\u2029")})


def _curves(run: Run) -> dict[str, Any]:
    """Name, steps and all metrics of a run; what is missing is NaN."""
    frame = run.metrics.set_index("step").dropna(axis="columns", how="all")
    steps, metrics = frame.index.tolist(), frame.to_dict("list")
    return {"name": str(run.path), "steps": steps, "metrics": metrics}


def _responses(run: Run) -> tuple[list[Response], int]:
    """The responses for the page, in the order of steps, and how many there are in all."""
    steps = run.recorded_steps
    kept: dict[int, list[Response]] = {}
    recorded = 0
    for step in [*steps[:1], *reversed(steps[1:])]:
        responses = run.responses(step)
        recorded += len(responses)
        if recorded <= MAX_RESPONSES or not kept:
            kept[step] = responses
    found = [response for step in sorted(kept) for response in kept[step]]
    for response in found:
        if response.get("judge_score") is not None:
            response["q is"] = q_origin(run, response)
    return found, recorded
