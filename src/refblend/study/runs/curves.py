"""Metrics over training steps, and measures derived from them."""

import re
from collections.abc import Sequence

import numpy as np
import pandas as pd

from refblend.study.stats.statistics import (
    area_under_curve,
    count_spikes,
    entropy_collapse,
    largest_drawdown,
)
from refblend.trainer.guards import SANITY_SOURCE


def series(metrics: pd.DataFrame, *names: str) -> pd.DataFrame:
    """Rows of whichever of ``names`` most runs recorded (the first of equals), sorted.

    One name for all runs: arms without a judge may lack a metric, and two almost identical metrics
    must not be mixed in one figure.
    """
    parts = [metrics[metrics.metric == name] for name in names]
    best = max(parts, key=lambda part: part[["arm", "seed"]].drop_duplicates().shape[0])
    return best.sort_values(["arm", "seed", "step"], ignore_index=True)


VALIDATION = {
    "acc": re.compile(r"^val-core/(?P<source>.+)/acc/mean@1$"),
    "reward": re.compile(r"^val-core/(?P<source>.+)/reward/mean@1$"),
    "acc_strict": re.compile(r"^val-aux/(?P<source>.+)/acc_strict/mean@1$"),
    "sampled": re.compile(r"^val-aux/(?P<source>.+)/acc/mean@(?!1$)\d+$"),
    "pass_n": re.compile(r"^val-aux/(?P<source>.+)/acc/best@\d+$"),
}
"""Measure → metric name; ``source`` is the data source."""


def validation_frame(metrics: pd.DataFrame) -> pd.DataFrame:
    """Tidy validation results.

    Returns:
        Columns arm, seed, step, measure, value; several data sources are averaged, and the sanity
        set is a measure of its own.
    """
    parts = []
    for measure, pattern in VALIDATION.items():
        for name in metrics["metric"].drop_duplicates():
            match = pattern.match(name)
            sanity = match is not None and match["source"] == SANITY_SOURCE
            if match and (not sanity or measure == "acc"):
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
        final, best = float(values[-1]), float(values.max())
        area, fall = area_under_curve(part["step"], values), largest_drawdown(values)
        rows.append((arm, seed, measure, start, final, final - start, best, area, fall))
    columns = ["arm", "seed", "measure", "start", "final", "gain", "best", "auc", "drawdown"]
    return pd.DataFrame(rows, columns=columns)


def results_on_test(metrics: pd.DataFrame, name: str = "greedy") -> pd.DataFrame:
    """Result of every run on the test set: columns arm, seed, value."""
    part = metrics[metrics.metric == f"test/{name}"]
    return part[["arm", "seed", "value"]].reset_index(drop=True)


LOSS = ("actor/pg_loss", "actor/loss")
"""Policy loss; the first that a run has."""

ENTROPY = ("actor/ref_quality/avg_entropy", "actor/entropy")
"""Entropy of the actor; the first that a run has."""

GRADIENT, LENGTH = "actor/grad_norm", "response_length/mean"

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
"""Columns of :func:`stability` and their types. Spikes are steps outside median ± 5·1.4826·MAD;
``entropy_collapse`` is the step at which it has collapsed, missing if it never does."""


def course(run: pd.DataFrame, names: Sequence[str]) -> pd.Series:
    """The first of ``names`` that a run recorded, by training step; empty if it recorded none.

    ``run`` has the rows of one run, all its metrics. Frames of metrics have no row where a value
    was not finite, so a step from the metric's first one on that only other metrics have is NaN.
    """
    recorded = set(run.metric)
    name = next((each for each in names if each in recorded), None)
    found = run[run.metric == name].set_index("step")["value"].sort_index()
    steps = np.sort(run.step[run.step > 0].unique())
    return found.reindex(steps[steps >= found.index.min()]) if len(found) else found


def stability(metrics: pd.DataFrame) -> pd.DataFrame:
    """One row per run, with the columns of :data:`STABILITY`."""
    drawdown = start_and_end(metrics)
    drawdown = drawdown[drawdown.measure == "acc"].set_index(["arm", "seed"])["drawdown"]
    keys, rows = ["arm", "seed"], []
    steps = metrics[metrics.step > 0][[*keys, "step"]].drop_duplicates()
    # Few metrics, and the steps of all of them: `course` goes over every name of a run.
    needed = metrics[metrics.metric.isin([*LOSS, *ENTROPY, GRADIENT, LENGTH])]
    needed = pd.concat([needed, steps.assign(metric="", value=np.nan)])
    for (arm, seed), run in needed.groupby(keys):
        loss, entropy, norm, length = (
            course(run, names) for names in (LOSS, ENTROPY, [GRADIENT], [LENGTH])
        )
        collapsed = entropy_collapse(entropy)
        rows.append(
            {
                "arm": arm,
                "seed": seed,
                "loss_spikes": count_spikes(loss),
                "grad_spikes": count_spikes(norm),
                "grad_norm_max": norm.max(),
                "entropy_collapse": pd.NA if collapsed is None else entropy.index[collapsed],
                "val_drawdown": drawdown.get((arm, seed), np.nan),
                **_ends("entropy", entropy),
                **_ends("length", length),
            }
        )
    return pd.DataFrame(rows, columns=list(STABILITY)).astype(STABILITY)


def _ends(name: str, values: pd.Series) -> dict[str, float]:
    known = values.dropna()
    first, last = (known.iloc[0], known.iloc[-1]) if len(known) else (np.nan, np.nan)
    return {f"{name}_start": first, f"{name}_end": last}
