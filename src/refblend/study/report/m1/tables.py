"""Tables of milestone M1: each a tidy frame, written as CSV, Markdown and LaTeX from one frame."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from refblend.files import atomic_path, write_text
from refblend.seeding import derive_generator
from refblend.study.report.latex import to_latex
from refblend.study.runs.collect import Collected
from refblend.study.runs.measures import (
    INCIDENTS,
    incident_counts,
    results_on_test,
    series,
    stability,
    start_and_end,
)
from refblend.study.runs.model_quality import actor_table, judge_table
from refblend.study.stats.statistics import bootstrap_interval, iqm, paired_difference

JUDGE_MEASURES = (
    "weight",
    "avg_entropy",
    "score_mean",
    "score_std",
    "nonzero_rate",
    "valid_rate",
    "fallback_rate",
    "compact_rate",
    "clipped_rate",
    "new_tokens_mean",
    "auc",
    "ece",
    "reward_length_corr",
)
"""``actor/ref_quality/<name>``, averaged over the steps of a run."""

RESOURCE_MEASURES = {
    "perf/time_per_step": "seconds_a_step",
    "perf/throughput": "tokens_a_second",
}


def m1_tables(
    collected: Collected, baseline: str, quality: dict[str, Any]
) -> dict[str, pd.DataFrame]:
    """All tables of M1 by the names of :data:`refblend.study.layout.M1_TABLES`.

    Args:
        collected: the runs.
        baseline: arm that differences are taken against.
        quality: reports of the embedded models.
    """
    metrics = collected.counted_metrics
    return {
        "final_accuracy": final_accuracy(collected, quality),
        "arm_summary": arm_summary(collected, baseline, quality),
        "incidents": incidents_table(collected),
        "stability": in_run_order(stability(metrics), collected.runs),
        "judge_in_training": judge_in_training(collected),
        "actor_quality": actor_table(quality),
        "judge_quality": judge_table(quality),
        "resources": resources(collected),
    }


def warm_start_accuracy(quality: dict[str, Any]) -> float:
    """Greedy accuracy of the warm-started actor on the test set; NaN where it was not measured."""
    table = actor_table(quality)
    row = table[table.model == "actor"]
    return float(row["greedy"].iloc[0]) if len(row) else np.nan


def in_run_order(frame: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Rows in the order of the grid; runs without a row get one with their status."""
    if frame.empty:
        frame = frame.reindex(columns=[*{"arm": 0, "seed": 0} | dict.fromkeys(frame.columns, 0)])
        frame = frame.astype({"arm": "str", "seed": "int64"})
    return runs[["arm", "seed", "status"]].merge(
        frame.drop(columns="status", errors="ignore"), on=["arm", "seed"], how="left"
    )


def final_accuracy(collected: Collected, quality: dict[str, Any]) -> pd.DataFrame:
    """Every run: validation accuracy before and after training, and accuracy on the test set.

    ``test_warm_start`` is the same for all runs: the actor that they start from.
    """
    metrics = collected.counted_metrics
    ends = start_and_end(metrics)
    validation = ends[ends.measure == "acc"].drop(columns=["measure", "auc", "drawdown"])
    validation = validation.rename(
        columns={name: f"val_{name}" for name in ("start", "final", "gain", "best")}
    )
    test = results_on_test(metrics).rename(columns={"value": "test_final"})
    table = in_run_order(validation, collected.runs)
    table = table.merge(test, on=["arm", "seed"], how="left")
    table["test_warm_start"] = np.where(
        table["test_final"].notna(), warm_start_accuracy(quality), np.nan
    )
    table["test_gain"] = table["test_final"] - table["test_warm_start"]
    return table


def arm_summary(collected: Collected, baseline: str, quality: dict[str, Any]) -> pd.DataFrame:
    """Every arm and measure over its seeds: mean, IQM, interval, difference to the baseline.

    ``runs`` counts the arm's runs and ``n`` those that count; failed ones are the difference.
    """
    metrics = collected.counted_metrics
    ends = start_and_end(metrics)
    results = {
        f"val {measure} {moment}": part.set_index(["arm", "seed"])[moment]
        for measure, part in ends.groupby("measure")
        for moment in ("final", "gain", "best")
        if (measure, moment) in WANTED
    }
    test = results_on_test(metrics).set_index(["arm", "seed"])["value"]
    if len(test):
        results["test acc final"] = test
        if not np.isnan(warm_start_accuracy(quality)):
            results["test acc gain"] = test - warm_start_accuracy(quality)
    rows = []
    for arm in dict.fromkeys(collected.runs.arm):
        for measure in sorted(results):
            rows.append(_summary_row(results[measure].dropna(), arm, baseline, measure))
    columns = ["arm", "measure", "n", "mean", "iqm", "low", "high", "diff", "diff_low", "diff_high"]
    table = pd.DataFrame(rows, columns=columns)
    planned = collected.runs.groupby("arm").size().rename("runs")
    table = table.merge(planned, left_on="arm", right_index=True, how="left")
    return table[["arm", "measure", "runs", *columns[2:]]]


