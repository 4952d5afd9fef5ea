"""What a report is made from: the runs of some experiments at one scale.

What an experiment is about follows from its file (:class:`ExperimentSpec`), what an arm is from its
resolved configuration (:class:`Arm`): no code here knows an experiment or an arm by its name.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import mode

import pandas as pd

from refblend.study.design.arms import SCORE, Arm, resolve_arms
from refblend.study.design.spec import ExperimentSpec
from refblend.study.runs.collect import RUN, Collected, refuse_mixed_models, runs_of
from refblend.study.runs.measures import accuracy_by_step, run_measures, series, wide

SCORING = f"{SCORE}.scoring"


@dataclass(frozen=True)
class Study:
    """The input of all tables, figures and pages on runs."""

    collected: Collected
    experiments: Mapping[str, ExperimentSpec]
    resolved: Mapping[str, Arm]
    """Every arm of the experiments at this scale, by name."""
    scale: str

    @cached_property
    def values(self) -> pd.DataFrame:
        """Every measure of every finished run, as :func:`run_measures` gives them."""
        return run_measures(self.collected)

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """Metrics of finished runs."""
        return self.collected.counted_metrics

    @cached_property
    def responses(self) -> pd.DataFrame:
        """Judged responses of finished runs."""
        frame = self.collected.responses.merge(self.collected.finished[RUN], on=RUN)
        return frame[frame.judge_score.notna()]

    @cached_property
    def accuracy(self) -> pd.DataFrame:
        """Greedy validation accuracy: arm, seed, step, value."""
        return accuracy_by_step(self.metrics)

    @property
    def learning(self) -> list[str]:
        """Experiments whose runs train to the end."""
        return [name for name, spec in self.experiments.items() if not spec.exclusive]

    def seeds(self, experiment: str) -> dict[str, list[int]]:
        """Arms of an experiment at this scale in the order of its file, each with its seeds."""
        return self.experiments[experiment].seeds_by_arm(self.scale)

    def arms(self, experiment: str) -> list[str]:
        """Arms of an experiment at this scale."""
        return list(self.seeds(experiment))

    def all_arms(self) -> list[str]:
        """Arms of the experiments that learn, each once."""
        return list(dict.fromkeys(arm for name in self.learning for arm in self.arms(name)))

    def used_in(self) -> dict[str, str]:
        """Arm → the experiments that have it, separated by blanks."""
        names: dict[str, list[str]] = {}
        for name in self.experiments:
            for arm in self.arms(name):
                names.setdefault(arm, []).append(name)
        return {arm: " ".join(found) for arm, found in names.items()}

    def wide(self, experiment: str, measure: str) -> pd.DataFrame:
        """Values of an experiment: one row for each of its seeds, one column for each arm."""
        return wide(self.values, measure, self.seeds(experiment))

    def compared_by(self, experiment: str) -> str:
        """The measure of most of an experiment's contrasts; its endpoint where it has none."""
        spec = self.experiments[experiment]
        return mode([spec.endpoint_of(contrast) for contrast in spec.contrasts] or [spec.endpoint])

    def baseline(self, experiment: str, arm: str) -> str:
        """The arm that differences of ``arm`` are taken against."""
        return self.experiments[experiment].baseline_of(arm)

    def baselines(self, experiment: str) -> list[str]:
        """Arms of an experiment that others are compared with."""
        arms = self.arms(experiment)
        return list(dict.fromkeys(self.baseline(experiment, arm) for arm in arms))

    def treated(self, experiment: str) -> list[str]:
        """Arms of an experiment without its baselines."""
        bases = self.baselines(experiment)
        return [arm for arm in self.arms(experiment) if arm not in bases]

    def gain(self, experiment: str, arm: str, measure: str) -> pd.Series:
        """An arm's paired differences to its baseline, by seed."""
        values = self.wide(experiment, measure)
        return (values[arm] - values[self.baseline(experiment, arm)]).dropna()

    def ranked(self, experiment: str) -> list[str]:
        """Arms that can be called the best: with every seed, and no control."""
        spec = self.experiments[experiment]
        return [arm for arm in spec.ranked(self.scale) if not self.resolved[arm].is_control]

    def facets(self, experiment: str) -> dict[str, list[str]]:
        """Level of the experiment's facet → its treated arms; one level ``""`` without a facet."""
        spec, levels = self.experiments[experiment], dict[str, list[str]]()
        key = spec.factors[spec.facet] if spec.facet else ""
        for arm in self.treated(experiment):
            level = str(self.resolved[arm].settings[key]) if key else ""
            levels.setdefault(level, []).append(arm)
        return levels

    def levels(self, experiment: str) -> dict[float, str]:
        """Level → arm of an experiment's sweep, increasing, at this scale; empty without one."""
        sweep, arms = self.experiments[experiment].sweep, self.arms(experiment)
        if not sweep:
            return {}
        named = [arm for arm in sweep.arms if arm in arms]
        return dict(sorted((float(self.resolved[arm].settings[sweep.key]), arm) for arm in named))

    def of(self, experiment: str, frame: pd.DataFrame) -> pd.DataFrame:
        """Rows of a frame that belong to the arms and seeds of an experiment."""
        return frame.merge(runs_of(self.seeds(experiment)), on=RUN)

    def metric(self, experiment: str, *names: str) -> pd.DataFrame:
        """A metric over the steps, as :func:`refblend.study.runs.measures.series` gives it."""
        return series(self.of(experiment, self.metrics), *names)


def stable(spec: ExperimentSpec) -> bool:
    """Whether an experiment asks for stability: its report leads with it."""
    return spec.milestone == "m1"


def judged(spec: ExperimentSpec) -> bool:
    """Whether an experiment is about judges: it compares some, or asks for stability."""
    return f"{SCORING}.model_path" in spec.factors.values() or stable(spec)


def make_study(
    collected: Collected,
    experiments: Mapping[str, ExperimentSpec],
    scale: str,
    params: Path = Path("params"),
) -> Study:
    """A study of some experiments; errors of :func:`refuse_mixed_models`, :func:`resolve_arms`."""
    refuse_mixed_models(collected.runs, experiments, scale)
    return Study(collected, experiments, resolve_arms(experiments, scale, params), scale)
