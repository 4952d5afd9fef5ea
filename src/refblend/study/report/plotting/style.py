"""One look for all figures: column width, a colour-blind palette, deterministic files."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import seaborn as sns
from matplotlib.figure import Figure

from refblend.files import atomic_path

COLUMN = 3.5
"""Width of one column in inches; figures are one or two columns wide."""

BASELINE_COLOUR = "#595959"
RIGHT_COLOUR = "#0173b2"
WRONG_COLOUR = "#d55e00"

STRATEGY_COLOURS = {
    "linear": "#0173b2",
    "cosine": "#de8f05",
    "exp": "#029e73",
    "piecewise": "#cc78bc",
    "constant": "#d55e00",
    "inverse": "#8c5a2b",
    "schedule": "#56b4e9",
    "shuffled": "#332288",
    "random": "#999933",
}
"""Arms of experiment A; a strategy has its colour in all figures."""

PLACEMENT_COLOURS = {"per_token": "#0173b2", "terminal": "#de8f05", "per_token_mean": "#029e73"}
LEVEL_COLOURS = ("#0173b2", "#d55e00", "#029e73")
"""Colours of a knob's few levels."""


def apply_style() -> None:
    """Set the style; call it before a figure is made."""
    sns.set_theme(context="paper", style="ticks", palette="colorblind", font_scale=0.9)
    plt.rcParams.update(
        {
            "svg.hashsalt": "refblend",  # element ids are the same in every run
            "figure.constrained_layout.use": True,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "grid.alpha": 0.3,
            "grid.linewidth": 0.5,
            "lines.linewidth": 1.4,
            "legend.frameon": False,
            "figure.dpi": 100,
        }
    )


def arm_colours(arms: Iterable[str], baseline: str) -> dict[str, Any]:
    """A colour an arm, the baseline in grey; the same in all figures of a milestone."""
    others = [arm for arm in dict.fromkeys(arms) if arm != baseline]
    palette = sns.color_palette("colorblind", max(1, len(others)))
    return {baseline: BASELINE_COLOUR} | dict(zip(others, palette, strict=False))


def save_figure(figure: Figure, stem: str | Path) -> None:
    """Write ``<stem>.svg`` and ``<stem>.png`` without dates, then close the figure."""
    for suffix, metadata in (("svg", {"Date": None}), ("png", {"Software": None})):
        with atomic_path(f"{stem}.{suffix}") as temporary:
            figure.savefig(temporary, format=suffix, dpi=200, metadata=metadata)
    plt.close(figure)
