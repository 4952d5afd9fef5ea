"""Figures that several reports draw alike."""

from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd

from refblend.study.report.plotting.common import BAND, Drawn, curves, no_data, one_legend
from refblend.study.report.plotting.style import COLUMN
from refblend.study.runs.series import series


def weight_and_entropy(metrics: pd.DataFrame, colours: Mapping[str, Any]) -> Drawn:
    """Blending weight and entropy over time, and against one another, of arms with a judge.

    Args:
        metrics: of finished runs.
        colours: arm → colour.
    """
    figure, axes = plt.subplots(1, 3, figsize=(2 * COLUMN, 0.75 * COLUMN))
    blended = set(series(metrics, "actor/ref_quality/weight").arm)
    metrics = metrics[metrics.arm.isin(blended)]
    weight = series(metrics, "actor/ref_quality/weight")
    entropy = series(metrics, "actor/ref_quality/avg_entropy")
    curves(axes[0], entropy, colours, "avg. entropy (nats)")
    curves(axes[1], weight, colours, "weight w")
    keys = ["arm", "seed", "step"]
    both = weight.merge(entropy, on=keys, suffixes=("_w", "_h"))
    for arm, part in both.groupby("arm"):
        axes[2].scatter(part.value_h, part.value_w, s=6, alpha=0.6, color=colours[arm], label=arm)
    axes[2].set(xlabel="avg. entropy (nats)", ylabel="weight w")
    if both.empty:
        no_data(axes[2])
    one_legend(figure, axes[:2])
    return figure, (
        "Blending weight and batch-average entropy of the arms with a judge: over the training "
        f"steps, and weight against entropy with one point per step and run. {BAND}"
    )
