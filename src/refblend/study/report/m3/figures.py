"""Figures of milestone M3. Each function draws one figure and explains it in its caption."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from refblend.study.report.m3.study import REPORT, M3Study
from refblend.study.report.plotting.common import BAND, Drawn, curves, no_data, one_legend
from refblend.study.report.plotting.panels import weight_and_entropy
from refblend.study.report.plotting.style import (
    BASELINE_COLOUR,
    COLUMN,
    RIGHT_COLOUR,
    WRONG_COLOUR,
)
from refblend.study.report.registry import Tables
from refblend.study.runs.measures import MEASURES
from refblend.study.runs.series import series
from refblend.study.runs.validation import validation_frame

BESIDE = ("val_final", "val_auc")
"""Measures of the forest plot besides the endpoint."""


@REPORT.figure("confirmation_forest", preview=True)
def confirmation_forest(study: M3Study, tables: Tables) -> Drawn:
    """Paired differences with Student's interval, the bootstrap's, and every seed."""
    table = tables["confirmation"]
    shown = list(dict.fromkeys((study.confirmation.endpoint, *BESIDE)))
    figure, axes = plt.subplots(
        1, len(shown), figsize=(2 * COLUMN, 0.75 * COLUMN), sharey=True, squeeze=False
    )
    numbers: set[int] = set()
    for axis, measure in zip(axes.flat, shown, strict=True):
        part = table[(table.measure == measure) & table["diff"].notna()]
        _forest(axis, part, study, measure)
        axis.set_xlabel(f"difference ({MEASURES[measure].unit})")
        axis.set_title(MEASURES[measure].label, fontsize="small")
        numbers |= {int(count) for count in part.pairs}
    pairs = study.confirmation.comparisons
    axes[0, 0].set_yticks(range(len(pairs)), [f"{arm} − {against}" for arm, against in pairs])
    axes[0, 0].set_ylim(len(pairs) - 0.5, -0.5)
    one_legend(figure, axes.flat)
    return figure, (
        "Confirmation on seeds that were not used to choose: paired differences between arms, seed "
        "by seed. Thin bars: Student's 95 % interval; thick bars: 95 % bootstrap interval, too "
        "narrow with few seeds; small marks: seeds. Pairs of seeds: "
        f"{', '.join(map(str, sorted(numbers))) or 'none'}."
    )


def _forest(axis: Axes, part: pd.DataFrame, study: M3Study, measure: str) -> None:
    """One panel; a comparison without values leaves its line empty."""
    axis.axvline(0, color=BASELINE_COLOUR, linewidth=0.8, linestyle="--")
    axis.grid(visible=False, axis="y")
    values = study.values[study.values.measure == measure]
    values = values.pivot(index="seed", columns="arm", values="value")
    for place, (arm, against) in enumerate(study.confirmation.comparisons):
        for row in part[(part.arm == arm) & (part.baseline == against)].itertuples():
            axis.hlines(place, row.diff_low, row.diff_high, linewidth=1, color=RIGHT_COLOUR)
            bounds = (row.diff_boot_low, row.diff_boot_high)
            axis.hlines(place, *bounds, linewidth=3, color=RIGHT_COLOUR)
            axis.plot(row.diff, place, "o", color=RIGHT_COLOUR, markersize=5, label="mean")
            seeds = (values[arm] - values[against]).dropna()
            beside = np.full(len(seeds), place + 0.22)
            axis.plot(seeds, beside, "|", color="#595959", markersize=5, label="seeds")
    if part.empty:
        no_data(axis)


@REPORT.figure("learning_curves")
def learning_curves(study: M3Study) -> Drawn:
    """Greedy validation accuracy and training reward over the steps."""
    validation = validation_frame(study.metrics)
    figure, axes = plt.subplots(1, 2, figsize=(2 * COLUMN, 0.75 * COLUMN))
    accuracy = validation[validation.measure == "acc"]
    curves(axes[0], accuracy, study.colours, "validation accuracy (greedy)")
    reward = series(study.metrics, "critic/score/mean")
    curves(axes[1], reward, study.colours, "rule reward in training")
    one_legend(figure, axes)
    return figure, (
        "Learning on the fresh seeds: greedy validation accuracy (step 0: before any update) and "
        f"mean rule reward of the training responses. {BAND}"
    )


@REPORT.figure("candidates")
def candidates(study: M3Study, tables: Tables) -> Drawn:
    """The choice: every candidate's difference to the baseline by the measure of the choice."""
    record, frame = study.record, tables["candidates"]
    figure, axis = plt.subplots(figsize=(1.5 * COLUMN, 0.6 + 0.16 * max(4, len(frame))))
    axis.axvline(0, color=BASELINE_COLOUR, linewidth=0.8, linestyle="--")
    if frame.empty:
        no_data(axis)
    else:
        frame = frame.sort_values("diff", kind="stable").reset_index(drop=True)
        for row in frame.itertuples():
            colour = WRONG_COLOUR if row.recommended else RIGHT_COLOUR
            axis.hlines(row.Index, row.diff_low, row.diff_high, linewidth=1, color=colour)
            axis.plot(row.diff, row.Index, "o", markersize=4, color=colour)
        names = [f"{row.arm}{' (chosen)' if row.recommended else ''}" for row in frame.itertuples()]
        axis.set_yticks(range(len(names)), names, fontsize="x-small")
        axis.set_ylim(-0.7, len(names) - 0.3)
    axis.set_xlabel(f"difference to {record['baseline']} (share)")
    return figure, (
        f"The choice from M2: {record['measure']}, difference of every candidate to "
        f"{record['baseline']} with Student's 95 % interval, not corrected for the number of "
        f"candidates (seeds {', '.join(map(str, record['seeds']))}). Chosen by the rule: "
        f"{record['arm']}. Its runs are M2's, commit {record['commit']}, not those below."
    )


@REPORT.figure("weight_entropy")
def weight_entropy(study: M3Study) -> Drawn:
    """Blending weight and entropy over time, and against one another."""
    return weight_and_entropy(study.metrics, study.colours)
