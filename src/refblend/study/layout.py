"""Names of everything that a milestone writes; the workflow, the reports and DVC agree on them."""

from pathlib import Path

PLOT_DATA = ("val_accuracy", "weight_entropy")
"""Small CSV files for ``dvc plots``: ``plots/<name>.csv``."""

M2_PLOT_DATA = (*PLOT_DATA, "levels")
"""Those of M2."""

COLLECTED = ("runs.csv", "metrics.parquet", "responses.parquet")
"""Files that ``refblend study collect`` writes."""

JUDGES = ("weak", "medium", "strong")
"""Strengths of the embedded judge, in the order in which each continues the one before."""

M2_TABLES = (
    *(f"{name}_{kind}" for name in ("A", "B", "C", "G", "H") for kind in ("summary", "main")),
    "D_scoring",
    "E_lengths",
    "E_main",
    "F_overlap",
    "F_main",
    "F_hidden",
    "BC_levels",
    "BC_knee_pivot",
    "G_placement",
    "contrasts",
    "contrasts_main",
    "best_per_metric",
    "stability",
    "correlations",
    "correlations_per_seed",
    "incidents",
    "costs_by_arm",
    "resources",
    "per_seed",
    "not_finished",
)
"""Tables of M2; each is written as ``tables/<name>.csv``, ``.md`` and ``.tex``."""

M2_FIGURES = (
    "A_forest",
    "A_learning_per_token",
    "A_learning_terminal",
    "A_time_per_token",
    "A_time_terminal",
    "A_weight_functions",
    "A_weight_steps",
    "A_weight_entropy",
    "A_weight_correlation",
    "B_sensitivity",
    "B_learning",
    "C_sensitivity",
    "C_learning",
    "BCGH_forest",
    "D_score_coverage",
    "E_lengths",
    "F_placement",
    "G_placement",
    "G_reward_length",
    "H_learning",
    "H_judges",
    "H_judge_quality",
)
"""Figures of M2, each after its experiments; ``figures/<name>.svg`` and ``figures/<name>.png``."""


def run_dir(scale: str, arm: str, seed: str | int, root: str | Path = "runs") -> Path:
    """``runs/<scale>/<arm>/seed_<k>``."""
    return Path(root) / scale / arm / f"seed_{seed}"
