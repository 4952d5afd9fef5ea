"""Figures of milestone M3. Each function draws one figure and explains it in its caption."""

import math
import textwrap
from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from scipy import stats

from refblend.study.design.blocks import seed_ranges
from refblend.study.design.measures import MEASURES
from refblend.study.report.m3.study import REPORT, M3Study
from refblend.study.report.plotting import common as plot
from refblend.study.report.plotting.panels import BAND, curve_panels, weight_and_entropy
from refblend.study.report.plotting.reach import MISSED, detectable, draw_reach, missed_handle
from refblend.study.report.registry import Tables
from refblend.study.report.verdicts import decided_at, is_decided
from refblend.study.runs.curves import series, validation_frame
from refblend.study.runs.measures import wide

BESIDE = ("val_auc",)
"""Measures of the forest plot besides the contrasts' endpoints."""


@REPORT.figure("confirmation_forest", preview=True, pdf=True)
def confirmation_forest(study: M3Study, tables: Tables) -> plot.Drawn:
    """Paired differences with Student's interval, every seed, and what they can detect."""
    table, pairs = tables["confirmation"], study.confirmation.comparisons
    declared = tables["verdicts"].sort_values("primary", ascending=False, kind="stable").endpoint
    shown = list(dict.fromkeys((*declared, study.confirmation.endpoint, *BESIDE)))
    figure, axes = plot.panels(len(shown), len(shown), sharey=True)
    drawn: list[tuple[Axes, list[plot.Mark]]] = []
    for axis, measure in zip(axes, shown, strict=True):
        part = table[(table.measure == measure) & table["diff"].notna()]
        marks = forest_marks(study, part, decided_at(tables["verdicts"], measure))
        plot.draw_marks(axis, marks)
        for mark in marks:
            deviation = float(pd.Series(list(mark.seeds)).std(ddof=1))
            draw_reach(
                axis,
                mark.place,
                detectable(
                    deviation, len(list(mark.seeds)), len(part), study.confirmation.experiment.alpha
                ),
            )
        drawn.append((axis, marks))
        axis.set_xlabel(f"difference ({MEASURES[measure].unit})")
        axis.set_title(textwrap.fill(MEASURES[measure].label, 30), fontsize="small")
        axis.locator_params(axis="x", nbins=4)
    plot.stretch_middle(*drawn)
    plot.categories(axes[0], [f"{arm} − {against}" for arm, against in pairs])
    plot.one_legend(figure, axes, extra=[missed_handle()])
    counts = table[table.measure.isin(shown) & table["diff"].notna()].pairs
    return figure, (
        "Confirmation on seeds that were not used to choose: paired differences between arms, seed "
        f"by seed. {plot.BARS} Filled marks: decided, by the verdict of a declared contrast, else "
        "by the same rule for all comparisons of the panel; open marks: undecided. "
        f"{MISSED} with so many seeds, adjusted for all comparisons of the panel. Pairs of seeds: "
        f"{', '.join(map(str, sorted(set(counts)))) or 'none'}."
    )


def forest_marks(
    study: M3Study, part: pd.DataFrame, declared: Mapping[tuple[str, str], str]
) -> list[plot.Mark]:
    """A mark for each comparison of one measure that has values, open where it is undecided."""
    places = {pair: place for place, pair in enumerate(study.confirmation.comparisons)}
    marks = []
    for _, row in part.iterrows():
        pair = (row["arm"], row["baseline"])
        if pair in places:
            values = wide(study.values, row["measure"], study.confirmation.arms)
            seeds = (values[pair[0]] - values[pair[1]]).dropna()
            look: dict[str, Any] = {"colour": plot.RIGHT_COLOUR, "label": "mean"}
            look["filled"] = is_decided(pair, row, declared)
            marks.append(plot.difference_mark(places[pair], row, seeds, 0.22, **look))
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
    others = len(rows) - 1  # the baseline's difference to itself is none
    marks = []
    for place, row in enumerate(rows):
        colour = plot.WRONG_COLOUR if row.recommended else plot.RIGHT_COLOUR
        spread = deviation_of(row.diff, row.diff_high, row.n)
        sure = student_half(spread, row.n, 1 - 0.05 / max(1, others))
        marks.append(
            plot.Mark(
                place, row.diff, ((row.diff_low, row.diff_high, 1),), colour=colour,
                filled=bool(row.recommended or abs(row.diff) > sure),
            )
        )  # fmt: skip
        draw_reach(axis, place, detectable(spread, row.n, others))
    plot.draw_marks(axis, marks)
    axis.set_xlabel(f"difference to {record['baseline']} (share)")
    plot.one_legend(figure, (), extra=[missed_handle()])
    return figure, (
        f"The choice from M2: {record['measure']}, difference of every candidate to "
        f"{record['baseline']} with Student's 95 % interval (an arrow head: it goes on beyond "
        "the panel), not corrected for the number of candidates (seeds "
        f"{seed_ranges(record['seeds'])}). Filled marks: the choice, and what differs from "
        f"{record['baseline']} also after that correction. {MISSED} with so many seeds, corrected "
        f"likewise. Chosen by the rule: {record['arm']}. Its runs are M2's, not those below."
    )


def deviation_of(mean: float, high: float, n: int) -> float:
    """The deviation of n numbers whose mean has a Student's 95 % interval up to ``high``; 0 where
    there is none."""
    if n < 2 or not high > mean:
        return 0.0
    return float((high - mean) * n**0.5 / stats.t.ppf(0.975, n - 1))


def student_half(deviation: float, n: int, confidence: float) -> float:
    """Half the width of Student's interval of the mean; infinite without two numbers."""
    if n < 2:
        return math.inf
    return float(deviation / n**0.5 * stats.t.ppf((1 + confidence) / 2, n - 1))


REPORT.figure("weight_entropy", pdf=True)(weight_and_entropy)
