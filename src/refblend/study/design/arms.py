"""An arm and what its resolved configuration says about it; its name says nothing."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePath
from typing import Any

from refblend.config.algorithm import RefQualityScoreConfig
from refblend.config.root import RefblendConfig
from refblend.documents import flatten
from refblend.errors import StudyError
from refblend.study.design.grid import resolve_arm
from refblend.study.design.spec import ExperimentSpec

SCORE = "algorithm.ref_quality_score"


@dataclass(frozen=True)
class Arm:
    """One arm at one scale."""

    config: RefblendConfig

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Its values by dotted key, e.g. ``algorithm.adv_estimator``."""
        return flatten(self.config.resolved())

    @property
    def score(self) -> RefQualityScoreConfig:
        """How a quality score is blended into its rewards."""
        return self.config.algorithm.ref_quality_score

    @property
    def is_control(self) -> bool:
        """Whether its scores are no judge's: shuffled, random or an oracle's."""
        return self.score.scoring.control != "none"

    @property
    def judge(self) -> str:
        """Name of the judge: its folder without ``judge_``, e.g. ``weak``; empty without one."""
        path = self.score.scoring.model_path
        return PurePath(path).name.removeprefix("judge_") if path else ""

    @property
    def blend(self) -> str:
        """The control, or the strategy where there is none; ``no judge`` without a blend."""
        if not self.score.enable:
            return "no judge"
        return self.score.scoring.control if self.is_control else self.score.strategy


def resolve_arms(
    experiments: Mapping[str, ExperimentSpec], scale: str, params: str | Path = "params"
) -> dict[str, Arm]:
    """Every arm of some experiments at a scale, by name, in their order.

    ConfigError for an arm's configuration; StudyError for a factor or a sweep whose key the
    configuration lacks, or a sweep whose levels are not different numbers.
    """
    arms: dict[str, Arm] = {}
    for name, spec in experiments.items():
        path = Path(params) / "study" / f"{name}.yaml"
        mine = spec.arms_of(scale)
        for arm, overrides in mine.items():
            if arm not in arms:
                arms[arm] = Arm(resolve_arm(overrides, scale, params))
        keys = {f"factors.{factor}": key for factor, key in spec.factors.items()}
        if spec.sweep:
            keys["sweep.key"] = spec.sweep.key
        for where, key in keys.items():
            if any(key not in arms[arm].settings for arm in mine):
                raise StudyError(
                    f"{path}: {where}: the configuration has no key {key}",
                    "Name a dotted key of params/ppo.yaml.",
                )
        if spec.sweep:
            levels = [arms[arm].settings[spec.sweep.key] for arm in spec.sweep.arms if arm in arms]
            numbers = all(isinstance(level, int | float) for level in levels)
            if not numbers or len(set(levels)) != len(levels):
                raise StudyError(
                    f"{path}: sweep.arms: {spec.sweep.key} is {', '.join(map(str, levels))}",
                    "Every arm of a sweep needs another number there.",
                )
    return arms
