"""M2's differences to the baseline against the quality of the judge."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from refblend.study.report.m2.labels import arm_colour
from refblend.study.report.m2.study import REPORT, M2Study, varies_judge
from refblend.study.report.plotting.common import (
    Drawn,
    no_data,
    one_legend,
    value_limits,
    vertical_interval,
)
from refblend.study.report.plotting.style import BASELINE_COLOUR, COLUMN
from refblend.study.runs.measures import label
from refblend.study.stats.statistics import Interval, student_interval

Point = tuple[str, pd.DataFrame, Interval]
"""An arm, its seeds (columns auc, gain), and the interval of its mean gain."""

NAME_WIDTH = 0.24
"""Room that a judge's name needs, as a share of the panel."""


@REPORT.figure("{experiment}_judge_quality", each=varies_judge)
def judge_quality(study: M2Study, experiment: str) -> Drawn:
    """Difference to the baseline against the judge's AUC in training, by strategy."""
    points = measured_arms(study, experiment)
    strategies = list(dict.fromkeys(study.resolved[arm].strategy for arm, *_ in points))
    figure, axis = plt.subplots(figsize=(COLUMN, 0.95 * COLUMN))
    axis.axhline(0, color=BASELINE_COLOUR, linewidth=0.8, linestyle="--", zorder=1)
    axis.set(xlabel="judge's AUC on the training responses", ylabel="difference to the baseline")
    seeds_all = [value for _, seeds, _ in points for value in seeds["gain"]]
    limits = value_limits([*seeds_all, 0.0], [b for *_, i in points for b in (i.low, i.high)])
    if points and limits:
        axis.set_ylim(*limits)
    else:
        no_data(axis)
    shift = _shift([seeds["auc"].mean() for _, seeds, _ in points])
    for arm, seeds, interval in points:
        strategy = study.resolved[arm].strategy
        number = strategies.index(strategy)
        colour, marker = arm_colour(study, arm), "osD^v"[number % 5]
        place = seeds["auc"].mean() + (2 * number - len(strategies) + 1) * shift
        if np.isfinite(interval.low):
            vertical_interval(axis, place, interval.low, interval.high, color=colour, linewidth=1.6)
        axis.plot(seeds["auc"], seeds["gain"], marker, color=colour, markersize=3, alpha=0.6,
                  markeredgewidth=0)  # fmt: skip
        axis.plot(place, interval.estimate, marker, color=colour, markersize=5, zorder=5,
                  label=f"{strategy} weight")  # fmt: skip
    _name_judges(axis, study, points)
    one_legend(figure, [axis])
    return figure, (
        f"Experiment {experiment}: mean paired difference to the baseline in "
        f"{label(study.experiments[experiment].endpoint)} against the judge's AUC on the training "
        "responses (mean over steps and seeds), of the arms that its contrasts compare, by "
        "strategy. Bars: Student's 95 % interval, an arrow head where it goes on beyond the panel; "
        "small marks: seeds. Where two means have almost one AUC they are set apart. "
        f"{study.origin(experiment)}"
    )


def measured_arms(study: M2Study, experiment: str) -> list[Point]:
    """The arms that the contrasts are about, with the seeds that have AUC and difference."""
    auc, values = study.wide(experiment, "judge_auc"), study.endpoint(experiment)
    points: list[Point] = []
    for arm in study.subjects(experiment):
        gain = values[arm] - values[study.baseline(experiment, arm)]
        seeds = pd.DataFrame({"auc": auc[arm], "gain": gain}).dropna()
        if len(seeds):
            points.append((arm, seeds, student_interval(seeds["gain"])))
    return points


def _shift(places: Sequence[float]) -> float:
    """Half the distance that keeps two marks at one place apart."""
    return max(0.02 * (max(places) - min(places)), 0.002) if places else 0.0


def _name_judges(axis: Axes, study: M2Study, points: Sequence[Point]) -> None:
    """The judges' names above the panel, each with a line to the mean AUC of its arms."""
    means = {
        judge: float(np.mean([seeds["auc"].mean() for arm, seeds, _ in points if arm in arms]))
        for judge in dict.fromkeys(study.resolved[arm].judge for arm, *_ in points)
        if (arms := [arm for arm, *_ in points if study.resolved[arm].judge == judge])
    }
    left, right = axis.get_xlim()
    place = -np.inf
    for number, (judge, mean) in enumerate(sorted(means.items(), key=lambda item: item[1])):
        room = 1.0 - NAME_WIDTH * (len(means) - 1 - number)
        place = max(min((mean - left) / (right - left), room), place + NAME_WIDTH)
        axis.annotate(
            judge, (mean, 1.0), xycoords=axis.get_xaxis_transform(), xytext=(place, 1.06),
            textcoords="axes fraction", ha="center", va="bottom", fontsize="small",
            arrowprops={"arrowstyle": "-", "linewidth": 0.5, "color": "#808080", "shrinkB": 0},
        )  # fmt: skip
