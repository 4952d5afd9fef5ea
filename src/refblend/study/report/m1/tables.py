"""Tables of milestone M1: every run, every arm over its seeds, incidents, stability, the judge."""

import numpy as np
import pandas as pd

from refblend.study.design.measures import with_endpoint
from refblend.study.report.m1.study import REPORT, M1Study
from refblend.study.report.readable import readable_summary
from refblend.study.report.registry import Tables
from refblend.study.report.summary import MAIN_MEASURES, Family, summarise
from refblend.study.runs.curves import results_on_test, start_and_end
from refblend.study.runs.incidents import in_run_order
from refblend.study.runs.model_quality import actor_table, judge_table

JUDGE_MEASURES = (
    "weight", "avg_entropy", "score_mean", "score_std", "nonzero_rate", "valid_rate",
    "fallback_rate", "compact_rate", "clipped_rate", "new_tokens_mean", "auc", "ece",
    "reward_length_corr",
)  # fmt: skip
"""``actor/ref_quality/<name>``, averaged over the steps of a run."""


@REPORT.table("final_accuracy", shown=True)
def final_accuracy(study: M1Study) -> pd.DataFrame:
    """Every run: validation accuracy before and after training, and accuracy on the test set.

    ``test_warm_start`` is the same for all runs: the actor that they start from.
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
    pairs = [(arm, study.baseline) for arm in study.treated]
    measures = with_endpoint(study.experiment.endpoint, MAIN_MEASURES)
    return summarise(Family("M1", study.arms, pairs), study.wide, measures)


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
