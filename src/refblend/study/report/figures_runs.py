"""Figures of the course of runs: training, judge, weight, correlations; and of the choice."""

from typing import Any

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from refblend.ppo.choices import PLACEMENTS
from refblend.ppo.weights import STRATEGIES, WeightParams, weight_for
from refblend.study.report import style as plot
from refblend.study.report.figures import Tables, colour_of, level_name
from refblend.study.report.readable import words
from refblend.study.report.study import Study
from refblend.study.report.tables import ACCURACY, WEIGHT
from refblend.study.runs.collect import STEP
from refblend.study.runs.measures import ENTROPY, GRADIENT, LENGTH, LOSS, series

ENTROPY_LABEL = "avg. entropy (nats)"
ENTROPIES = np.linspace(0.0, 1.5, 301)
SHAPES = dict(zip(PLACEMENTS, "o^s", strict=True))
TRAINING = {
    "rule reward": ("critic/score/mean", "critic/rewards/mean"),
    ENTROPY_LABEL: ENTROPY,
    "policy loss": LOSS,
    "gradient norm": (GRADIENT,),
    "weight w": (WEIGHT,),
    "response length (tokens)": (LENGTH,),
    "corr(reward, length)": ("actor/ref_quality/reward_length_corr",),
    "valid scores (share)": ("actor/ref_quality/valid_rate",),
    "non-zero scores (share)": ("actor/ref_quality/nonzero_rate",),
}
"""Panels of the training curves beside the validation accuracy, and their metrics."""


def training(study: Study, tables: Tables, experiment: str) -> plot.Drawn:
    """The course of training of every arm."""
    frames = {"val. accuracy (greedy)": study.of(experiment, study.accuracy)}
    frames |= {name: study.metric(experiment, *found) for name, found in TRAINING.items()}
    frames = {name: frame for name, frame in frames.items() if len(frame)}
    figure, axes = plot.panels(len(frames), 3, 0.5 * plot.COLUMN, sharex=True)
    colours = {arm: colour_of(study, arm) for arm in study.arms(experiment)}
    for axis, (name, frame) in zip(axes, frames.items(), strict=False):
        plot.curves(axis, frame, colours)
        axis.set_title(name)
    figure.supxlabel("step", fontsize="medium")
    plot.one_legend(figure, axes)
    return figure, "Lines: mean over seeds; bands, from three seeds on: 95 % intervals."


def weight_params(study: Study, arm: str) -> WeightParams:
    """Parameters of an arm's strategy; τ of ``auto`` is the mean over its runs."""
    settings = study.resolved[arm].config.algorithm.ref_quality_score
    entropy = series(study.metrics[study.metrics.arm == arm], *ENTROPY)
    return WeightParams.of(settings, entropy.groupby("seed")["value"].first().mean())


def weight_steps(study: Study, tables: Tables, experiment: str) -> plot.Drawn:
    """Entropy and weight over the steps, all strategies in one panel per facet."""
    rows = {ENTROPY_LABEL: study.metric(experiment, *ENTROPY)}
    rows["weight w"] = study.metric(experiment, WEIGHT)
    facets, bases = study.facets(experiment), study.baselines(experiment)
    count, height = len(facets), 0.68 * plot.COLUMN
    figure, axes = plot.panels(2 * count, count, height, sharex=True, sharey="row")
    for place, (name, frame) in enumerate(rows.items()):
        for axis, (level, arms) in zip(axes[place * count :], facets.items(), strict=False):
            for arm in [*bases, *arms]:
                means = frame[frame.arm == arm].groupby("step")["value"].mean()
                line = "--" if study.resolved[arm].is_control else "-"
                look: dict[str, Any] = {"color": colour_of(study, arm), "linestyle": line}
                axis.plot(means.index, means, label=study.resolved[arm].blend, **look)
            axis.set_title(level_name(level) if place == 0 else "")
            axis.set_xlabel("step" if place else "")
        axes[place * count].set_ylabel(name)
    plot.one_legend(figure, axes[:count], ncols=5)
    return figure, "Batch-average entropy and weight, mean over seeds. Dashed: controls."


