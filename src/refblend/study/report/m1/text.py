"""The text of M1's report: its first page answers the question, the rest is the record."""

from typing import Any

import pandas as pd

from refblend.study.design.measures import label
from refblend.study.report.m1.study import REPORT, M1Study
from refblend.study.report.m1.verdict import answers
from refblend.study.report.readable import interval_text
from refblend.study.report.registry import Tables
from refblend.study.report.shared import (
    arm_counts,
    headline,
    mean_accuracy,
    mean_blend,
    overrides_text,
)
from refblend.study.runs.incidents import incident_text
from refblend.study.runs.origin import facts


@REPORT.text
def text(study: M1Study, tables: Tables) -> dict[str, Any]:
    """The variables of the template."""
    return facts(study.collected) | {
        "experiment": study.experiment,
        "answers": answers(tables["verdict"]),
        "numbers": numbers(study, tables["arm_summary"]),
        "arms": [
            {"name": arm, "overrides": overrides_text(overrides)}
            | {"finished": arm_counts(study.collected, arm)}
            for arm, overrides in study.experiment.arms_of(study.scale).items()
        ],
    }


def numbers(study: M1Study, summary: pd.DataFrame) -> str:
    """What came out, and which incidents there were, in sentences."""
    parts = [f"{len(study.collected.finished)} of {len(study.collected.runs)} runs finished."]
    endpoint = study.experiment.endpoint
    name = "greedy test accuracy" if endpoint == "test_greedy" else label(endpoint)
    rows = summary[(summary.measure == endpoint) & (summary.n > 0)]
    for row in rows.to_dict("records"):
        mean = interval_text(row["mean"], row["low"], row["high"])
        sentence = f"Arm `{row['arm']}` reaches a {name} of {mean} (n = {row['n']})"
        if pd.notna(row["diff"]):
            difference = interval_text(row["diff"], row["diff_low"], row["diff_high"], signed=True)
            sentence += f", {difference} against `{row['baseline']}`"
        parts.append(sentence + ".")
    if pd.notna(study.warm_start):
        parts.append(f"The warm start that all runs begin from has {study.warm_start:.3f}.")
    return " ".join([*parts, f"Incidents over all runs: {incident_text(study.collected)}."])


@REPORT.metrics
def metrics(study: M1Study, tables: Tables) -> dict[str, Any]:
    """Headline numbers for ``dvc metrics``: the first arm against the baseline."""
    summary = tables["arm_summary"]
    mine = (summary.measure == study.experiment.endpoint) & (summary.baseline == study.baseline)
    rows = summary[mine]
    records = rows.to_dict("records")
    return headline(study.collected, records[0] if records else None)


@REPORT.plot("val_accuracy")
def val_accuracy(study: M1Study) -> pd.DataFrame:
    """Validation accuracy of every arm."""
    return mean_accuracy(study.collected)


@REPORT.plot("weight_entropy")
def weight_entropy(study: M1Study) -> pd.DataFrame:
    """Weight against entropy of every arm."""
    return mean_blend(study.collected)
