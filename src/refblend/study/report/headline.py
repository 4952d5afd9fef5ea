"""The figure of the README: every regime at its absolute level, from the committed runs."""

from typing import Any

import pandas as pd
from matplotlib.lines import Line2D

from refblend.study.report import style as plot
from refblend.study.stats.statistics import student_interval

ROLES = ("off", "judge", "shuffled", "oracle")
COLOURS = dict(zip(ROLES, (plot.BASELINE_COLOUR, *plot.PALETTE[:3]), strict=True))
ARMS = {
    "exact": (("off",), ("constant_terminal",), ("shuffled_terminal",), ("oracle",)),
    "noisy": (
        ("noisy_off",), ("noisy_judge", "noisy_challenger"), ("noisy_shuffled",), ("noisy_oracle",)
    ),
    "sparse": (
        ("sparse_off",), ("sparse_judge", "sparse_challenger"), ("sparse_shuffled",),
        ("sparse_oracle",),
    ),
}  # fmt: skip
"""Regime → the arms of each role."""
MEASURES = {"test/sampled": "sampled test accuracy", "test/greedy": "greedy test accuracy"}


def regimes(steps: pd.DataFrame, runs: pd.DataFrame) -> plot.Drawn:
    """Accuracy by regime and role, one mark for each set of starting models.

    ``steps``: ``runs.parquet`` (arm, seed, test/sampled, test/greedy); ``runs``: ``runs.csv`` (arm,
    seed, models).
    """
    tested = steps.dropna(subset=list(MEASURES)).merge(runs[["arm", "seed", "models"]])
    tested["start"] = tested.models.str.partition(";")[0]
    figure, axes = plot.panels(2, 2)
    for axis, (column, label) in zip(axes, MEASURES.items(), strict=True):
        marks = []
        for kind, by_role in enumerate(ARMS.values()):
            for place, (role, arms) in enumerate(zip(ROLES, by_role, strict=True)):
                groups = tested[tested.arm.isin(arms)].groupby("start")[column]
                for shift, (_, values) in enumerate(groups):
                    at = kind + 0.2 * (place - 1.5) + 0.07 * shift
                    found = student_interval(values)
                    bars = ((found.low, found.high, 1.6),)
                    marks.append(plot.Mark(at, found.estimate, bars, colour=COLOURS[role]))
        plot.categories(axis, list(ARMS), upright=True)
        plot.draw_marks(axis, marks, upright=True, zero=False)
        axis.set(xlabel="rule reward", ylabel=label)
    look: dict[str, Any] = {"marker": "o", "linestyle": "none"}
    lines = [Line2D([], [], color=colour, label=role, **look) for role, colour in COLOURS.items()]
    plot.one_legend(figure, (), extra=lines)
    return figure, (
        "Test accuracy after 20 steps, mean of 8 to 40 seeds with its 95 % interval; neighbouring "
        "marks of one colour started from different models. off: no blend; judge: a constant "
        "weight of 0.3 on the last token; shuffled: the judge's scores in random order (exact: "
        "with the weight `linear`); oracle: partial credit from the gold solution."
    )
