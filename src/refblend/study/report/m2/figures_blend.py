"""M2's figures of the blend: weight and entropy, their functions, and what they go with."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from refblend.ppo.blending import STRATEGIES, WeightParams, weight_for
from refblend.study.report.m2.figures_data import (
    PLACEMENT_NAMES,
    M2Data,
    strategy_colour,
    strategy_of,
)
from refblend.study.report.plotting.common import (
    Drawn,
    horizontal_interval,
    no_data,
    one_legend,
    value_limits,
)
from refblend.study.report.plotting.style import BASELINE_COLOUR, COLUMN, PLACEMENT_COLOURS

WEIGHT = "actor/ref_quality/weight"
ENTROPY = ("actor/ref_quality/avg_entropy", "actor/entropy")
ENTROPY_LABEL = "avg. entropy (nats)"
CONTROLS = ("shuffled", "random")
ENTROPIES = np.linspace(0.0, 1.5, 301)
PLACES = ("per_token", "terminal")
MARKERS = {"per_token": "o", "terminal": "^"}


def weight_params(data: M2Data, arm: str) -> WeightParams:
    """Parameters of an arm's strategy; what its configuration does not say has its default."""
    settings = data.score_settings(arm)
    names = {field.name for field in fields(WeightParams)} & set(settings)
    return WeightParams(**{name: settings[name] for name in names})


def function_values(strategy: str, params: WeightParams) -> list[float]:
    """The weight at every one of :data:`ENTROPIES`, after any warm-up."""
    last = max(1, params.max_weight_warmup_steps)
    return [weight_for(strategy, entropy, last, last, params) for entropy in ENTROPIES]


def weight_steps(data: M2Data) -> Drawn:
    """A: entropy and weight over the steps, all strategies in one panel."""
    quantities = (
        (ENTROPY_LABEL, data.metric("A", *ENTROPY)),
        ("weight w", data.metric("A", WEIGHT)),
    )
    figure, axes = plt.subplots(
        2, 2, figsize=(2 * COLUMN, 1.35 * COLUMN), sharex=True, sharey="row"
    )
    for row, (label, frame) in zip(axes, quantities, strict=True):
        means = frame.groupby(["arm", "step"], as_index=False)["value"].mean()
        for axis, place in zip(row, PLACES, strict=True):
            arms = [*data.baselines("A"), *data.treated("A", place)]
            for arm in arms:
                part = means[means.arm == arm]
                if len(part):
                    axis.plot(
                        part.step, part.value, label=strategy_of(arm), color=strategy_colour(arm),
                        linestyle="--" if strategy_of(arm) in CONTROLS else "-", linewidth=1.1,
                    )  # fmt: skip
            if not means.arm.isin(arms).any():
                no_data(axis)
        row[0].set_ylabel(label)
    for axis, place in zip(axes[0], PLACES, strict=True):
        axis.set_title(f"placement {PLACEMENT_NAMES[place]}")
    for axis in axes[1]:
        axis.set_xlabel("step")
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.align_ylabels(axes[:, 0])
    one_legend(figure, axes[0], ncols=5)
    return figure, (
        "Experiment A: batch-average entropy and blending weight over the steps, mean over seeds. "
        "The controls shuffled and random (dashed) have linear's weight. The baseline off has an "
        f"entropy and no weight. {data.origin('A')}"
    )


def weight_against_entropy(data: M2Data) -> Drawn:
    """A: the way of every strategy through entropy and weight, with its function."""
    entropy, weight = data.metric("A", *ENTROPY), data.metric("A", WEIGHT)
    keys = ["arm", "seed", "step"]
    both = weight.merge(entropy, on=keys, suffixes=("_w", "_h"))
    arms = [arm for place in PLACES for arm in data.treated("A", place)]
    names = [name for name in STRATEGIES if name in {strategy_of(arm) for arm in arms}]
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
        shown = [arm for arm in arms if strategy_of(arm) == name]
        _strategy_panel(axis, data, name, shown, both, colour)
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
               label=PLACEMENT_NAMES[place])
        for place in PLACES
    ]  # fmt: skip
    line = Line2D([], [], color="#b0b0b0", label="the strategy's function")
    figure.legend(handles=[*marks, line], loc="outside upper center", ncols=3)
    return figure, (
        "Experiment A: blending weight against batch-average entropy, one mark a step (mean over "
        "seeds), its colour the step and its shape the placement of the score; small dots: seeds. "
        "Grey: the weight as a function of the entropy; schedule has none, it follows the steps. "
        "A mean of seeds on both sides of a bend lies off the line. "
        f"{data.origin('A')}"
    )


