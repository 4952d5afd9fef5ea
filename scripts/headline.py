"""Figures of the texts, drawn by `make figures` from results/cpu: docs/assets/headline.png, every
regime at its absolute level, and docs/assets/alignment.png, alignment against outcome.
"""

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.lines import Line2D

from refblend.study.design.spec import load_experiment
from refblend.study.report import style as plot
from refblend.study.report.alignment import REGIMES
from refblend.study.stats.statistics import student_interval

ROOT = Path(__file__).parents[1]
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


def regimes(steps: pd.DataFrame) -> plot.Drawn:
    """Accuracy by regime and role; one that has not been trained is left out.

    ``steps``: ``runs.parquet`` (arm, seed, test/sampled, test/greedy).
    """
    tested = steps.dropna(subset=list(MEASURES))
    figure, axes = plot.panels(2, 2)
    for axis, (column, label) in zip(axes, MEASURES.items(), strict=True):
        marks = []
        for kind, by_role in enumerate(ARMS.values()):
            for place, (role, arms) in enumerate(zip(ROLES, by_role, strict=True)):
                values = tested.loc[tested.arm.isin(arms), column]
                if len(values):
                    found = student_interval(values)
                    bars = ((found.low, found.high, 1.6),)
                    at = kind + 0.18 * (place - 1.5)
                    marks.append(plot.Mark(at, found.estimate, bars, colour=COLOURS[role]))
        plot.categories(axis, list(ARMS), upright=True)
        plot.draw_marks(axis, marks, upright=True, zero=False)
        axis.set(xlabel="rule reward", ylabel=label)
    look: dict[str, Any] = {"marker": "o", "linestyle": "none"}
    shown = {mark.colour for mark in marks}
    lines = [
        Line2D([], [], color=colour, label=role, **look)
        for role, colour in COLOURS.items()
        if colour in shown
    ]
    plot.one_legend(figure, (), extra=lines)
    return figure, (
        "Test accuracy after training, mean of the seeds with its 95 % interval. off: no blend; "
        "judge: a constant weight of 0.3 on the last token; shuffled: the judge's scores in random "
        "order (exact: with the weight `linear`); oracle: partial credit from the gold solution."
    )


def alignment(arms: pd.DataFrame, predicted: Collection[str]) -> plot.Drawn:
    """Alignment against the outcome; arms on which it was predicted are filled.

    ``arms``: ``alignment.csv`` of reports (arm, regime, alignment, test_sampled).
    """
    figure, (axis,) = plot.panels(1, 1, figsize=(1.6 * plot.COLUMN, 1.1 * plot.COLUMN))
    for name, part in arms.groupby("regime"):
        for filled, some in part.groupby(part.arm.isin(predicted)):
            face = REGIMES[name] if filled else "none"
            look: dict[str, Any] = {"linestyle": "none", "marker": "o", "markersize": 5}
            label = f"{name}, the test" if filled else name
            colours = {"color": REGIMES[name], "markerfacecolor": face, "label": label}
            axis.plot(some.alignment, some.test_sampled, **look, **colours)
    axis.set(xlabel="alignment at step 5", ylabel="sampled test accuracy")
    plot.one_legend(figure, [axis])
    return figure, "Alignment at step 5 against sampled test accuracy of every arm of M2 and M3."


def main() -> None:
    """Draw them."""
    plot.apply_style()
    results, assets = ROOT / "results" / "cpu", ROOT / "docs" / "assets"
    tables = [pd.read_csv(results / name / "tables" / "alignment.csv") for name in ("m2", "m3")]
    tested = load_experiment(ROOT / "params" / "study" / "noisy_entropy.yaml").arms
    tables[1] = tables[1].replace({"noisy_off": "noisy_off of M3"})  # other seeds
    for name, (figure, caption) in {
        "headline": regimes(pd.read_parquet(results / "runs.parquet")),
        "alignment": alignment(pd.concat(tables), tested),
    }.items():
        plot.write_figure(figure, assets / f"{name}.png")
        print(caption)


if __name__ == "__main__":
    main()
