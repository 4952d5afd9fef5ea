"""M2's figures of the blending weight: its functions of the entropy, and both over the steps."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import MaxNLocator

from refblend.ppo.blending import PLACEMENTS
from refblend.ppo.weights import STRATEGIES, WeightParams, weight_for
from refblend.study.report.m2.labels import arm_colour, level_name
from refblend.study.report.m2.study import REPORT, M2Study, leads
from refblend.study.report.plotting.common import Drawn, no_data, one_legend
from refblend.study.report.plotting.style import (
    BASELINE_COLOUR,
    COLUMN,
    PLACEMENT_COLOURS,
    strategy_colours,
)

WEIGHT = "actor/ref_quality/weight"
ENTROPY = ("actor/ref_quality/avg_entropy", "actor/entropy")
ENTROPY_LABEL = "avg. entropy (nats)"
ENTROPIES = np.linspace(0.0, 1.5, 301)
MARKERS = dict(zip(PLACEMENTS, "o^s", strict=True))


def function_values(strategy: str, params: WeightParams) -> list[float]:
    """The weight at every one of :data:`ENTROPIES`, after any warm-up."""
    last = max(1, params.max_weight_warmup_steps)
    return [weight_for(strategy, entropy, last, last, params) for entropy in ENTROPIES]


def weight_params(study: M2Study, arm: str) -> WeightParams:
    """Parameters of an arm's strategy."""
    return WeightParams.of(study.resolved[arm].config.algorithm.ref_quality_score)


@REPORT.figure("{experiment}_weight_functions", section="weight", each=leads)
def weight_functions(study: M2Study, experiment: str) -> Drawn:
    """The weight as a function of the entropy, over the entropies that the runs saw."""
    params = weight_params(study, study.experiments[experiment].baseline)
    figure, (top, bottom) = plt.subplots(
        2, 1, figsize=(COLUMN, 1.2 * COLUMN), sharex=True, height_ratios=[3, 1.5]
    )
    for name in (name for name, strategy in STRATEGIES.items() if strategy.reads_entropy):
        top.plot(
            ENTROPIES, function_values(name, params), color=strategy_colours()[name], label=name
        )
    threshold = params.entropy_high_threshold
    for axis in (top, bottom):
        axis.axvline(threshold, color=BASELINE_COLOUR, linewidth=0.8, linestyle="--", zorder=1)
    top.annotate(
        f"τ = {threshold:g}", (threshold, 0.97), xycoords=top.get_xaxis_transform(),
        xytext=(3, 0), textcoords="offset points", fontsize="x-small", va="top",
    )  # fmt: skip
    top.set(ylabel="weight w", ylim=(-0.02 * params.max_weight, 1.12 * params.max_weight))
    seen = study.metric(experiment, *ENTROPY)
    groups = {"no judge": (study.baselines(experiment), BASELINE_COLOUR)}
    for place in study.placements(experiment):
        arms = [arm for arm in study.treated(experiment) if study.resolved[arm].placement == place]
        groups[level_name(place)] = (arms, PLACEMENT_COLOURS[place])
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
        f"entropies of experiment {experiment}'s training steps ({len(seen)} steps of all runs): "
        "arms without a judge and under each placement. Values beyond 1.5 nats are in the last "
        "bin. "
        f"{study.origin(experiment)}"
    )


@REPORT.figure("{experiment}_weight_steps", section="weight", each=leads)
def weight_steps(study: M2Study, experiment: str) -> Drawn:
    """Entropy and weight over the steps, all strategies in one panel per facet."""
    quantities = (
        (ENTROPY_LABEL, study.metric(experiment, *ENTROPY)),
        ("weight w", study.metric(experiment, WEIGHT)),
    )
    facets = study.facets(experiment)
    figure, axes = plt.subplots(
        2, max(1, len(facets)), figsize=(2 * COLUMN, 1.35 * COLUMN), sharex=True, sharey="row",
        squeeze=False,
    )  # fmt: skip
    for row, (label, frame) in zip(axes, quantities, strict=True):
        means = frame.groupby(["arm", "step"], as_index=False)["value"].mean()
        for axis, treated in zip(row, facets.values(), strict=False):
            arms = [*study.baselines(experiment), *treated]
            for arm in arms:
                part, control = means[means.arm == arm], study.resolved[arm].control != "none"
                if len(part):
                    axis.plot(
                        part.step, part.value, label=study.resolved[arm].blend,
                        color=arm_colour(study, arm), linestyle="--" if control else "-",
                        linewidth=1.1,
                    )  # fmt: skip
            if not means.arm.isin(arms).any():
                no_data(axis)
        row[0].set_ylabel(label)
    for axis, level in zip(axes[0], facets, strict=False):
        axis.set_title(f"{study.experiments[experiment].facet or ''} {level_name(level)}".strip())
    for axis in axes[1]:
        axis.set_xlabel("step")
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.align_ylabels(axes[:, 0])
    one_legend(figure, axes[0], ncols=5)
    return figure, (
        f"Experiment {experiment}: batch-average entropy and blending weight over the steps, mean "
        "over seeds. Controls (dashed) have the weight of their strategy. Without a judge there is "
        f"an entropy and no weight. {study.origin(experiment)}"
    )
