"""Figures of milestone M3. Each function draws one figure and explains it in its caption."""

import textwrap
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from refblend.study.design.measures import MEASURES
from refblend.study.report.m3.study import REPORT, M3Study
from refblend.study.report.plotting import common as plot
from refblend.study.report.plotting.panels import BAND, curve_panels, weight_and_entropy
from refblend.study.report.registry import Tables
from refblend.study.runs.curves import series, validation_frame
from refblend.study.runs.measures import wide

BESIDE = ("val_auc",)
"""Measures of the forest plot besides the contrasts' endpoints."""


@REPORT.figure("confirmation_forest", preview=True, pdf=True)
def confirmation_forest(study: M3Study, tables: Tables) -> plot.Drawn:
    """Paired differences with Student's interval, the bootstrap's, and every seed."""
    table, pairs = tables["confirmation"], study.confirmation.comparisons
    declared = tables["verdicts"].sort_values("primary", ascending=False, kind="stable").endpoint
    shown = list(dict.fromkeys((*declared, study.confirmation.endpoint, *BESIDE)))
    figure, axes = plot.panels(len(shown), len(shown), sharey=True)
    drawn: list[tuple[Axes, list[plot.Mark]]] = []
    for axis, measure in zip(axes, shown, strict=True):
        part = table[(table.measure == measure) & table["diff"].notna()]
        marks = forest_marks(study, part, measure)
        plot.draw_marks(axis, marks)
        drawn.append((axis, marks))
        axis.set_xlabel(f"difference ({MEASURES[measure].unit})")
        axis.set_title(textwrap.fill(MEASURES[measure].label, 30), fontsize="small")
        axis.locator_params(axis="x", nbins=4)
    plot.stretch_middle(*drawn)
    plot.categories(axes[0], [f"{arm} − {against}" for arm, against in pairs])
    plot.one_legend(figure, axes)
    counts = table[table.measure.isin(shown) & table["diff"].notna()].pairs
    return figure, (
        "Confirmation on seeds that were not used to choose: paired differences between arms, seed "
        f"by seed. {plot.BARS} Pairs of seeds: "
        f"{', '.join(map(str, sorted(set(counts)))) or 'none'}."
    )


def forest_marks(study: M3Study, part: pd.DataFrame, measure: str) -> list[plot.Mark]:
    """A mark for each comparison of a measure that has values."""
    values = wide(study.values, measure, study.confirmation.arms)
    places = {pair: place for place, pair in enumerate(study.confirmation.comparisons)}
    marks = []
    for _, row in part.iterrows():
        arm, baseline = row["arm"], row["baseline"]
        if (arm, baseline) in places:
            seeds, place = (values[arm] - values[baseline]).dropna(), places[arm, baseline]
            look: dict[str, Any] = {"colour": plot.RIGHT_COLOUR, "label": "mean"}
            marks.append(plot.difference_mark(place, row, seeds, 0.22, **look))
    return marks


@REPORT.figure("learning_curves", pdf=True)
def learning_curves(study: M3Study) -> plot.Drawn:
    """Greedy validation accuracy and training reward over the steps."""
    validation = validation_frame(study.metrics)
    frames = {
        "validation accuracy (greedy)": validation[validation.measure == "acc"],
        "rule reward in training": series(study.metrics, "critic/score/mean"),
    }
    figure, _ = curve_panels(frames, study.colours)
    return figure, (
        "Learning on the fresh seeds: greedy validation accuracy (step 0: before any update) and "
        f"mean rule reward of the training responses. {BAND}"
    )


@REPORT.figure("candidates", pdf=True)
def candidates(study: M3Study, tables: Tables) -> plot.Drawn:
    """The choice: every candidate's difference to the baseline by the measure of the choice."""
    record, frame = study.record, tables["candidates"]
    size = (1.5 * plot.COLUMN, 0.6 + 0.16 * max(4, len(frame)))
    figure, (axis,) = plot.panels(1, 1, figsize=size)
    rows = list(frame.sort_values("diff", ascending=False, kind="stable").itertuples())
    names = [f"{row.arm}{' (chosen)' if row.recommended else ''}" for row in rows]
    plot.categories(axis, names, fontsize="x-small")
    colours = [plot.WRONG_COLOUR if row.recommended else plot.RIGHT_COLOUR for row in rows]
    marks = [
        plot.Mark(place, row.diff, ((row.diff_low, row.diff_high, 1),), colour=colours[place])
        for place, row in enumerate(rows)
    ]
    plot.draw_marks(axis, marks)
    axis.set_xlabel(f"difference to {record['baseline']} (share)")
    return figure, (
        f"The choice from M2: {record['measure']}, difference of every candidate to "
        f"{record['baseline']} with Student's 95 % interval (an arrow head: it goes on beyond "
        "the panel), not corrected for the number of candidates (seeds "
        f"{', '.join(map(str, record['seeds']))}). Chosen by the rule: "
        f"{record['arm']}. Its runs are M2's, not those below."
    )


REPORT.figure("weight_entropy", pdf=True)(weight_and_entropy)
