"""M2's figures of the blending weight: as a function, over the steps, and against the entropy."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from refblend.ppo.choices import PLACEMENTS
from refblend.ppo.weights import STRATEGIES, WeightParams, weight_for
from refblend.study.report.m2.figures_learning import facet_rows
from refblend.study.report.m2.study import REPORT, M2Study, leads, level_name
from refblend.study.report.plotting import common as plot
from refblend.study.report.plotting.panels import (
    ENTROPY,
    ENTROPY_LABEL,
    KEYS,
    WEIGHT,
)
from refblend.study.runs.curves import series

ENTROPIES = np.linspace(0.0, 1.5, 301)
SHAPES = dict(zip(PLACEMENTS, "o^s", strict=True))


def function_values(strategy: str, params: WeightParams) -> list[float]:
    """The weight at every one of :data:`ENTROPIES`, after any warm-up."""
    last = max(1, params.max_weight_warmup_steps)
    return [weight_for(strategy, entropy, last, last, params) for entropy in ENTROPIES]


def weight_params(study: M2Study, arm: str) -> WeightParams:
    """Parameters of an arm's strategy; τ of ``auto`` is the mean over its runs."""
    settings = study.resolved[arm].config.algorithm.ref_quality_score
    first = series(study.metrics[study.metrics.arm == arm], *ENTROPY).sort_values("step")
    initial = first.groupby("seed")["value"].first().mean()
    return WeightParams.of(settings, initial)


@REPORT.figure("{experiment}_weight_functions", section="weight", each=leads)
def weight_functions(study: M2Study, experiment: str) -> plot.Drawn:
    """The weight as a function of the entropy, over the entropies that the runs saw."""
    params = weight_params(study, study.experiments[experiment].baseline)
    size: dict[str, Any] = {"figsize": (plot.COLUMN, 1.2 * plot.COLUMN), "height_ratios": [3, 1.5]}
    figure, (top, bottom) = plot.panels(2, 1, sharex=True, **size)
    for name in (name for name, strategy in STRATEGIES.items() if strategy.reads_entropy):
        colour = plot.strategy_colours()[name]
        top.plot(ENTROPIES, function_values(name, params), color=colour, label=name)
    threshold = params.entropy_high_threshold
    for axis in (top, bottom):
        axis.axvline(threshold, color=plot.BASELINE_COLOUR, linewidth=0.8, linestyle="--", zorder=1)
    top.annotate(
        f"τ = {threshold:g}", (threshold, 0.97), xycoords=top.get_xaxis_transform(),
        xytext=(3, 0), textcoords="offset points", fontsize="x-small", va="top",
    )  # fmt: skip
    top.set(ylabel="weight w", ylim=(-0.02 * params.max_weight, 1.12 * params.max_weight))
    seen = study.metric(experiment, *ENTROPY)
    for place in (None, *study.placements(experiment)):
        arms = study.treated(experiment) if place else study.baselines(experiment)
        arms = [arm for arm in arms if place in (None, study.resolved[arm].placement)]
        values = seen[seen.arm.isin(arms)]["value"].clip(0, ENTROPIES[-1])
        if len(values):
            colour = plot.PLACEMENT_COLOURS[place] if place else plot.BASELINE_COLOUR
            look: dict[str, Any] = {
                "color": colour,
                "label": level_name(place) if place else "no judge",
            }
            share = np.full(len(values), 1 / len(values))
            bins: dict[str, Any] = {"bins": 30, "range": (0, ENTROPIES[-1]), "histtype": "step"}
            bottom.hist(values, weights=share, **bins, **look)
    if seen.empty:
        plot.no_data(bottom)
    else:
        bottom.legend(fontsize="x-small", loc="upper left", handlelength=1)
    bottom.set(xlabel=ENTROPY_LABEL, ylabel="share of steps", xlim=(0, ENTROPIES[-1]))
    figure.align_ylabels([top, bottom])
    plot.one_legend(figure, [top], ncols=3)
    return figure, (
        "The weight as a function of the batch-average entropy for every strategy that has one, "
        f"with max_weight {params.max_weight:g} and τ = {threshold:g} nats (dashed), above the "
        f"entropies of experiment {experiment}'s training steps ({len(seen)} steps of all runs): "
        "arms without a judge and under each placement. Values beyond 1.5 nats are in the last "
        f"bin. {study.origin(experiment)}"
    )


