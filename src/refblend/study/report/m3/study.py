"""Milestone M3's input: the confirming runs, the recommendation, M2's results; and all tables."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from refblend.config.loading import load_config
from refblend.config.root import RefblendConfig
from refblend.errors import StudyError
from refblend.study.design.grid import config_files, override_arguments
from refblend.study.design.measures import MEASURES
from refblend.study.design.spec import ExperimentSpec, experiments_of
from refblend.study.recommend.candidates import Confirmation, late_accuracy, load_confirmation
from refblend.study.recommend.choose import CANDIDATE_COLUMNS
from refblend.study.recommend.overlay import (
    candidates_table,
    challenger_path,
    read_record,
    regime_path,
)
from refblend.study.report.beside import beside_table, readable_beside
from refblend.study.report.plotting.common import arm_colours
from refblend.study.report.readable import DECIDING, readable_summary
from refblend.study.report.registry import Inputs, Report, Tables, read_experiments
from refblend.study.report.shared import RunStudy, origin_of, register_run_tables
from refblend.study.report.speed import readable_speed, speed_rows
from refblend.study.report.summary import Family, summarise
from refblend.study.report.verdicts import (
    read_verdicts,
    readable_of_one,
    refuse_mixed_models,
    verdicts,
)
from refblend.study.runs.collect import read_collected
from refblend.study.runs.incidents import in_run_order
from refblend.study.runs.measures import wide
from refblend.study.stats.statistics import Interval, paired_values, student_interval

MEASURED = (
    "test_greedy", "test_sampled", "val_final", "val_best", "val_auc", "final_return",
    "entropy_end", "length_end", "step_seconds",
)  # fmt: skip
"""The measures by which arms are compared."""
LATER = "added to the design after the choice"
"""Why an arm was not a candidate that the record of the choice does not know."""
AGAINST = " against "
"""Between arm and reference in the alias of a contrast's treated arm."""


@dataclass(frozen=True)
class M3Study(RunStudy):
    """The input of tables, figures and text."""

    confirmation: Confirmation
    record: Mapping[str, Any]
    """Of the recommendation, as ``refblend study recommend`` wrote it."""
    recommended: RefblendConfig
    """The recommended configuration on top of the scale's."""
    configs: Mapping[str, RefblendConfig]
    """Arm → its configuration at the scale; the challengers' files included."""
    overlay: Path
    """The recommended file."""
    inputs: Inputs

    @property
    def colours(self) -> dict[str, Any]:
        """Arm → colour."""
        return arm_colours(self.confirmation.arms, self.confirmation.baseline)

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
                f"{path}: cannot be read ({error})", "Rebuild M2 first, e.g. by `snakemake m2`."
            ) from None

    @cached_property
    def m2_experiments(self) -> dict[str, ExperimentSpec]:
        """M2's experiments at the scale, by name: those that its report has, where there is one."""
        names = experiments_of("m2", self.inputs.params, self.inputs.scale)
        tables = self.inputs.results / "m2" / "tables"
        drawn = [name for name in names if (tables / f"{name}_main.csv").exists()]
        return read_experiments(tuple(drawn or names), self.inputs.params)

    @property
    def m2_arms(self) -> list[str]:
        """The arms of M2's experiments that have seeds at the scale."""
        planned = [spec.seeds_by_arm(self.inputs.scale) for spec in self.m2_experiments.values()]
        return list(dict.fromkeys(arm for own in planned for arm, seeds in own.items() if seeds))

    @cached_property
    def m2_verdicts(self) -> pd.DataFrame:
        """M2's verdicts on its declared contrasts; no row where M2 has none."""
        return read_verdicts(self.inputs.results / "m2" / "tables" / "verdicts.csv")

    def late_difference(self, challenger: str) -> Interval:
        """A challenger − its baseline by the measure of the choice, on fresh seeds."""
        late = late_accuracy(self.collected)
        arms = [challenger, self.confirmation.experiment.baseline_of(challenger)]
        table = late.pivot(index="seed", columns="arm", values="value").reindex(columns=arms)
        return student_interval(paired_values(table[arms[0]], table[arms[1]]))


def read_study(inputs: Inputs) -> M3Study:
    """Read the experiment, the recommendation with its record, and check that all fit together.

    Raises:
        StudyError: M2's tables or the record are missing, the record is another scale's, or a
            contrast compares runs of different models.
        ConfigError: the recommended file does not fit the scale's configuration.
    """
    m2 = inputs.results / "m2"
    if not (m2 / "tables").is_dir():
        raise StudyError(f"{m2}: has no tables", "Make M2 first.")
    confirmation = load_confirmation(inputs.scale, inputs.params)
    overlay = inputs.results / "m3" / "recommended.yaml"
    record = read_record(overlay)
    if record.get("scale") != inputs.scale:
        raise StudyError(
            f"{overlay}: was chosen at scale {record.get('scale')}, not {inputs.scale}",
            "Give the recommendation of this scale.",
        )
    files = config_files(inputs.scale, inputs.params)
    recommended = load_config([*files, overlay])
    configs = {}
    for arm, overrides in confirmation.experiment.arms_of(inputs.scale).items():
        chosen = []
        if arm in confirmation.challengers:
            chosen = [challenger_path(regime_path(overlay, confirmation.challengers[arm]))]
        configs[arm] = load_config([*files, *chosen], override_arguments(overrides))
    collected = read_collected(inputs.collected)
    own = {confirmation.name: confirmation.experiment}
    refuse_mixed_models(collected.runs, own, inputs.scale)
    return M3Study(collected, confirmation, record, recommended, configs, overlay, inputs)


