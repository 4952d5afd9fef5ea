"""Validation and test results of every run: curves, start, end and best."""

import re

import numpy as np
import pandas as pd

from refblend.study.stats.statistics import area_under_curve, largest_drawdown
from refblend.trainer.drift import SANITY_SOURCE

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
            sanity = match["source"] == SANITY_SOURCE
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
