"""The experiment that confirms a recommendation: its arms and what they are compared with."""

from dataclasses import dataclass
from pathlib import Path

from refblend.errors import StudyError
from refblend.study.design.spec import OVERLAY, ExperimentSpec, experiments_of, load_experiment

MILESTONE = "m3"
EXPLORING = "m2"


@dataclass(frozen=True)
class Confirmation:
    """The experiment of M3 and the roles of its arms."""

    name: str
    experiment: ExperimentSpec
    recommended: str
    """The arm whose configuration is the recommended file."""
    sources: tuple[str, ...]
    """Experiments whose arms may be recommended."""

    @property
    def baseline(self) -> str:
        """The arm without blending."""
        return self.experiment.baseline

    @property
    def arms(self) -> tuple[str, ...]:
        """All arms in the order of the file."""
        return tuple(self.experiment.arms)

    @property
    def endpoint(self) -> str:
        """The measure that decides."""
        return self.experiment.endpoint

    @property
    def contrasts(self) -> tuple[tuple[str, str], ...]:
        """Stated (arm, reference) beside the comparisons with the baseline."""
        return tuple(
            pair
            for each in self.experiment.contrasts
            for pair in each.pairs.items()
            if pair[1] != self.baseline
        )

    @property
    def comparisons(self) -> tuple[tuple[str, str], ...]:
        """Every (arm, reference) that is compared, those of the recommended arm first."""
        pairs = [(arm, self.baseline) for arm in self.arms if arm != self.baseline]
        pairs += self.contrasts
        return tuple(sorted(pairs, key=lambda pair: pair[0] != self.recommended))


def load_confirmation(params: str | Path = "params") -> Confirmation:
    """Read the one experiment of milestone M3.

    Raises:
        StudyError: there is none or several, or not exactly one arm with an overlay.
        ConfigError: a file is missing or not YAML.
    """
    names = experiments_of(MILESTONE, params)
    folder = Path(params) / "study"
    if len(names) != 1:
        raise StudyError(
            f"{folder}: {len(names)} experiments have milestone {MILESTONE}: "
            f"{', '.join(names) or 'none'}",
            "Exactly one confirms the recommendation: correct milestone in the others.",
        )
    experiment = load_experiment(folder / f"{names[0]}.yaml")
    chosen = [arm for arm, overrides in experiment.arms.items() if OVERLAY in overrides]
    if len(chosen) != 1 or chosen[0] == experiment.baseline:
        raise StudyError(
            f"{folder / names[0]}.yaml: arms with an {OVERLAY}: {', '.join(chosen) or 'none'}",
            f"Give {OVERLAY} to the recommended arm, and to no other.",
        )
    sources = experiment.choose_from or [
        name
        for name in experiments_of(EXPLORING, params)
        if not load_experiment(folder / f"{name}.yaml").exclusive
    ]
    return Confirmation(names[0], experiment, chosen[0], tuple(sources))
