"""Alignment over the blending weight as a figure."""

from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from refblend.advice.answer import Advice
from refblend.files import atomic_path

COLOURS = ("#0173b2", "#029e73", "#de8f05")


def draw(advice: Advice, path: Path) -> None:
    """Write the figure of :func:`refblend.advise`; the suffix chooses the format (.svg, .png …)."""
    with mpl.rc_context({"svg.hashsalt": "refblend", "font.size": 8}):
        figure = Figure(figsize=(4.5, 3.2), layout="constrained")
        axes = figure.subplots()
        for curve, colour in zip(advice.curves, COLOURS, strict=False):
            token = "last token" if curve.placement == "terminal" else "every token"
            groups = "" if curve.groups == "all" else ", mixed groups only"
            axes.plot(curve.weights, curve.alignment, color=colour, label=token + groups)
            axes.fill_between(
                curve.weights, curve.low, curve.high, color=colour, alpha=0.15, linewidth=0
            )
        axes.axhline(advice.unblended, color="#595959", linewidth=0.8, linestyle="--")
        if advice.verdict == "blend":
            best = advice.unblended + advice.gain
            axes.plot(advice.weight, best, "o", color="#404040", markersize=4)
        axes.set(xlabel="blending weight w", ylabel="alignment with the truth", xlim=(0, 1))
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, title=f"{advice.prompts} prompts; bands: 95 %")
        with atomic_path(path) as temporary:
            # Without a date, so that equal figures are equal files.
            metadata = {"Date": None} if path.suffix == ".svg" else {}
            figure.savefig(temporary, format=path.suffix[1:], metadata=metadata)
