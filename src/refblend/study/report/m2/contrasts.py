"""Fixed contrasts between two arms of M2 that no baseline column answers.

They follow from the experiments' questions and are not picked from the results: placement against
placement (A, G), the judge against its controls (A), and a weight that follows the entropy against
a constant one (A, and for every judge H).
"""

from dataclasses import dataclass

import pandas as pd

from refblend.study.report.m2.study import M2Study
from refblend.study.report.summary import Family, empty_summary, summarise

CONTRAST_MEASURES = (
    "test_greedy",
    "test_sampled",
    "val_best",
    "val_auc",
    "final_return",
    "length_end",
)


@dataclass(frozen=True)
class Contrast:
    """``treated`` − ``reference``, seed by seed, within an experiment."""

    experiment: str
    name: str
    treated: str
    reference: str


STRATEGIES = ("linear", "cosine", "exp", "piecewise", "constant", "inverse", "schedule")
CONTROLS = ("shuffled", "random")

CONTRASTS = (
    *(Contrast("A", "terminal − per token", f"{arm}_terminal", arm) for arm in STRATEGIES),
    *(Contrast("A", f"judge − {arm} control", "linear", arm) for arm in CONTROLS),
    *(
        Contrast("A", f"judge − {arm} control", "linear_terminal", f"{arm}_terminal")
        for arm in CONTROLS
    ),
    Contrast("A", "entropy-aware − constant", "linear", "constant"),
    Contrast("A", "entropy-aware − constant", "linear_terminal", "constant_terminal"),
    Contrast("G", "terminal − per token", "linear_terminal", "linear"),
    Contrast("G", "per-token mean − per token", "linear_mean", "linear"),
    Contrast("G", "terminal − per token", "gae_linear_terminal", "gae_linear"),
    Contrast("G", "per-token mean − per token", "gae_linear_mean", "gae_linear"),
    *(
        Contrast("H", f"{judge}: entropy-aware − constant", *arms)
        for judge, arms in {
            "weak judge": ("weak_linear_terminal", "weak_constant_terminal"),
            "medium judge": ("linear_terminal", "constant_terminal"),
            "strong judge": ("strong_linear_terminal", "strong_constant_terminal"),
        }.items()
    ),
)


def contrasts(study: M2Study) -> pd.DataFrame:
    """All contrasts whose two arms the study has at this scale.

    The contrasts of one experiment and measure are one family. A treated arm stands for several
    contrasts, so that each pair is summarised under a name of its own.

    Returns:
        Columns experiment, contrast, then those of a summary without the arm's own numbers.
    """
    parts = []
    for experiment in ("A", "G", "H"):
        arms = study.arms(experiment)
        mine = [
            contrast
            for contrast in CONTRASTS
            if contrast.experiment == experiment
            and contrast.treated in arms
            and contrast.reference in arms
        ]
        if mine:
            parts.append(_family(study, experiment, mine))
    table = pd.concat(parts or [empty_summary()], ignore_index=True)
    table = table.reindex(columns=["experiment", "contrast", *empty_summary().columns])
    own = ["iqm", "low", "high", "boot_low", "boot_high", "runs", "n", "mean"]
    return table.drop(columns=own).rename(columns={"baseline": "against"})


def _family(study: M2Study, experiment: str, mine: list[Contrast]) -> pd.DataFrame:
    """The contrasts of one experiment, each with columns of its own for its two arms."""
    names = {f"{c.treated} − {c.reference}": c for c in mine}

    def values_of(measure: str) -> pd.DataFrame:
        table = study.wide(experiment, measure)
        columns = {f"{name} treated": table[c.treated] for name, c in names.items()}
        return pd.DataFrame(
            columns | {f"{name} reference": table[c.reference] for name, c in names.items()}
        )

    treated = {f"{name} treated": contrast for name, contrast in names.items()}
    pairs = [(f"{name} treated", f"{name} reference") for name in names]
    family = Family(f"{experiment} contrasts", list(treated), pairs)
    table = summarise(family, values_of, CONTRAST_MEASURES)
    found = table["arm"].map(treated)
    return table.assign(
        experiment=experiment,
        contrast=[contrast.name for contrast in found],
        arm=[contrast.treated for contrast in found],
        baseline=[contrast.reference for contrast in found],
    )