def _strategy_panel(
    axis: Axes, data: M2Data, name: str, arms: Sequence[str], both: pd.DataFrame, colour: Any
) -> None:
    axis.set_title(name)
    if STRATEGIES[name].reads_entropy and arms:
        values = function_values(name, weight_params(data, arms[0]))
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
            marker=MARKERS[data.placement(arm)], linewidths=0, zorder=3,
        )  # fmt: skip
    if not both.arm.isin(arms).any():
        no_data(axis, "no finished run")


def weight_correlation(data: M2Data) -> Drawn:
    """A: Spearman's correlation of weight and of entropy with the validation accuracy."""
    table = data.tables["correlations"]
    table = table[table.y.str.contains("accuracy")]
    labels = list(dict.fromkeys(strategy_of(arm) for arm in data.treated("A")))
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
        for arm in data.treated("A"):
            if arm in part.index:
                shift = -0.17 if data.placement(arm) == "per_token" else 0.17
                _correlation(
                    axis, labels.index(strategy_of(arm)) + shift, part.loc[arm], data.placement(arm)
                )
        if part.empty:
            no_data(axis)
    axes[0].set_yticks(range(len(labels)), labels)
    axes[0].set_ylim(max(len(labels), 1) - 0.4, -0.6)
    one_legend(figure, axes)
    return figure, (
        "Experiment A: Spearman's correlation over the validated steps of a run, of the blending "
        "weight and of the batch-average entropy with the greedy validation accuracy. Marks: mean "
        "over seeds; bars: Student's 95 % interval, cut off at ±1. Both follow the steps: a "
        f"correlation is no cause. {data.origin('A')}"
    )


def _correlation(axis: Axes, place: float, row: pd.Series, placement: str) -> None:
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
        label=f"placement {PLACEMENT_NAMES[placement]}",
    )  # fmt: skip


def weight_functions(data: M2Data) -> Drawn:
    """The weight as a function of the entropy, over the entropies that the runs saw."""
    params = weight_params(data, data.baselines("A")[0]) if data.baselines("A") else WeightParams()
    figure, (top, bottom) = plt.subplots(
        2, 1, figsize=(COLUMN, 1.2 * COLUMN), sharex=True, height_ratios=[3, 1.5]
    )
    for name in (name for name, strategy in STRATEGIES.items() if strategy.reads_entropy):
        top.plot(ENTROPIES, function_values(name, params), color=strategy_colour(name), label=name)
    threshold = params.entropy_high_threshold
    for axis in (top, bottom):
        axis.axvline(threshold, color=BASELINE_COLOUR, linewidth=0.8, linestyle="--", zorder=1)
    top.annotate(
        f"τ = {threshold:g}", (threshold, 0.97), xycoords=top.get_xaxis_transform(),
        xytext=(3, 0), textcoords="offset points", fontsize="x-small", va="top",
    )  # fmt: skip
    top.set(ylabel="weight w", ylim=(-0.02 * params.max_weight, 1.12 * params.max_weight))
    seen = data.metric("A", *ENTROPY)
    groups = {
        "no judge": (data.baselines("A"), BASELINE_COLOUR),
        **{
            PLACEMENT_NAMES[place]: (data.treated("A", place), PLACEMENT_COLOURS[place])
            for place in PLACES
        },
    }
    for name, (arms, colour) in groups.items():
        values = seen[seen.arm.isin(arms)]["value"]
        if len(values):
            bottom.hist(
                values.clip(0, ENTROPIES[-1]), bins=30, range=(0, ENTROPIES[-1]), histtype="step",
                weights=np.full(len(values), 1 / len(values)), color=colour, label=name,
            )  # fmt: skip
    if seen.empty:
        no_data(bottom)
    else:
        bottom.legend(fontsize="x-small", loc="upper left", handlelength=1)
    bottom.set(xlabel=ENTROPY_LABEL, ylabel="share of steps", xlim=(0, ENTROPIES[-1]))
    figure.align_ylabels([top, bottom])
    one_legend(figure, [top], ncols=3)
    return figure, (
        "The weight as a function of the batch-average entropy for every strategy that has one, "
        f"with max_weight {params.max_weight:g} and τ = {threshold:g} nats (dashed), above the "
        f"entropies of experiment A's training steps ({len(seen)} steps of all runs): arms without "
        "a judge and under both placements. Values beyond 1.5 nats stand in the last bin. "
        f"{data.origin('A')}"
    )
