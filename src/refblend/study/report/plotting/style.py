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

PALETTE = tuple(sns.color_palette("colorblind").as_hex())
BASELINE_COLOUR = "#595959"
RIGHT_COLOUR, WRONG_COLOUR = PALETTE[0], PALETTE[3]

STRATEGY_PALETTE = (
    "#0173b2", "#de8f05", "#029e73", "#cc78bc", "#d55e00",
    "#8c5a2b", "#56b4e9", "#b6a700", "#7f3c8d", "#2f8f8f",
)  # fmt: skip
"""Colours of the strategies in the order of their registry; with more strategies they repeat."""

CONTROL_COLOURS = {"shuffled": "#332288", "random": "#999933", "oracle": "#882255"}
"""Colours of the controls, which have a strategy too."""

PLACEMENT_COLOURS = {"per_token": "#0173b2", "terminal": "#de8f05", "per_token_mean": "#029e73"}
LEVEL_COLOURS = ("#0173b2", "#d55e00", "#029e73")
"""Colours of a parameter's few levels."""

STYLE: dict[str, Any] = {
    "svg.hashsalt": "refblend",  # element ids are the same in every run
    "figure.constrained_layout.use": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "grid.linewidth": 0.5,
    "legend.frameon": False,
    "lines.linewidth": 1.4,
}
"""What differs from seaborn's settings for papers."""


def apply_style() -> None:
    """Set the style; call it before a figure is made."""
    sns.set_theme("paper", "ticks", "colorblind", font_scale=0.9, rc=STYLE)


def strategy_colours() -> dict[str, str]:
    """The colour of every registered strategy and of the controls, the same in all figures."""
    return dict(zip(STRATEGIES, cycle(STRATEGY_PALETTE), strict=False)) | CONTROL_COLOURS


def arm_colours(arms: Iterable[str], baseline: str) -> dict[str, Any]:
    """One colour per arm, the baseline in grey; the same in all figures of a milestone."""
    others = [arm for arm in dict.fromkeys(arms) if arm != baseline]
    return {baseline: BASELINE_COLOUR} | dict(zip(others, cycle(PALETTE), strict=False))


def write_figure(figure: Figure, path: str | Path, caption: str) -> None:
    """Write SVG or PNG by the path's suffix, then close the figure.

    The caption is the file's description, for readers and for the report. Nothing in the file
    depends on the time.
    """
    suffix = Path(path).suffix.removeprefix(".")
    undated = {"svg": {"Date": None}, "png": {"Software": None}}[suffix]
    with atomic_path(path) as temporary:
        figure.savefig(
            temporary, format=suffix, dpi=200, metadata=undated | {"Description": caption}
        )
    plt.close(figure)