def weight_entropy(study: Study, tables: Tables, experiment: str) -> plot.Drawn:
    """The path of every strategy through entropy and weight, with its function."""
    weight, entropy = study.metric(experiment, WEIGHT), study.metric(experiment, *ENTROPY)
    both = weight.merge(entropy, on=STEP, suffixes=("_w", "_h"))
    blends = {arm: study.resolved[arm].blend for arm in study.treated(experiment)}
    names = [name for name in STRATEGIES if name in blends.values()]
    figure, axes = plot.panels(len(names), 4, 0.5 * plot.COLUMN, sharex=True, sharey=True)
    colour = ScalarMappable(Normalize(1, both.step.max() if len(both) else 2), "viridis")
    style: dict[str, Any] = {"cmap": colour.cmap, "norm": colour.norm, "linewidths": 0}
    for axis, name in zip(axes, names, strict=False):
        arms = [arm for arm in blends if blends[arm] == name]
        axis.set_title(name)
        if STRATEGIES[name].reads_entropy:
            params = weight_params(study, arms[0])
            last = max(1, params.max_weight_warmup_steps)
            values = [weight_for(name, entropy, last, last, params) for entropy in ENTROPIES]
            axis.plot(ENTROPIES, values, color="#b0b0b0", linewidth=1, zorder=1)
        part = both[both.arm.isin(arms)]
        axis.scatter(part.value_h, part.value_w, s=2, c=part.step, alpha=0.25, **style)
        for arm, own in part.groupby("arm"):
            mean = own.groupby("step", as_index=False)[["value_h", "value_w"]].mean()
            look = style | {"marker": SHAPES[study.resolved[str(arm)].score.placement], "zorder": 3}
            axis.scatter(mean.value_h, mean.value_w, s=11, c=mean.step, **look)
    if len(both):
        axes[0].set(
            xlim=plot.value_limits(both.value_h), ylim=plot.value_limits([*both.value_w, 0.0])
        )
        whole = MaxNLocator(integer=True)
        figure.colorbar(colour, ax=axes, label="step", fraction=0.03, pad=0.01, ticks=whole)
    figure.supxlabel(ENTROPY_LABEL, fontsize="medium")
    figure.supylabel("weight w", fontsize="medium")
    mark: dict[str, Any] = {"linestyle": "none", "color": plot.INK, "markersize": 4}
    places = {study.resolved[arm].score.placement for arm in blends}
    marks = [
        Line2D([], [], marker=shape, label=level_name(place), **mark)
        for place, shape in SHAPES.items()
        if place in places
    ]
    plot.one_legend(figure, (), extra=marks)
    return figure, (
        "Weight against batch-average entropy over time: a mark for each step (mean over seeds), "
        "small dots for seeds, in grey the strategy's function."
    )


def correlation(study: Study, tables: Tables, experiment: str) -> plot.Drawn:
    """Correlation of weight and validation accuracy over the steps, with and without the trend."""
    runs = study.of(experiment, tables["correlations_per_seed"])
    runs = runs[(runs.x == "weight") & (runs.y == ACCURACY)]
    arms = [arm for arm in study.treated(experiment) if arm in set(runs.arm)]
    size = (2 * plot.COLUMN, 0.8 + 0.2 * max(3, len(arms)))
    figure, axes = plot.panels(2, 2, figsize=size, sharey=True)
    titles = {"rho": "over the steps", "rho_of_changes": "of changes between validations"}
    for axis, (column, title) in zip(axes, titles.items(), strict=True):
        known = {i: runs[runs.arm == arm][column].dropna() for i, arm in enumerate(arms)}
        marks = [
            plot.mean_mark(i, own, 1.6, beside=0.27, colour=colour_of(study, arms[i]))
            for i, own in known.items()
            if len(own)
        ]
        plot.draw_marks(axis, marks, (-1.05, 1.05))
        axis.set(title=title, xlabel="Spearman's correlation")
    plot.categories(axes[0], [words(arm) for arm in arms], fontsize="x-small")
    return figure, (
        "Correlation of the weight with the greedy validation accuracy within a run. Left: both "
        "follow the training, so it shows the trend; right: without it. Bars: 95 % intervals over "
        "seeds; ticks: single seeds. A constant weight has none."
    )