@REPORT.figure("{experiment}_weight_steps", section="weight", each=leads)
def weight_steps(study: M2Study, experiment: str) -> plot.Drawn:
    """Entropy and weight over the steps, all strategies in one panel per facet."""
    frames = {
        ENTROPY_LABEL: study.metric(experiment, *ENTROPY),
        "weight w": study.metric(experiment, *WEIGHT),
    }
    bases = study.baselines(experiment)
    facets = {level: [*bases, *arms] for level, arms in study.facets(experiment).items()}
    arms = [study.resolved[arm] for arm in [*bases, *study.treated(experiment)]]
    looks = {arm.name: (arm.blend, study.colour(arm.name)) for arm in arms}
    options = {"seeds": False, "dashed": {arm.blend for arm in arms if arm.control != "none"}}
    figure, axes = facet_rows(frames, facets, 0.68 * plot.COLUMN, looks, **options)
    for axis, level in zip(axes, facets, strict=False):
        axis.set_title(f"{study.experiments[experiment].facet or ''} {level_name(level)}".strip())
    plot.one_legend(figure, axes[: len(facets)], ncols=5)
    return figure, (
        f"Experiment {experiment}: batch-average entropy and blending weight over the steps, mean "
        "over seeds. Controls (dashed) have the weight of their strategy. Without a judge there is "
        f"an entropy and no weight. {study.origin(experiment)}"
    )


@REPORT.figure("{experiment}_weight_entropy", section="weight", each=leads)
def weight_against_entropy(study: M2Study, experiment: str) -> plot.Drawn:
    """The path of every strategy through entropy and weight, with its function."""
    weight, entropy = study.metric(experiment, *WEIGHT), study.metric(experiment, *ENTROPY)
    both = weight.merge(entropy, on=KEYS, suffixes=("_w", "_h"))
    blends = {arm: study.resolved[arm].blend for arm in study.treated(experiment)}
    names = [name for name in STRATEGIES if name in blends.values()]
    figure, axes = plot.panels(len(names), 4, 0.5 * plot.COLUMN, sharex=True, sharey=True)
    colour = ScalarMappable(Normalize(1, both.step.max() if len(both) else 2), "viridis")
    for axis, name in zip(axes, names, strict=False):
        arms = [arm for arm in blends if blends[arm] == name]
        axis.set_title(name)
        if STRATEGIES[name].reads_entropy:
            values = function_values(name, weight_params(study, arms[0]))
            axis.plot(ENTROPIES, values, color="#b0b0b0", linewidth=1, zorder=1)
        _seeds_and_means(axis, study, both[both.arm.isin(arms)], colour)
    if len(both):
        axes[0].set(
            xlim=plot.value_limits(both.value_h), ylim=plot.value_limits([*both.value_w, 0.0])
        )
        whole = MaxNLocator(integer=True)
        figure.colorbar(colour, ax=axes, label="step", fraction=0.03, pad=0.01, ticks=whole)
    figure.supxlabel(ENTROPY_LABEL, fontsize="medium")
    figure.supylabel("weight w", fontsize="medium")
    mark: dict[str, Any] = {"linestyle": "none", "color": plot.INK, "markersize": 4}
    marks = [
        Line2D([], [], marker=SHAPES[place], label=level_name(place), **mark)
        for place in study.placements(experiment)
    ]
    line = Line2D([], [], color="#b0b0b0", label="the strategy's function")
    plot.one_legend(figure, (), extra=[*marks, line])
    return figure, (
        f"Experiment {experiment}: blending weight against batch-average entropy, one mark per "
        "step (mean over seeds), its colour the step and its shape the placement of the score; "
        "small dots: seeds. "
        "Grey: the weight as a function of the entropy, for strategies that have one. "
        "A mean of seeds on both sides of a bend lies off the line. "
        f"{study.origin(experiment, arms=list(blends))}"
    )


def _seeds_and_means(
    axis: Axes, study: M2Study, both: pd.DataFrame, colour: ScalarMappable
) -> None:
    """Every step of the seeds as a dot, and their mean as a mark of the arm's placement."""
    if both.empty:
        plot.no_data(axis, "no finished run")
    style: dict[str, Any] = {"cmap": colour.cmap, "norm": colour.norm, "linewidths": 0}
    axis.scatter(both.value_h, both.value_w, s=2, c=both.step, alpha=0.25, **style)
    for arm, part in both.groupby("arm"):
        mean = part.groupby("step", as_index=False)[["value_h", "value_w"]].mean()
        shape = SHAPES[study.resolved[str(arm)].placement]
        axis.scatter(mean.value_h, mean.value_w, s=11, c=mean.step, marker=shape, zorder=3, **style)
