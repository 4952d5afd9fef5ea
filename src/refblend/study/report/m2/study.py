"""Milestone M2's input: the collected runs, the experiments behind them, and one value a run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from refblend.config.loading import load_config
from refblend.errors import StudyError
from refblend.study.design.grid import config_files
from refblend.study.design.spec import ExperimentSpec, load_experiment
from refblend.study.runs.collect import Collected, read_collected
from refblend.study.runs.run_measures import run_measures, wide

EXPERIMENTS = ("A", "B", "C", "E", "F", "G", "H")
"""Experiments of M2 that train; D is measured by the target ``scoring``."""

LEARNING = ("A", "B", "C", "G", "H")
"""Experiments whose runs train to the end; E and F measure a few steps."""


@dataclass(frozen=True)
class M2Study:
    """All that tables, figures and report of M2 are made from."""

    collected: Collected
    experiments: dict[str, ExperimentSpec]
    values: pd.DataFrame
    """As :func:`refblend.study.runs.run_measures.run_measures` gives it."""
    scale: str
    scoring: Path | None = None
    """``results/<scale>/scoring``, or null: experiment D was not measured."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """The scale's configuration without any arm, as a nested mapping."""

    def arms(self, experiment: str) -> list[str]:
        """Arms of an experiment at this scale, in the order of its file; none if it is absent."""
        spec = self.experiments.get(experiment)
        return list(spec.arms_of(self.scale)) if spec else []

    def seeds(self, experiment: str) -> list[int]:
        """Seeds of an experiment at this scale."""
        spec = self.experiments[experiment]
        return list(spec.seeds.get(self.scale, []))  # type: ignore[call-overload]

    def all_arms(self) -> list[str]:
        """Arms of the experiments that learn, each once."""
        return list(dict.fromkeys(arm for name in LEARNING for arm in self.arms(name)))

    def wide(self, experiment: str, measure: str) -> pd.DataFrame:
        """Values of an experiment: one row for each of its seeds, one column for each arm."""
        table = wide(self.values, measure, self.arms(experiment))
        return table.reindex(self.seeds(experiment))

    def baseline(self, experiment: str, arm: str) -> str:
        """The arm that differences of ``arm`` are taken against."""
        return self.experiments[experiment].baseline_of(arm)

    def setting(self, arm: str, key: str) -> Any:
        """Value of a dotted key in an arm: its override, or the scale's configuration.

        Raises:
            StudyError: neither has the key.
        """
        for spec in self.experiments.values():
            overrides = spec.arms_of(self.scale).get(arm, {})
            if key in overrides:
                return overrides[key]
        value: Any = self.defaults
        for part in key.split("."):
            if not isinstance(value, Mapping) or part not in value:
                raise StudyError(
                    f"arm {arm} does not say {key}, nor does the configuration of {self.scale}",
                    "Declare it in params/study or params/ppo.yaml.",
                )
            value = value[part]
        return value


def read_m2_study(
    collected_dir: str | Path, params: str | Path, scoring: str | Path | None, scale: str
) -> M2Study:
    """Read the collected runs and the experiments.

    Args:
        collected_dir: written by ``refblend study collect``.
        params: root of the parameter files.
        scoring: folder of the target ``scoring``; null: without experiment D.
        scale: smoke, cpu or gpu.

    Raises:
        StudyError: frames, experiment files or the folder ``scoring`` cannot be read.
    """
    if scoring is not None and not (Path(scoring) / "tables").is_dir():
        raise StudyError(
            f"{scoring}: no tables of the scoring study",
            f"Make them by `snakemake scoring --config scale={scale}`, or leave --scoring out.",
        )
    collected = read_collected(collected_dir)
    folder = Path(params) / "study"
    experiments = {
        name: load_experiment(folder / f"{name}.yaml")
        for name in EXPERIMENTS
        if (folder / f"{name}.yaml").exists()
    }
    experiments = {name: spec for name, spec in experiments.items() if scale in spec.seeds}
    if not experiments:
        raise StudyError(
            f"{folder}: none of the experiments {', '.join(EXPERIMENTS)} has seeds for {scale}",
            "Give the right --params and --scale.",
        )
    return M2Study(
        collected=collected,
        experiments=experiments,
        values=run_measures(collected),
        scale=scale,
        scoring=Path(scoring) if scoring is not None else None,
        defaults=load_config(config_files(scale, params)).resolved(),
    )
