"""Milestone M3's input: the confirming runs, what was recommended and why, and M2's results."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from refblend.config.loading import load_config
from refblend.config.root import RefblendConfig
from refblend.errors import StudyError
from refblend.study.design.grid import config_files
from refblend.study.design.spec import ExperimentSpec, load_experiment
from refblend.study.recommend.candidates import late_accuracy
from refblend.study.recommend.overlay import read_record
from refblend.study.runs.collect import Collected
from refblend.study.runs.run_measures import run_measures
from refblend.study.stats.statistics import Interval, paired_values, student_interval

BASELINE = "off"
DEFAULTS = "linear"
RECOMMENDED = "recommended"
ARMS = (BASELINE, DEFAULTS, RECOMMENDED)
"""No blending, the spec's defaults, and the configuration chosen from M2."""

M2_SHOWN = ("A_main", "BC_knee_pivot", "G_placement")
"""Tables of M2 that the report shows again, as far as M2 wrote them."""


@dataclass(frozen=True)
class M3Study:
    """All that tables, figures and report of M3 are made from."""

    collected: Collected
    experiment: ExperimentSpec
    record: Mapping[str, Any]
    """Of the recommendation, as ``refblend study recommend`` wrote it."""
    config: RefblendConfig
    """The recommended configuration on top of the scale's."""
    m2: Path
    """``results/<scale>/m2``."""
    scale: str

    @cached_property
    def values(self) -> pd.DataFrame:
        """One number a run and measure."""
        return run_measures(self.collected)

    @property
    def blends(self) -> bool:
        """Whether a blend is recommended."""
        return self.config.algorithm.ref_quality_score.enable

    @property
    def seeds(self) -> list[int]:
        """Seeds of the confirming runs."""
        return sorted({int(seed) for seed in self.collected.runs.seed})

    def m2_table(self, name: str) -> pd.DataFrame | None:
        """A table of M2; null where M2 did not write it.

        Raises:
            StudyError: it cannot be read.
        """
        path = self.m2 / "tables" / f"{name}.csv"
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

    def m2_markdown(self) -> dict[str, str]:
        """Tables of :data:`M2_SHOWN` as Markdown, those that exist."""
        paths = {name: self.m2 / "tables" / f"{name}.md" for name in M2_SHOWN}
        return {
            name: path.read_text(encoding="utf-8").rstrip()
            for name, path in paths.items()
            if path.exists()
        }

    def late_difference(self) -> Interval:
        """Recommended − baseline of the measure that the choice was made by, on fresh seeds."""
        late = late_accuracy(self.collected)
        table = late.pivot(index="seed", columns="arm", values="value").reindex(columns=list(ARMS))
        return student_interval(paired_values(table[RECOMMENDED], table[BASELINE]))


def read_m3_study(
    collected: Collected, m2: str | Path, scale: str, params: str | Path, recommended: str | Path
) -> M3Study:
    """Read the experiment, the recommendation with its record, and check that all fit together.

    Raises:
        StudyError: M2's results or the record are missing, or an arm is not declared.
        ConfigError: the recommended file does not fit the scale's configuration.
    """
    if not (Path(m2) / "tables").is_dir():
        raise StudyError(f"{m2}: no tables of M2", "Make M2 first, or correct --m2.")
    path = Path(params) / "study" / "M3.yaml"
    experiment = load_experiment(path)
    missing = [arm for arm in ARMS if arm not in experiment.arms]
    if missing or experiment.baseline != BASELINE:
        raise StudyError(
            f"{path}: M3 compares {', '.join(ARMS)} with {BASELINE}; "
            f"it lacks {', '.join(missing) or 'this baseline'}",
            "Declare these arms and this baseline.",
        )
    record = read_record(recommended)
    if record.get("scale") != scale:
        raise StudyError(
            f"{recommended}: was chosen at scale {record.get('scale')}, not {scale}",
            "Give the recommendation of this scale.",
        )
    config = load_config([*config_files(scale, params), recommended])
    return M3Study(collected, experiment, record, config, Path(m2), scale)
