"""Milestone M3's input: the confirming runs, what was recommended and why, and M2's results."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from refblend.config.loading import load_config
from refblend.config.root import RefblendConfig
from refblend.errors import StudyError
from refblend.study.design.grid import config_files, resolve_arm
from refblend.study.design.spec import OVERLAY
from refblend.study.recommend.candidates import Confirmation, late_accuracy, load_confirmation
from refblend.study.recommend.overlay import read_record
from refblend.study.report.plotting.style import arm_colours
from refblend.study.report.registry import Inputs, Report
from refblend.study.report.shared import RunStudy, origin_of, register_run_tables
from refblend.study.runs.collect import read_collected
from refblend.study.stats.statistics import Interval, paired_values, student_interval


@dataclass(frozen=True)
class M3Study(RunStudy):
    """The input of tables, figures and text."""

    confirmation: Confirmation
    record: Mapping[str, Any]
    """Of the recommendation, as ``refblend study recommend`` wrote it."""
    configs: Mapping[str, RefblendConfig]
    """Arm → its configuration at the scale; the recommended file included."""
    overlay: Path
    """The recommended file."""
    inputs: Inputs

    @property
    def colours(self) -> dict[str, Any]:
        """Arm → colour."""
        return arm_colours(self.confirmation.arms, self.confirmation.baseline)

    @property
    def recommended(self) -> RefblendConfig:
        """The recommended configuration on top of the scale's."""
        return self.configs[self.confirmation.recommended]

    @property
    def blends(self) -> bool:
        """Whether a blend is recommended."""
        return self.recommended.algorithm.ref_quality_score.enable

    @property
    def seeds(self) -> list[int]:
        """Seeds of the confirming runs."""
        return sorted({int(seed) for seed in self.collected.runs.seed})

    def m2_table(self, name: str) -> pd.DataFrame | None:
        """A table of M2; null where M2 did not write it.

        Raises:
            StudyError: it cannot be read.
        """
        path = self.inputs.results / "m2" / "tables" / f"{name}.csv"
        if not path.exists():
            return None
        try:
            return pd.read_csv(path, keep_default_na=False, na_values=[""])
        except pd.errors.EmptyDataError:
            return None
        except (OSError, ValueError) as error:
            raise StudyError(
                f"{path}: cannot be read ({error})", "Make M2's tables again."
            ) from None

    def late_difference(self) -> Interval:
        """Recommended − baseline by the measure that the choice was made by, on fresh seeds."""
        late = late_accuracy(self.collected)
        arms = [self.confirmation.recommended, self.confirmation.baseline]
        table = late.pivot(index="seed", columns="arm", values="value").reindex(columns=arms)
        return student_interval(paired_values(table[arms[0]], table[arms[1]]))


def read_study(inputs: Inputs) -> M3Study:
    """Read the experiment, the recommendation with its record, and check that all fit together.

    Raises:
        StudyError: M2's tables or the record are missing, or the record is another scale's.
        ConfigError: the recommended file does not fit the scale's configuration.
    """
    m2 = inputs.results / "m2"
    if not (m2 / "tables").is_dir():
        raise StudyError(f"{m2}: has no tables", "Make M2 first.")
    confirmation = load_confirmation(inputs.params)
    overlay = inputs.results / "m3" / "recommended.yaml"
    record = read_record(overlay)
    if record.get("scale") != inputs.scale:
        raise StudyError(
            f"{overlay}: was chosen at scale {record.get('scale')}, not {inputs.scale}",
            "Give the recommendation of this scale.",
        )
    configs = {
        arm: load_config([*config_files(inputs.scale, inputs.params), overlay])
        if OVERLAY in overrides
        else resolve_arm(overrides, inputs.scale, inputs.params)
        for arm, overrides in confirmation.experiment.arms_of(inputs.scale).items()
    }
    collected = read_collected(inputs.collected)
    return M3Study(collected, confirmation, record, configs, overlay, inputs)


REPORT = Report("m3", "M3 recommendation", read_study, origin_of)
register_run_tables(REPORT, resources_shown=False)
