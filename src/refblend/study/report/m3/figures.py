"""Figures of milestone M3. Each function draws one and says in its caption what it shows."""

from collections.abc import Callable
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from refblend.files import write_json
from refblend.study.report.m3.study import BASELINE, DEFAULTS, RECOMMENDED, M3Study
from refblend.study.report.m3.tables import confirmation
from refblend.study.report.plotting.common import BAND, Drawn, curves, no_data, one_legend
from refblend.study.report.plotting.panels import weight_and_entropy
from refblend.study.report.plotting.style import (
    BASELINE_COLOUR,
    COLUMN,
    apply_style,
    arm_colours,
    save_figure,
)
from refblend.study.runs.measures import series, validation_frame
from refblend.study.runs.origin import origin
from refblend.study.runs.run_measures import MEASURES

FOREST = {
    "test_greedy": "test accuracy",
    "val_final": "validation, final",
    "val_auc": "validation, whole curve",
}
"""Measures of the forest plot with their titles, the headline first."""

COMPARISONS = {
    (RECOMMENDED, BASELINE): "recommended − off",
    (DEFAULTS, BASELINE): "linear − off",
    (RECOMMENDED, DEFAULTS): "recommended − linear",
}


def confirmation_forest(study: M3Study) -> Drawn:
    """Paired differences with Student's interval, the bootstrap's, and every seed."""
    table = confirmation(study)
    table = table.assign(arm=table.arm.str.split().str[0])
    figure, axes = plt.subplots(
        1, len(FOREST), figsize=(2 * COLUMN, 0.75 * COLUMN), sharey=True, squeeze=False
    )
    numbers = set()
    for axis, (measure, title) in zip(axes.flat, FOREST.items(), strict=True):
        part = table[(table.measure == measure) & table.baseline.notna()]
        _forest(axis, part, study, measure)
        axis.set_xlabel(f"difference ({MEASURES[measure].unit})")
        axis.set_title(title, fontsize="small")
        numbers |= {int(count) for count in part.pairs.dropna()}
    axes[0, 0].set_yticks(range(len(COMPARISONS)), list(COMPARISONS.values()))
    axes[0, 0].set_ylim(len(COMPARISONS) - 0.5, -0.5)
    one_legend(figure, axes.flat)
    shown = ", ".join(map(str, sorted(numbers))) or "none"
    return figure, (
        "Confirmation on seeds that chose nothing: paired differences between arms, seed by seed. "
        "Thin bars: Student's 95 % interval; thick bars: 95 % bootstrap interval, too narrow with "
        f"few seeds; small marks: single seeds. Pairs of seeds: {shown}."
    )


def _forest(axis: Axes, part: pd.DataFrame, study: M3Study, measure: str) -> None:
    """One panel; a comparison without values leaves its line empty."""
    axis.axvline(0, color=BASELINE_COLOUR, linewidth=0.8, linestyle="--")
    axis.grid(visible=False, axis="y")
    values = study.values[study.values.measure == measure]
    values = values.pivot(index="seed", columns="arm", values="value")
    for place, pair in enumerate(COMPARISONS):
        rows = part[(part.arm == pair[0]) & (part.baseline == pair[1]) & part["diff"].notna()]
        for row in rows.itertuples():
            axis.hlines(place, row.diff_low, row.diff_high, linewidth=1, color="#0173b2")
            axis.hlines(place, row.diff_boot_low, row.diff_boot_high, linewidth=3, color="#0173b2")
            axis.plot(row.diff, place, "o", color="#0173b2", markersize=5, label="mean")
            seeds = (values[pair[0]] - values[pair[1]]).dropna()
            axis.plot(
                seeds, np.full(len(seeds), place + 0.22), "|", color="#595959", markersize=5,
                label="seeds",
            )  # fmt: skip
    if part["diff"].notna().sum() == 0:
        no_data(axis)


def learning_curves(study: M3Study) -> Drawn:
    """Greedy validation accuracy and training reward over the steps."""
    metrics = study.collected.counted_metrics
    colours = arm_colours(study.collected.runs.arm, BASELINE)
    validation = validation_frame(metrics)
    figure, axes = plt.subplots(1, 2, figsize=(2 * COLUMN, 0.75 * COLUMN))
    accuracy = validation[validation.measure == "acc"]
    curves(axes[0], accuracy, colours, "validation accuracy (greedy)")
    reward = series(metrics, "critic/score/mean")
    curves(axes[1], reward, colours, "rule reward in training")
    one_legend(figure, axes)
    return figure, (
        "Learning on the fresh seeds: greedy validation accuracy (step 0: before any update) and "
        f"mean rule reward of the training responses. {BAND}"
    )


def candidates(study: M3Study) -> Drawn:
    """The choice: mean of the measure of every candidate and its difference to the baseline."""
    frame = pd.DataFrame(study.record["candidates"])
    figure, axis = plt.subplots(figsize=(1.5 * COLUMN, 0.6 + 0.16 * max(4, len(frame))))
    axis.axvline(0, color=BASELINE_COLOUR, linewidth=0.8, linestyle="--")
    if frame.empty:
        no_data(axis)
    else:
        frame = frame.sort_values("diff", kind="stable").reset_index(drop=True)
        for row in frame.itertuples():
            colour = "#d55e00" if row.recommended else "#0173b2"
            axis.hlines(row.Index, row.diff_low, row.diff_high, linewidth=1, color=colour)
            axis.plot(row.diff, row.Index, "o", markersize=4, color=colour)
        names = [f"{row.arm}{' (chosen)' if row.recommended else ''}" for row in frame.itertuples()]
        axis.set_yticks(range(len(names)), names, fontsize="x-small")
        axis.set_ylim(-0.7, len(names) - 0.3)
    axis.set_xlabel(f"difference to {study.record['baseline']} (share)")
    seeds = ", ".join(map(str, study.record["seeds"]))
    return figure, (
        f"The choice from M2: {study.record['measure']}, difference of every candidate to "
        f"{study.record['baseline']} with Student's 95 % interval, not corrected for the number "
        f"of candidates (seeds {seeds}). Chosen by the rule: {study.record['arm']}. Runs of M2, "
        f"commit {study.record['commit']}."
    )


def blend(study: M3Study) -> Drawn:
    """Weight and entropy, drawn as in M1."""
    colours = arm_colours(study.collected.runs.arm, BASELINE)
    return weight_and_entropy(study.collected.counted_metrics, colours)


FIGURES: dict[str, Callable[[M3Study], Drawn]] = {
    "confirmation_forest": confirmation_forest,
    "learning_curves": learning_curves,
    "candidates": candidates,
    "weight_entropy": blend,
}


def write_m3_figures(study: M3Study, out: str | Path) -> dict[str, str]:
    """Draw all figures below ``out`` and write ``captions.json``; returns the captions."""
    apply_style()
    captions = {}
    for name, draw in FIGURES.items():
        figure, shows = draw(study)
        save_figure(figure, Path(out) / name)
        more = "" if name == "candidates" else f" {origin(study.collected)}"
        captions[name] = shows + more
    write_json(Path(out) / "captions.json", captions)
    return captions
