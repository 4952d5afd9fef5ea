"""Measures read from the metrics: validation, its start and end, and run stability."""

import re

import numpy as np
import pandas as pd

from refblend.study.stats.statistics import (
    area_under_curve,
    count_spikes,
    entropy_collapse,
    largest_drawdown,
)

VALIDATION = {
    "acc": re.compile(r"^val-core/(?P<source>.+)/acc/mean@1$"),
    "reward": re.compile(r"^val-core/(?P<source>.+)/reward/mean@1$"),
    "acc_strict": re.compile(r"^val-aux/(?P<source>.+)/acc_strict/mean@1$"),
    "sampled": re.compile(r"^val-aux/(?P<source>.+)/acc/mean@(?!1$)\d+$"),
    "pass_n": re.compile(r"^val-aux/(?P<source>.+)/acc/best@\d+$"),
}
"""Measure → metric name; ``source`` is the data source."""

MEASURE_LABELS = {
    "acc": "accuracy (greedy)",
    "acc_strict": "accuracy (greedy, strict)",
    "reward": "reward (greedy)",
    "sampled": "accuracy (sampled)",
    "pass_n": "pass@N (sampled)",
    "sanity": "accuracy (sanity set)",
}

INCIDENTS = ("overlength", "oom", "nonfinite", "judge_invalid", "judge_error")
"""Counters ``incidents/<name>``: events of each step."""

LOSS = ("actor/pg_loss", "actor/loss")
"""Policy loss; the first that a run has."""


def validation_frame(metrics: pd.DataFrame) -> pd.DataFrame:
    """Tidy validation results.

    Returns:
        Columns arm, seed, step, measure, value; several data sources are averaged, and the sanity
        set is a measure of its own.
    """
    parts = []
    names = metrics["metric"].drop_duplicates()
    for measure, pattern in VALIDATION.items():
        for name in names:
            match = pattern.match(name)
            if not match:
                continue
            sanity = "sanity" in match["source"]
            if sanity and measure != "acc":
                continue
            part = metrics[metrics.metric == name]
            parts.append(part.assign(measure="sanity" if sanity else measure))
    if not parts:
        return pd.DataFrame(columns=["arm", "seed", "step", "measure", "value"])
    keys = ["arm", "seed", "step", "measure"]
    return pd.concat(parts).groupby(keys, as_index=False)["value"].mean()


def start_and_end(metrics: pd.DataFrame) -> pd.DataFrame:
    """First, last and best validation result of every run.

    Returns:
        Columns arm, seed, measure, start, final, gain, best, auc (mean height of the curve),
        drawdown (largest fall below the best so far). ``start`` is missing if there was no
        validation before training.
    """
    rows = []
    for (arm, seed, measure), part in validation_frame(metrics).groupby(["arm", "seed", "measure"]):
        part = part.sort_values("step")
        values = part["value"].to_numpy()
        start = float(values[0]) if part["step"].iloc[0] == 0 else np.nan
        rows.append(
            {
                "arm": arm,
                "seed": seed,
                "measure": measure,
                "start": start,
                "final": float(values[-1]),
                "gain": float(values[-1]) - start,
                "best": float(values.max()),
                "auc": area_under_curve(part["step"], values),
                "drawdown": largest_drawdown(values),
            }
        )
    columns = ["arm", "seed", "measure", "start", "final", "gain", "best", "auc", "drawdown"]
    return pd.DataFrame(rows, columns=columns)


def results_on_test(metrics: pd.DataFrame, name: str = "greedy") -> pd.DataFrame:
    """Result of every run on the test set: columns arm, seed, value."""
    part = metrics[metrics.metric == f"test/{name}"]
    return part[["arm", "seed", "value"]].reset_index(drop=True)


def series(metrics: pd.DataFrame, *names: str) -> pd.DataFrame:
    """Rows of that one of ``names`` which most runs have (the first of equals), sorted.

    One name for all runs: arms without a judge may lack a metric, and two almost identical metrics
    must not be mixed in one figure.
    """
    parts = [metrics[metrics.metric == name] for name in names]
    best = max(parts, key=lambda part: part[["arm", "seed"]].drop_duplicates().shape[0])
    return best.sort_values(["arm", "seed", "step"], ignore_index=True)


def incident_counts(metrics: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Incidents of every run that has metrics, summed over its steps; also of failed runs.

    Returns:
        Columns arm, seed, status, then one per kind of incident.
    """
    part = metrics[metrics.metric.isin([f"incidents/{kind}" for kind in INCIDENTS])]
    counts = part.groupby(["arm", "seed", "metric"])["value"].sum().unstack("metric")
    counts = counts.reindex(columns=[f"incidents/{kind}" for kind in INCIDENTS])
    counts.columns = pd.Index(INCIDENTS)
    merged = runs[["arm", "seed", "status"]].merge(
        counts.reset_index(), on=["arm", "seed"], how="left"
    )
    ran = ~merged.status.eq("missing")
    merged.loc[ran, list(INCIDENTS)] = merged.loc[ran, list(INCIDENTS)].fillna(0)
    return merged.astype(dict.fromkeys(INCIDENTS, "Int64"))


STABILITY = {
    "arm": "str",
    "seed": "int64",
    "loss_spikes": "int64",
    "grad_spikes": "int64",
    "grad_norm_max": "float64",
    "entropy_start": "float64",
    "entropy_end": "float64",
    "entropy_collapse": "Int64",
    "length_start": "float64",
    "length_end": "float64",
    "val_drawdown": "float64",
}
"""Columns of :func:`stability` and their types."""


def stability(metrics: pd.DataFrame) -> pd.DataFrame:
    """Stability of every run.

    Returns:
        Columns arm, seed, loss_spikes and grad_spikes (steps outside median ± 5·1.4826·MAD),
        grad_norm_max, entropy_start, entropy_end, entropy_collapse (the step at which it has
        collapsed; missing if it never does), length_start, length_end, val_drawdown.
    """
    drawdown = start_and_end(metrics)
    drawdown = drawdown[drawdown.measure == "acc"].set_index(["arm", "seed"])["drawdown"]
    rows = []
    for (arm, seed), part in metrics.groupby(["arm", "seed"]):
        loss = series(part, *LOSS)["value"]
        norm = series(part, "actor/grad_norm")["value"]
        entropies = series(part, "actor/ref_quality/avg_entropy", "actor/entropy")
        entropy, collapsed = entropies["value"], entropy_collapse(entropies["value"])
        length = series(part, "response_length/mean")["value"]
        rows.append(
            {
                "arm": arm,
                "seed": seed,
                "loss_spikes": count_spikes(loss),
                "grad_spikes": count_spikes(norm),
                "grad_norm_max": norm.max(),
                "entropy_start": entropy.iloc[0] if len(entropy) else np.nan,
                "entropy_end": entropy.iloc[-1] if len(entropy) else np.nan,
                "entropy_collapse": pd.NA if collapsed is None else entropies["step"][collapsed],
                "length_start": length.iloc[0] if len(length) else np.nan,
                "length_end": length.iloc[-1] if len(length) else np.nan,
                "val_drawdown": drawdown.get((arm, seed), np.nan),
            }
        )
    frame = pd.DataFrame(rows, columns=list(STABILITY))
    return frame.astype(STABILITY)
