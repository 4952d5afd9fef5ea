"""A run on the console: header, sparklines, best and worst responses, comparison with another."""

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
from rich import box
from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Column, Table
from rich.text import Text

from refblend.trainer.checkpoint import CheckpointManager
from refblend.viewer.run import (
    BLEND,
    Response,
    Run,
    best_and_worst,
    differences,
    judge_of,
    legend,
    outcome,
    q_origin,
)

BARS = "▁▂▃▄▅▆▇█"
WIDTH = 32
"""Characters of a sparkline at most."""
_CONTROLS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")


def harmless(text: str) -> str:
    """A model's text without control characters: it must not steer the terminal."""
    return _CONTROLS.sub("�", text)


def sparkline(values: pd.Series, width: int = WIDTH) -> str:
    """One finite value or more as bars between their bounds; neighbours are averaged to fit."""
    count = min(width, len(values))
    bounds = [round(i * len(values) / count) for i in range(count + 1)]
    means = [values.iloc[a:b].mean() for a, b in pairwise(bounds)]
    low, high = min(means), max(means)
    if high == low:
        return BARS[len(BARS) // 2] * count
    return "".join(BARS[round((m - low) / (high - low) * (len(BARS) - 1))] for m in means)


def number(value: Any) -> str:
    """Four significant digits, or a dash."""
    return "–" if value is None or value != value else f"{float(value):.4g}"


def header(run: Run) -> list[str]:
    """What the run was and how it ended, in up to four lines."""
    summary, origin = run.summary, run.provenance
    last = int(run.metrics["step"].max()) if len(run.metrics) else 0
    status = summary.get("status", "going on, or killed")
    parts = [f"{status}, step {last}"]
    totals, git = origin.get("totals") or {}, origin.get("git") or {}
    if totals.get("wall_time_s") is not None:
        parts.append(f"{totals['wall_time_s'] / 60:.1f} min")
    if git.get("commit"):
        changed = " with changes" if git.get("dirty") else ""
        parts.append(f"commit {str(git['commit'])[:8]}{changed}")
    lines = [f"{run.path}: " + ", ".join(parts)]
    if summary.get("reason"):
        lines.append(f"reason     {summary['reason']}")
    if run.settings:
        lines += _configured(run.settings, judge_of(run))
    if "incidents" in summary:
        told = ", ".join(f"{k} {v}" for k, v in (summary["incidents"] or {}).items() if v)
        lines.append(f"incidents  {told or 'none'}")
    return lines


def _configured(settings: dict[str, Any], judge: str) -> list[str]:
    of = settings.get
    actor = (
        f"actor      {of('actor_rollout_ref.model.path')}, {of('algorithm.adv_estimator')}, "
        f"seed {of('trainer.seed')}"
    )
    if not of(f"{BLEND}.enable"):
        return [actor, "blend      off"]
    shown = ("strategy", "max_weight", "entropy_high_threshold", "placement")
    values = ", ".join(f"{key} {of(f'{BLEND}.{key}')}" for key in shown)
    control = of(f"{BLEND}.scoring.control")
    kept = f", control {control}" if control not in (None, "none") else ""
    return [actor, f"blend      {values}", f"judge      {judge}{kept}"]


def _right(*headings: str) -> list[Column]:
    return [Column(heading, justify="right") for heading in headings]


def metrics_table(run: Run) -> Table:
    """The main metrics with their course."""
    table = Table("", "course", *_right("first", "lowest", "highest", "last"), box=box.SIMPLE_HEAD)
    for label, values in run.main_metrics():
        shown = (values.iloc[0], values.min(), values.max(), values.iloc[-1])
        table.add_row(Text(label), sparkline(values), *map(number, shown))
    return table


def response_panel(run: Run, response: Response) -> Panel:
    """A response with everything that is known about it."""
    known = {name: value for name, value in response.items() if value is not None}
    q, blended = number(known.get("judge_score")), number(known.get("quality"))
    numbers = [f"R {number(known['reward'])}"]
    if "judge_score" in known:
        numbers.append(f"q {q} ({q_origin(run, response)})")
    if "quality" in known and blended != q:
        numbers.append(f"blended q {blended}")
    sums = (("w", "weight"), ("ΣR′", "blended"))
    numbers += [f"{label} {number(known[name])}" for label, name in sums if name in known]
    numbers.append(f"{known.get('length', '?')} tokens")
    texts = [("question", "question"), ("truth", "ground_truth"), ("response", "response")]
    texts.append(("judge", "judge_raw"))
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for label, name in texts:
        if name in known:
            grid.add_row(label, Text(harmless(str(known[name]))))
    mark = "right" if known.get("acc") else "wrong"
    place = f"prompt {known.get('uid', '?')}, sample {known.get('sample', '?')}"
    return Panel(
        Group(Text("   ".join(numbers), style="bold"), grid),
        title=f"{number(outcome(response))}  {mark}  {place}",
        title_align="left",
        border_style="green" if known.get("acc") else "red",
    )


def show_run(run: Run, console: Console, step: int | None = None, count: int = 3) -> None:
    """Print a run with ``count`` best and worst responses of a step, by default the last recorded.

    Errors of :meth:`Run.responses`.
    """
    if step is None and run.recorded_steps:
        step = run.recorded_steps[-1]
    responses = [] if step is None else run.responses(step)
    _print_course(run, console)
    if not responses:
        console.print("No responses were recorded (trainer.rollout_dump_freq).")
        return
    what = "blended" if responses[0].get("blended") is not None else "rule"
    console.print(legend(run), style="dim", highlight=False)
    for name, found in zip(("highest", "lowest"), best_and_worst(responses, count), strict=True):
        if found:
            told = f"Step {step}, {name} {what} reward: {len(found)} of {len(responses)} responses"
            console.print(told, style="bold", highlight=False)
        for response in found:
            console.print(response_panel(run, response))


def show_end(run: Run, console: Console) -> None:
    """Print a run that has just ended, and where it left what."""
    _print_course(run, console)
    checkpoints = CheckpointManager(run.path / "checkpoints")
    steps = checkpoints.steps()
    places: dict[str, str | Path] = {
        "metrics": f"{run.path / 'metrics.jsonl'}; tensorboard --logdir {run.path / 'tensorboard'}",
        "responses": run.path / "rollouts",
    }
    if steps:
        places["model"] = checkpoints.path(steps[-1]) / "actor"
    places["go on"] = (
        "the same command with a higher trainer.total_training_steps, if no schedule needs it"
    )
    for name, place in places.items():
        _tell(f"{name:<11}{place}", console)


def _print_course(run: Run, console: Console) -> None:
    for line in header(run):
        _tell(line, console)
    console.print(metrics_table(run))


def _tell(line: str, console: Console) -> None:
    console.print(harmless(line), soft_wrap=True, markup=False, highlight=False)


def show_comparison(one: Run, other: Run, console: Console) -> None:
    """Print two runs side by side: where they are configured differently, and their metrics."""
    for name, run in (("A", one), ("B", other)):
        _tell(f"{name}  {header(run)[0]}", console)
    # Keys differ at their ends, so none is cut.
    columns = (Column(heading, overflow="fold") for heading in ("setting", "A", "B"))
    settings = Table(*columns, box=box.SIMPLE_HEAD)
    changed = differences(one, other)
    for key, left, right in changed:
        settings.add_row(key, *(Text(harmless(str(v))) for v in (left, right)))
    console.print(settings if changed else "The configurations are the same.")
    table = Table("", "A", *_right("last A"), "B", *_right("last B", "B − A"), box=box.SIMPLE_HEAD)
    right = dict(other.main_metrics())
    for label, values in one.main_metrics():
        if label in right:
            last, their = values.iloc[-1], right[label].iloc[-1]
            cells = (sparkline(values, 20), number(last), sparkline(right[label], 20))
            table.add_row(Text(label), *cells, number(their), f"{their - last:+.4g}")
    console.print(table)
