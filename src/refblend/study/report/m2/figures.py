"""All figures of milestone M2 by name, and the file of their captions."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pandas as pd

from refblend.files import write_json
from refblend.study.report.m2.figures_blend import (
    weight_against_entropy,
    weight_correlation,
    weight_functions,
    weight_steps,
)
from refblend.study.report.m2.figures_costs import lengths, placement_of_scorer
from refblend.study.report.m2.figures_data import M2Data
from refblend.study.report.m2.figures_differences import (
    blending_forest,
    judge_quality,
    other_forests,
)
from refblend.study.report.m2.figures_judge import judges_in_training, score_coverage
from refblend.study.report.m2.figures_learning import (
    blending_curves,
    experiment_curves,
    placement_curves,
    reward_against_length,
)
from refblend.study.report.m2.figures_levels import sensitivity
from refblend.study.report.m2.tables import M2Study
from refblend.study.report.plotting.common import Drawn
from refblend.study.report.plotting.style import apply_style, save_figure

FIGURES: dict[str, Callable[[M2Data], Drawn]] = {
    "A_forest": blending_forest,
    "A_learning_per_token": partial(blending_curves, placement="per_token", x="step"),
    "A_learning_terminal": partial(blending_curves, placement="terminal", x="step"),
    "A_time_per_token": partial(blending_curves, placement="per_token", x="seconds"),
    "A_time_terminal": partial(blending_curves, placement="terminal", x="seconds"),
    "A_weight_functions": weight_functions,
    "A_weight_steps": weight_steps,
    "A_weight_entropy": weight_against_entropy,
    "A_weight_correlation": weight_correlation,
    "B_sensitivity": partial(sensitivity, experiment="B"),
    "B_learning": partial(experiment_curves, experiment="B"),
    "C_sensitivity": partial(sensitivity, experiment="C"),
    "C_learning": partial(experiment_curves, experiment="C"),
    "BCGH_forest": other_forests,
    "D_score_coverage": score_coverage,
    "E_lengths": lengths,
    "F_placement": placement_of_scorer,
    "G_placement": placement_curves,
    "G_reward_length": reward_against_length,
    "H_learning": partial(experiment_curves, experiment="H"),
    "H_judges": judges_in_training,
    "H_judge_quality": judge_quality,
}
"""Name → function; the names of :data:`refblend.study.layout.M2_FIGURES`, in the report's order."""


def write_m2_figures(
    study: M2Study, tables: dict[str, pd.DataFrame], out: str | Path
) -> dict[str, str]:
    """Draw all figures into ``out`` and write ``captions.json`` there.

    Args:
        study: what :func:`refblend.study.report.m2.tables.read_m2_study` gives.
        tables: what :func:`refblend.study.report.m2.tables.m2_tables` gives.
        out: folder of the figures.

    Returns:
        The captions by figure.
    """
    apply_style()
    data = M2Data(study, tables)
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    captions = {}
    for name, draw in FIGURES.items():
        figure, captions[name] = draw(data)
        save_figure(figure, folder / name)
    write_json(folder / "captions.json", captions)
    return captions
