"""M2's figures of weight against entropy, and of what both go with."""

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from refblend.ppo.blending import Placement
from refblend.ppo.weights import STRATEGIES
from refblend.study.report.m2.figures_weights import (
    ENTROPIES,
    ENTROPY,
    ENTROPY_LABEL,
    MARKERS,
    WEIGHT,
    function_values,
    weight_params,
)
from refblend.study.report.m2.labels import arm_labels, level_name
from refblend.study.report.m2.study import REPORT, M2Study, leads
from refblend.study.report.m2.words import Tables
from refblend.study.report.plotting.common import (
    Drawn,
    horizontal_interval,
    no_data,
    one_legend,
    value_limits,
)
from refblend.study.report.plotting.style import BASELINE_COLOUR, COLUMN, PLACEMENT_COLOURS


@REPORT.figure("{experiment}_weight_entropy", section="weight", each=leads)
def weight_against_entropy(study: M2Study, experiment: str) -> Drawn:
    """The path of every strategy through entropy and weight, with its function."""
    weight = study.metric(experiment, WEIGHT)
    entropy = study.metric(experiment, *ENTROPY)
    keys = ["arm", "seed", "step"]
    both = weight.merge(entropy, on=keys, suffixes=("_w", "_h"))
    arms = study.treated(experiment)
    names = [name for name in STRATEGIES if name in {study.resolved[a].blend for a in arms}]
    columns = max(1, min(4, len(names)))
    rows = max(1, -(-len(names) // columns))
    figure, axes = plt.subplots(
        rows, columns, figsize=(2 * COLUMN, 0.9 + 1.45 * rows), sharex=True, sharey=True,
        squeeze=False,
    )  # fmt: skip
    panels = list(axes.flat)
    for axis in panels[max(1, len(names)) :]:
        axis.remove()
    panels = panels[: max(1, len(names))]
    for axis in panels[-columns:]:
        axis.tick_params(labelbottom=True)
    colour = ScalarMappable(
        Normalize(1, max(2, int(both.step.max()) if len(both) else 2)), "viridis"
    )
    for axis, name in zip(panels, names, strict=False):
        shown = [arm for arm in arms if study.resolved[arm].blend == name]
        _strategy_panel(axis, study, name, shown, both, colour)
    limits = value_limits(both.value_h), value_limits([*both.value_w, 0.0])
    if limits[0] and limits[1]:
        panels[0].set(xlim=limits[0], ylim=limits[1])
        whole = MaxNLocator(integer=True)
        figure.colorbar(colour, ax=panels, label="step", fraction=0.03, pad=0.01, ticks=whole)
    else:
        no_data(panels[0])
    figure.supxlabel(ENTROPY_LABEL, fontsize="medium")
    figure.supylabel("weight w", fontsize="medium")
    marks = [
        Line2D([], [], linestyle="none", marker=MARKERS[place], color="#404040", markersize=4,
               label=level_name(place))
        for place in study.placements(experiment)
    ]  # fmt: skip
    line = Line2D([], [], color="#b0b0b0", label="the strategy's function")
    figure.legend(handles=[*marks, line], loc="outside upper center", ncols=3)
    return figure, (
        f"Experiment {experiment}: blending weight against batch-average entropy, one mark per "
        "step (mean over seeds), its colour the step and its shape the placement of the score; "
        "small dots: seeds. "
        "Grey: the weight as a function of the entropy, for strategies that have one. "
        "A mean of seeds on both sides of a bend lies off the line. "
        f"{study.origin(experiment)}"
    )


def _strategy_panel(
    axis: Axes, study: M2Study, name: str, arms: Sequence[str], both: pd.DataFrame, colour: Any
) -> None:
    axis.set_title(name)
    if STRATEGIES[name].reads_entropy and arms:
        values = function_values(name, weight_params(study, arms[0]))
        axis.plot(ENTROPIES, values, color="#b0b0b0", linewidth=1, zorder=1)
    for arm in arms:
        part = both[both.arm == arm]
        mean = part.groupby("step", as_index=False)[["value_h", "value_w"]].mean()
        axis.scatter(
            part.value_h, part.value_w, s=2, c=part.step, cmap=colour.cmap, norm=colour.norm,
            alpha=0.25, linewidths=0,
        )  # fmt: skip
        axis.scatter(
            mean.value_h, mean.value_w, s=11, c=mean.step, cmap=colour.cmap, norm=colour.norm,
            marker=MARKERS[study.resolved[arm].placement], linewidths=0, zorder=3,
        )  # fmt: skip
    if not both.arm.isin(arms).any():
        no_data(axis, "no finished run")


@REPORT.figure("{experiment}_weight_correlation", section="weight", each=leads)
def weight_correlation(study: M2Study, tables: Tables, experiment: str) -> Drawn:
    """Spearman's correlation of weight and of entropy with the validation accuracy."""
    table = tables["correlations"]
    table = table[table.y.str.contains("accuracy")]
    names = arm_labels(study, experiment)
    labels, places = list(dict.fromkeys(names.values())), study.placements(experiment)
    panels = (
        ("weight", "weight and validation accuracy"),
        ("avg_entropy", "entropy and validation accuracy"),
    )
    figure, axes = plt.subplots(
        1, 2, figsize=(2 * COLUMN, 1.0 + 0.27 * max(3, len(labels))), sharex=True, sharey=True
    )
    for axis, (name, title) in zip(axes, panels, strict=True):
        axis.set(title=title, xlabel="Spearman's ρ over the steps of a run", xlim=(-1.05, 1.05))
        axis.set_xticks([-1, -0.5, 0, 0.5, 1])
        axis.axvline(0, color=BASELINE_COLOUR, linewidth=0.8, linestyle="--", zorder=1)
        axis.grid(visible=False, axis="y")
        part = table[table.x == name].set_index("arm")
        for arm, label in names.items():
            if arm in part.index:
                place = places.index(study.resolved[arm].placement)
                shift = 0.17 * (2 * place - len(places) + 1)
                _correlation(axis, labels.index(label) + shift, part.loc[arm], places[place])
        if part.empty:
            no_data(axis)
    axes[0].set_yticks(range(len(labels)), labels)
    axes[0].set_ylim(max(len(labels), 1) - 0.4, -0.6)
    one_legend(figure, axes)
    return figure, (
        f"Experiment {experiment}: Spearman's correlation over the validated steps of a run, of "
        "the blending weight and of the batch-average entropy with the greedy validation accuracy. "
        "Marks: mean "
        "over seeds; bars: Student's 95 % interval, cut off at ±1. Both follow the steps: a "
        f"correlation is not causation. {study.origin(experiment)}"
    )


def _correlation(axis: Axes, place: float, row: pd.Series, placement: Placement) -> None:
    """One arm: mean and interval, or the reason why there is none."""
    colour = PLACEMENT_COLOURS[placement]
    if not np.isfinite(row["mean"]):
        side, sign = ("left", 1) if placement == "per_token" else ("right", -1)
        axis.text(
            0.04 * sign, place, row["note"], fontsize="x-small", va="center", ha=side, color=colour
        )
        return
    if np.isfinite(row["low"]):
        horizontal_interval(axis, place, row["low"], row["high"], color=colour, linewidth=1.5)
    axis.plot(
        row["mean"], place, MARKERS[placement], color=colour, markersize=4,
        label=f"placement {level_name(placement)}",
    )  # fmt: skip
