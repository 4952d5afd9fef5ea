"""The report of a milestone: Markdown from a template, headline numbers for DVC, plot data."""

import json
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import pandas as pd

from refblend.files import atomic_path, read_json, sha256_file, write_json, write_text
from refblend.study.design.grid import read_grid
from refblend.study.design.spec import ExperimentSpec
from refblend.study.layout import M1_TABLES
from refblend.study.report.m1.figures import commit_text
from refblend.study.runs.collect import Collected
from refblend.study.runs.measures import INCIDENTS, series, validation_frame

HEADLINE = "test acc gain"
"""Measure of the summary that the first sentence reports; the validation gain stands in for it."""


def write_m1_report(
    collected: Collected, experiment: ExperimentSpec, scale: str, grid: str | Path, out: str | Path
) -> None:
    """Write ``report.md``, ``metrics.json`` and ``plots/*.csv`` below ``out``.

    The tables and figures of ``out`` must have been written before.
    """
    out = Path(out)
    summary = pd.read_csv(out / "tables" / "arm_summary.csv")
    write_text(out / "report.md", render(collected, experiment, scale, grid, out, summary))
    write_json(out / "metrics.json", headline_numbers(collected, summary))
    for name, frame in plot_data(collected).items():
        with atomic_path(out / "plots" / f"{name}.csv") as temporary:
            frame.to_csv(temporary, index=False, float_format="%.6g")


def render(
    collected: Collected,
    experiment: ExperimentSpec,
    scale: str,
    grid: str | Path,
    out: Path,
    summary: pd.DataFrame,
) -> str:
    """The Markdown text of the report."""
    captions = read_json(out / "figures" / "captions.json")
    runs, finished = collected.runs, collected.finished
    template = resources.files("refblend.study.report").joinpath("templates", "m1.md.j2")
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
    return environment.from_string(template.read_text(encoding="utf-8")).render(
        experiment=experiment,
        scale=scale,
        headline=headline(collected, experiment, summary),
        runs=runs.to_dict("records"),
        seeds=sorted(set(runs.seed)),
        arms=_arms(read_grid(grid), runs, finished),
        absent=runs[runs.status != "finished"].to_dict("records"),
        tables={
            name: (out / "tables" / f"{name}.md").read_text(encoding="utf-8").rstrip()
            for name in M1_TABLES
        },
        figure=lambda name: (
            f"![{name.replace('_', ' ')}](figures/{name}.png)\n\n*{captions[name]}*\n"
        ),
        totals={
            "hours": f"{runs.wall_time_s.sum() / 3600:.2f}",
            "kwh": f"{runs.energy_kwh.sum():.4f}",
            "kg": f"{runs.kg_co2e.sum():.4f}",
        },
        commit=commit_text(collected),
        hardware="; ".join(sorted({name for name in runs.hardware.dropna() if name})) or "unknown",
        grid_hash=f"SHA-256 {sha256_file(grid)[:16]}…",
    )


def _arms(grid: pd.DataFrame, runs: pd.DataFrame, finished: pd.DataFrame) -> list[dict[str, Any]]:
    """Name, overrides and counts of every arm with planned runs, in grid order."""
    arms = []
    for row in grid[grid.arm.isin(runs.arm)].drop_duplicates("arm").itertuples():
        overrides = json.loads(str(row.overrides))
        text = ", ".join(
            f"`{key}={json.dumps(value).strip(chr(34))}`" for key, value in overrides.items()
        )
        arms.append(
            {
                "name": row.arm,
                "overrides": text or "none",
                "finished": int((finished.arm == row.arm).sum()),
                "planned": int((runs.arm == row.arm).sum()),
            }
        )
    return arms


def headline(collected: Collected, experiment: ExperimentSpec, summary: pd.DataFrame) -> str:
    """The first paragraph: what came out, and which incidents there were."""
    finished, planned = len(collected.finished), len(collected.runs)
    parts = [f"{finished} of {planned} runs finished."]
    measure = HEADLINE if (summary.measure == HEADLINE).any() else "val acc gain"
    label = "test" if measure == HEADLINE else "validation"
    for row in summary[(summary.measure == measure) & (summary.n > 0)].itertuples():
        text = f"Arm `{row.arm}` changes greedy {label} accuracy by {row.mean:+.3f}"
        text += _bracket(row.low, row.high) + f" (n = {row.n})"
        if not np.isnan(row.diff):
            text += f", {row.diff:+.3f}{_bracket(row.diff_low, row.diff_high)} against "
            text += f"`{experiment.baseline}`"
        parts.append(text + ".")
    counts = incident_totals(collected)
    named = ", ".join(f"{name.replace('_', '-')} {counts[name]}" for name in INCIDENTS)
    return " ".join([*parts, f"Incidents over all runs: {named}."])


def _bracket(low: float, high: float) -> str:
    return "" if np.isnan(low) else f" [{low:+.3f}, {high:+.3f}]"


def incident_totals(collected: Collected) -> dict[str, int]:
    """Incidents of each kind over all runs, failed ones included."""
    metrics = collected.metrics
    return {
        name: int(metrics[metrics.metric == f"incidents/{name}"]["value"].sum())
        for name in INCIDENTS
    }


def headline_numbers(collected: Collected, summary: pd.DataFrame) -> dict[str, Any]:
    """Nested numbers for ``dvc metrics``: arm → measure → mean, low, high; incidents; runs."""
    arms: dict[str, Any] = {}
    for row in summary.itertuples():
        numbers = {"mean": row.mean, "low": row.low, "high": row.high, "diff": row.diff}
        kept = {name: round(value, 6) for name, value in numbers.items() if not np.isnan(value)}
        if kept:
            arms.setdefault(str(row.arm), {})[str(row.measure).replace(" ", "_")] = kept
    return {
        "arms": arms,
        "incidents": incident_totals(collected),
        "runs": {"planned": len(collected.runs), "finished": len(collected.finished)},
    }


def plot_data(collected: Collected) -> dict[str, pd.DataFrame]:
    """Small frames for ``dvc plots``, averaged over seeds: names of ``layout.PLOT_DATA``."""
    metrics = collected.counted_metrics
    keys = ["arm", "step"]
    validation = validation_frame(metrics)
    accuracy = validation[validation.measure == "acc"].groupby(keys, as_index=False)["value"].mean()
    parts = [
        series(metrics, f"actor/ref_quality/{name}").groupby(keys)["value"].mean().rename(name)
        for name in ("avg_entropy", "weight")
    ]
    blend = pd.concat(parts, axis=1, join="inner").reset_index()
    return {
        "val_accuracy": accuracy.rename(columns={"value": "accuracy"}),
        "weight_entropy": blend.reindex(columns=[*keys, "avg_entropy", "weight"]),
    }