WANTED = {
    ("acc", "final"),
    ("acc", "gain"),
    ("acc", "best"),
    ("acc_strict", "final"),
    ("sampled", "final"),
    ("pass_n", "final"),
    ("reward", "final"),
    ("sanity", "final"),
}
"""Measures and moments that the summary shows."""


def _summary_row(result: pd.Series, arm: str, baseline: str, measure: str) -> dict[str, Any]:
    """One arm and measure; every interval has a stream of its own, so rows can be added."""
    empty = pd.Series(dtype=float)
    values = result.xs(arm) if arm in result.index.get_level_values("arm") else empty
    base = result.xs(baseline) if baseline in result.index.get_level_values("arm") else empty
    interval = bootstrap_interval(values, derive_generator("m1", "summary", arm, measure))
    row = {
        "arm": arm,
        "measure": measure,
        "n": interval.n,
        "mean": interval.estimate,
        "iqm": float(iqm(values.to_numpy())) if len(values) else np.nan,
        "low": interval.low,
        "high": interval.high,
    }
    if arm != baseline:
        rng = derive_generator("m1", "difference", arm, measure)
        difference = paired_difference(values, base, rng)
        row |= {
            "diff": difference.estimate,
            "diff_low": difference.low,
            "diff_high": difference.high,
        }
    return row


def incidents_table(collected: Collected) -> pd.DataFrame:
    """Incidents of every run and their sum, with the reason of runs that did not finish."""
    counts = incident_counts(collected.metrics, collected.runs)
    counts["reason"] = collected.runs["reason"].to_numpy()
    total = counts[list(INCIDENTS)].sum(min_count=1)
    last = {"arm": "all", "status": f"{(counts.status == 'finished').sum()} of {len(counts)}"}
    counts["seed"] = counts["seed"].astype("Int64")
    return pd.concat([counts, pd.DataFrame([last | total.to_dict()])], ignore_index=True).astype(
        dict.fromkeys(INCIDENTS, "Int64") | {"seed": "Int64"}
    )


def judge_in_training(collected: Collected) -> pd.DataFrame:
    """Every run with a judge: blending and judge measures averaged over its steps."""
    names = {f"actor/ref_quality/{name}": name for name in JUDGE_MEASURES}
    part = collected.counted_metrics
    part = part[part.metric.isin(names)]
    means = part.pivot_table(index=["arm", "seed"], columns="metric", values="value")
    means = means.rename(columns=names).reindex(columns=list(JUDGE_MEASURES))
    return means[means["score_mean"].notna()].reset_index()


def resources(collected: Collected) -> pd.DataFrame:
    """Every run: steps, wall time, pace, energy (an estimate), and how often it was resumed."""
    kept = ["arm", "seed", "status", "steps", "wall_time_s", "energy_kwh", "kg_co2e", "resumed"]
    table = collected.runs[kept].copy()
    for metric, name in RESOURCE_MEASURES.items():
        part = series(collected.metrics, metric)
        medians = part.groupby(["arm", "seed"])["value"].median().rename(name)
        table = table.merge(medians, left_on=["arm", "seed"], right_index=True, how="left")
    memory = collected.metrics[collected.metrics.metric.str.match(r"^perf/.*mem.*gb$")]
    peak = memory.groupby(["arm", "seed"])["value"].max().rename("peak_memory_gb")
    return table.merge(peak, left_on=["arm", "seed"], right_index=True, how="left")


def write_table(frame: pd.DataFrame, name: str, out: str | Path) -> None:
    """Write ``<out>/<name>.csv``, ``<out>/<name>.md`` and ``<out>/<name>.tex`` (booktabs)."""
    with atomic_path(Path(out) / f"{name}.csv") as temporary:
        frame.to_csv(temporary, index=False, float_format="%.6g")
    write_text(Path(out) / f"{name}.md", to_markdown(frame) + "\n")
    shown, right = _shown(frame)
    write_text(Path(out) / f"{name}.tex", to_latex(shown, right))


def to_markdown(frame: pd.DataFrame) -> str:
    """A Markdown table; numbers with up to four significant digits, missing values as a dash."""
    if frame.empty:
        return "No data."
    shown, right = _shown(frame)
    shown = shown.map(lambda text: text.replace("|", "\\|"))  # a pipe would end the cell
    sides = ["right" if flag else "left" for flag in right]
    return str(shown.to_markdown(index=False, disable_numparse=True, colalign=sides))


def _shown(frame: pd.DataFrame) -> tuple[pd.DataFrame, list[bool]]:
    """The texts of a table, and which columns hold numbers.

    Columns that nothing fills stay in the CSV only; a table without rows shows all its columns.
    """
    kept = frame if frame.empty else frame.dropna(axis="columns", how="all")
    shown = pd.DataFrame({name: kept[name].map(_cell).astype("str") for name in kept})
    shown.columns = pd.Index([str(name).replace("_", " ") for name in kept.columns])
    return shown, [pd.api.types.is_numeric_dtype(dtype) for dtype in kept.dtypes]


def _cell(value: Any) -> str:
    """One cell on one line."""
    if value is None or pd.isna(value):
        return "–"
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, float | np.floating):
        number = float(value)
        return f"{number:.0f}" if abs(number) >= 1000 else f"{number:.4g}"
    return str(value).replace("\n", " ")
