"""Milestone M1's input, the runs of one experiment and the quality of their models; all tables."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from refblend.errors import StudyError
from refblend.study.design.measures import with_endpoint
from refblend.study.design.spec import ExperimentSpec
from refblend.study.report.plotting.common import arm_colours
from refblend.study.report.readable import readable_summary
from refblend.study.report.registry import Inputs, Report, Tables
from refblend.study.report.shared import RunStudy, origin_of, quality_of_arms, register_run_tables
from refblend.study.report.summary import MAIN_MEASURES, Family, summarise
from refblend.study.runs.collect import read_collected
from refblend.study.runs.curves import results_on_test, start_and_end
from refblend.study.runs.incidents import in_run_order
from refblend.study.runs.measures import wide
from refblend.study.runs.model_quality import actor_table, judge_table, read_quality

JUDGE_MEASURES = (
    "weight", "avg_entropy", "score_mean", "score_std", "nonzero_rate", "valid_rate",
    "fallback_rate", "compact_rate", "clipped_rate", "new_tokens_mean", "auc", "ece",
    "reward_length_corr",
)  # fmt: skip
"""``actor/ref_quality/<name>``, averaged over the steps of a run."""


@dataclass(frozen=True)
class M1Study(RunStudy):
    """What tables, figures and text are made from."""

    experiment: ExperimentSpec
    quality: dict[str, Any]
    """Model → its quality report; empty where the models are the user's."""
    scale: str

    @property
    def baseline(self) -> str:
        """The arm that differences are taken against."""
        return self.experiment.baseline

    @property
    def arms(self) -> list[str]:
        """All arms of the scale, in the order of their file."""
        return list(self.experiment.arms_of(self.scale))

    @property
    def treated(self) -> list[str]:
        """All arms but the baseline."""
        return [arm for arm in self.arms if arm != self.baseline]

    @property
    def colours(self) -> dict[str, Any]:
        """Arm → colour."""
        return arm_colours(self.collected.runs.arm, self.baseline)

    @property
    def warm_start(self) -> float:
        """Greedy accuracy of the actor that all runs start from, on :attr:`warm_start_on`; only a
        finished answer after ``####`` counts. NaN if not measured."""
        return self._of_actor("greedy")

    @property
    def warm_start_on(self) -> str:
        """The problems that :attr:`warm_start` is a share of; runs are tested on the whole set."""
        count = self._of_actor("problems")
        return (
            "the test set" if np.isnan(count) else f"the first {count:.0f} problems of the test set"
        )

    def _of_actor(self, measure: str) -> float:
        table = actor_table(self.quality).set_index("model")[measure].astype("float64")
        return float(table.get("actor", np.nan))

    def wide(self, measure: str) -> pd.DataFrame:
        """One row per seed, one column per arm."""
        seeds = sorted({int(seed) for seed in self.collected.runs.seed})
        return wide(self.values, measure, self.arms).reindex(seeds)


def read_study(inputs: Inputs, milestone: str = "m1") -> M1Study:
    """Read the runs and the models' quality reports, as far as there are any.

    Raises:
        StudyError: frames or reports cannot be read, or the milestone has several experiments.
    """
    if len(inputs.experiments) != 1:
        raise StudyError(
            f"{milestone} answers one question but has {len(inputs.experiments)} experiments",
            f"Give one file of params/study `milestone: {milestone}`, the others another.",
        )
    (experiment,) = inputs.experiments.values()
    quality = read_quality(quality_of_arms(inputs))
    return M1Study(read_collected(inputs.collected), experiment, quality, inputs.scale)


REPORT = Report("m1", "M1 stability", read_study, origin_of)
register_run_tables(REPORT, resources_shown=True)


@REPORT.table("final_accuracy", shown=True)
def final_accuracy(study: M1Study) -> pd.DataFrame:
    """Every run: validation accuracy before and after training, and accuracy on the test set.

    ``test_warm_start`` is the same for all runs: the actor that they start from, on fewer problems
    and by a stricter rule (:attr:`M1Study.warm_start`), so that ``test_gain`` compares the two.
    """
    ends = start_and_end(study.metrics)
    validation = ends[ends.measure == "acc"].drop(columns=["measure", "auc", "drawdown"])
    validation = validation.rename(
        columns={name: f"val_{name}" for name in ("start", "final", "gain", "best")}
    )
    test = results_on_test(study.metrics).rename(columns={"value": "test_final"})
    table = in_run_order(validation, study.collected.runs)
    table = table.merge(test, on=["arm", "seed"], how="left")
    table["test_warm_start"] = np.where(table["test_final"].notna(), study.warm_start, np.nan)
    table["test_gain"] = table["test_final"] - table["test_warm_start"]
    return table


@REPORT.table("arm_summary")
def arm_summary(study: M1Study) -> pd.DataFrame:
    """Every arm and measure over its seeds and against the baseline, see :mod:`..summary`."""
    spec, planned = study.experiment, study.collected.runs.groupby("arm").size()
    pairs = [(arm, spec.baseline_of(arm)) for arm in study.arms if arm != spec.baseline_of(arm)]
    measures = with_endpoint(spec.endpoint, MAIN_MEASURES)
    family = Family("M1", study.arms, pairs, planned.to_dict()).declared_by(spec)
    return summarise(family, study.wide, measures)


@REPORT.table("arm_main", shown=True)
def arm_main(study: M1Study, tables: Tables) -> pd.DataFrame:
    """The main measures, one row per arm."""
    return readable_summary(tables["arm_summary"], study.experiment.endpoint)


@REPORT.table("judge_in_training", shown=True)
def judge_in_training(study: M1Study) -> pd.DataFrame:
    """Every run with a judge: blending and judge measures averaged over its steps."""
    names = {f"actor/ref_quality/{name}": name for name in JUDGE_MEASURES}
    part = study.metrics[study.metrics.metric.isin(names)]
    means = part.pivot_table(index=["arm", "seed"], columns="metric", values="value")
    means = means.rename(columns=names).reindex(columns=list(JUDGE_MEASURES))
    return means[means["score_mean"].notna()].reset_index()


@REPORT.table("actor_quality", shown=True)
def actor_quality(study: M1Study) -> pd.DataFrame:
    """The actor that all runs start from."""
    return actor_table(study.quality)


@REPORT.table("judge_quality")
def judge_quality(study: M1Study) -> pd.DataFrame:
    """The judges on held-out responses."""
    return judge_table(study.quality)