REPORT = Report("m3", "M3 recommendation", read_study, origin_of)
register_run_tables(REPORT, resources_shown=False)


@REPORT.table("verdicts")
def all_verdicts(study: M3Study) -> pd.DataFrame:
    """One row per contrast that was declared before the runs, as in ``verdicts.csv``."""
    roles = study.confirmation
    return verdicts(study.values, {roles.name: roles.experiment}, study.inputs.scale)


@REPORT.table("verdicts_main", shown=True)
def declared_verdicts(tables: Tables) -> pd.DataFrame:
    """The same for readers; the primary contrasts answer the question."""
    return readable_of_one(tables["verdicts"])


@REPORT.table("beside")
def repeated_elsewhere(study: M3Study, tables: Tables) -> pd.DataFrame:
    """Contrasts that an experiment of another scale repeats, see :mod:`..beside`."""
    here = pd.concat([study.m2_verdicts, tables["verdicts"]], ignore_index=True)
    return beside_table(study.inputs, here)


@REPORT.table("beside_main", shown=True)
def repeated_for_readers(tables: Tables) -> pd.DataFrame:
    """The same for readers."""
    return readable_beside(tables["beside"])


@REPORT.table("confirmation")
def confirmation(study: M3Study) -> pd.DataFrame:
    """One row per measure and comparison, see :mod:`refblend.study.report.summary`.

    Those of a measure are one family (Holm). An arm has a row for its baseline and one for every
    other declared contrast of its own.
    """
    return _named(_summary(study))


@REPORT.table("confirmation_main", shown=True)
def confirmation_main(study: M3Study) -> pd.DataFrame:
    """The main measures, one row per comparison; what is decided, the verdicts say."""
    table = _named(readable_summary(_summary(study), study.confirmation.endpoint))
    return table.drop(columns=DECIDING, errors="ignore")


@REPORT.table("per_seed")
def per_seed(study: M3Study) -> pd.DataFrame:
    """Every run with its measures; runs that did not finish keep their row."""
    columns = [name for name in MEASURES if name in set(study.values.measure)]
    table = study.values.pivot(index=["arm", "seed"], columns="measure", values="value")
    table = table.reindex(columns=columns).reset_index()
    table.columns.name = None
    return in_run_order(table, study.collected.runs)


@REPORT.table("speed")
def speed(study: M3Study) -> pd.DataFrame:
    """How fast each challenger learns against its baseline: exploratory, see :mod:`..speed`."""
    own = study.confirmation.experiment
    pairs = [(arm, own.baseline_of(arm)) for arm in study.confirmation.challengers]
    return speed_rows(study.values, pairs, own.seeds_by_arm(study.inputs.scale))


@REPORT.table("speed_main", shown=True)
def speed_for_readers(tables: Tables) -> pd.DataFrame:
    """The same for readers."""
    return readable_speed(tables["speed"])


@REPORT.table("candidates", shown=True)
def candidates(study: M3Study) -> pd.DataFrame:
    """All candidates, from the simplest on."""
    return candidates_table(dict(study.record), CANDIDATE_COLUMNS)


@REPORT.table("dropped")
def dropped(study: M3Study) -> pd.DataFrame:
    """Arms that the scale trains and that were not candidates, and why when the choice was made.

    A record may be older than the design, and name arms that the scale no longer has, or lack arms
    that were added to the experiments from which it chose.
    """
    reasons = {arm: why for arm, why in study.record["dropped"].items() if arm in study.m2_arms}
    known = {row["arm"] for row in study.record["candidates"]} | set(study.record["dropped"])
    experiments, scale = study.m2_experiments, study.inputs.scale
    for name in (name for name in study.confirmation.sources if name in experiments):
        arms = experiments[name].seeds_by_arm(scale)
        reasons |= dict.fromkeys((arm for arm in arms if arm not in known), LATER)
    return pd.DataFrame(list(reasons.items()), columns=["arm", "reason"])


def _summary(study: M3Study) -> pd.DataFrame:
    """All measures and comparisons; the treated arm of a contrast under an alias of its own."""
    roles = study.confirmation
    aliases = {f"{arm}{AGAINST}{reference}": (arm, reference) for arm, reference in roles.contrasts}
    pairs = [*roles.pairs, *((alias, reference) for alias, (_, reference) in aliases.items())]

    def values_of(measure: str) -> pd.DataFrame:
        table = wide(study.values, measure, roles.arms).reindex(study.seeds)
        return table.assign(**{alias: table[arm] for alias, (arm, _) in aliases.items()})

    endpoints = [roles.experiment.endpoint_of(each) for each in roles.experiment.contrasts]
    measures = dict.fromkeys((roles.endpoint, *endpoints, *MEASURED))
    own = roles.experiment.seeds_by_arm(study.inputs.scale)
    planned = {arm: len(seeds) for arm, seeds in own.items()}
    planned |= {alias: planned[arm] for alias, (arm, _) in aliases.items()}
    family = Family(roles.name, (*roles.arms, *aliases), pairs, planned)
    return summarise(family.declared_by(roles.experiment), values_of, list(measures))


def _named(table: pd.DataFrame) -> pd.DataFrame:
    """The arms of a table by their own names."""
    return table.assign(arm=table.arm.map(lambda arm: arm.partition(AGAINST)[0]))
