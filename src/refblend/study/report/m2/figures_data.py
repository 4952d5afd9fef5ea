"""What M2's figures are drawn from: the study, its tables, and the runs of one experiment."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from refblend.study.layout import JUDGES
from refblend.study.report.m2.levels import PLACEMENT, SCORE
from refblend.study.report.m2.study import M2Study
from refblend.study.report.plotting.style import BASELINE_COLOUR, strategy_colours
from refblend.study.runs.measures import series, validation_frame
from refblend.study.runs.origin import commit_text

RUN = ["arm", "seed"]
PLACEMENT_NAMES = {
    "per_token": "per token",
    "terminal": "terminal",
    "per_token_mean": "per-token mean",
}
DEFAULT_JUDGE = "medium"
"""Judge of arms whose name names none."""


@dataclass(frozen=True)
class M2Data:
    """A study, its tables by name, and the frames that several figures need."""

    study: M2Study
    tables: dict[str, pd.DataFrame]

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """Metrics of finished runs."""
        return self.study.collected.counted_metrics

    @cached_property
    def accuracy(self) -> pd.DataFrame:
        """Greedy validation accuracy: arm, seed, step, value."""
        frame = validation_frame(self.metrics)
        return frame[frame.measure == "acc"]

    @cached_property
    def seconds(self) -> pd.DataFrame:
        """Training time up to a step, without validation: arm, seed, step, seconds; 0 at step 0."""
        steps = series(self.metrics, "perf/time_per_step")[[*RUN, "step", "value"]]
        start = steps[RUN].drop_duplicates().assign(step=0, value=0.0)
        steps = pd.concat([start, steps]).sort_values([*RUN, "step"], ignore_index=True)
        return steps.assign(seconds=steps.groupby(RUN)["value"].cumsum()).drop(columns="value")

    @cached_property
    def responses(self) -> pd.DataFrame:
        """Judged responses of finished runs."""
        finished = self.study.collected.finished[RUN]
        frame = self.study.collected.responses.merge(finished, on=RUN)
        return frame[frame.judge_score.notna()]

    def of(self, experiment: str, frame: pd.DataFrame) -> pd.DataFrame:
        """Rows of a frame that belong to the arms and seeds of an experiment."""
        arms = self.study.arms(experiment)
        if not arms:
            return frame.iloc[:0]
        return frame[frame.arm.isin(arms) & frame.seed.isin(self.study.seeds(experiment))]

    def metric(self, experiment: str, *names: str) -> pd.DataFrame:
        """A metric over the steps, as :func:`refblend.study.runs.measures.series` gives it."""
        return series(self.of(experiment, self.metrics), *names)

    def values(self, experiment: str, measure: str) -> pd.DataFrame:
        """One row a seed, one column an arm; empty where the experiment has no arms."""
        if not self.study.arms(experiment):
            return pd.DataFrame()
        return self.study.wide(experiment, measure)

    def baselines(self, experiment: str) -> list[str]:
        """Arms of an experiment that others are compared with."""
        arms = self.study.arms(experiment)
        return list(dict.fromkeys(self.study.baseline(experiment, arm) for arm in arms))

    def treated(self, experiment: str, placement: str | None = None) -> list[str]:
        """Arms of an experiment without its baselines; of one placement of the score only."""
        bases = self.baselines(experiment)
        arms = [arm for arm in self.study.arms(experiment) if arm not in bases]
        if placement is None:
            return arms
        return [arm for arm in arms if self.placement(arm) == placement]

    def placement(self, arm: str) -> str:
        """Placement of the judge's score in an arm."""
        return str(self.study.setting(arm, PLACEMENT))

    def score_settings(self, arm: str) -> dict[str, Any]:
        """``algorithm.ref_quality_score`` of an arm, its first level of keys."""
        values = dict(self.study.defaults.get("algorithm", {}).get("ref_quality_score", {}))
        for spec in self.study.experiments.values():
            for key, value in spec.arms_of(self.study.scale).get(arm, {}).items():
                head, _, name = key.rpartition(".")
                if head == SCORE:
                    values[name] = value
        return values

    def origin(self, *experiments: str, arms: Sequence[str] | None = None) -> str:
        """How many runs a figure of some experiments rests on, and which commit trained them."""
        counts: dict[str, int] = {}
        planned: dict[str, int] = {}
        for name in experiments:
            for arm in self.study.arms(name):
                if arms is not None and arm not in arms:
                    continue
                runs = self.of(name, self.study.collected.finished)
                planned[arm] = max(planned.get(arm, 0), len(self.study.seeds(name)))
                counts[arm] = max(counts.get(arm, 0), int((runs.arm == arm).sum()))
        return f"{_counts(counts, planned)} Commit {commit_text(self.study.collected)}."


def _counts(counts: dict[str, int], planned: dict[str, int]) -> str:
    """``n = 5 seeds an arm.``, and the arms that have fewer than planned."""
    if not counts:
        return "No arms at this scale."
    numbers = sorted(set(planned.values()))
    text = "n = " + " or ".join(map(str, numbers)) + " seeds an arm"
    absent = [
        f"{arm} {count} of {planned[arm]}" for arm, count in counts.items() if count < planned[arm]
    ]
    return f"{text}; finished: {', '.join(absent)}, all of the others." if absent else f"{text}."


def strategy_of(arm: str) -> str:
    """An arm of A without its placement, e.g. ``linear``."""
    return arm.removesuffix("_terminal")


def strategy_colour(arm: str) -> str:
    """Colour of an arm by what its name begins with; a baseline is grey."""
    parts = arm.split("_")
    colours = strategy_colours()
    found = [colours[part] for part in parts if part in colours]
    return found[0] if found else BASELINE_COLOUR


def judge_of(arm: str) -> str:
    """Judge of an arm by its name: weak, medium or strong."""
    named = [judge for judge in JUDGES if arm.startswith(f"{judge}_")]
    return named[0] if named else DEFAULT_JUDGE


def in_words(arm: str) -> str:
    """An arm's name for a label: no underscores."""
    return arm.replace("_", " ")
