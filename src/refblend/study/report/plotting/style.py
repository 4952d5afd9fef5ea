"""One look for all figures: column width, a colour-blind palette, deterministic files."""

from collections.abc import Iterable
from itertools import cycle
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import seaborn as sns
from matplotlib.figure import Figure

from refblend.files import atomic_path
from refblend.ppo.weights import STRATEGIES

COLUMN = 3.5
"""Width of one column in inches; figures are one or two columns wide."""

BASELINE_COLOUR = "#595959"
RIGHT_COLOUR = "#0173b2"
WRONG_COLOUR = "#d55e00"

STRATEGY_PALETTE = (
    "#0173b2",
    "#de8f05",
    "#029e73",
    "#cc78bc",
    "#d55e00",
    "#8c5a2b",
    "#56b4e9",
    "#b6a700",
    "#7f3c8d",
    "#2f8f8f",
)
"""Colours of the strategies in the order of their registry; with more strategies they repeat."""

CONTROL_COLOURS = {"shuffled": "#332288", "random": "#999933"}
"""Colours of the controls, which have a strategy too."""

PLACEMENT_COLOURS = {"per_token": "#0173b2", "terminal": "#de8f05", "per_token_mean": "#029e73"}
LEVEL_COLOURS = ("#0173b2", "#d55e00", "#029e73")
"""Colours of a knob's few levels."""


def strategy_colours() -> dict[str, str]:
    """The colour of every registered strategy and of the controls, the same in all figures."""
    return dict(zip(STRATEGIES, cycle(STRATEGY_PALETTE), strict=False)) | CONTROL_COLOURS


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
