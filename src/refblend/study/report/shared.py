"""Shared by the reports on runs: their study, tables of runs, plot data, descriptions of arms."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from refblend.study.design.arms import resolve_arms
from refblend.study.report.registry import Inputs, Report
from refblend.study.runs.collect import Collected
from refblend.study.runs.curves import series, stability, validation_frame
from refblend.study.runs.incidents import (
    in_run_order,
    incident_totals,
    incidents_table,
    origin,
    resources,
)
from refblend.study.runs.measures import run_measures

KEYS = ["arm", "step"]
RUN = ["arm", "seed"]
_OF_START = " ("
"""Between an arm and its warm start in the name of a curve."""


@dataclass(frozen=True)
class RunStudy:
    """A study of runs, from which tables, figures and text are made."""

    collected: Collected

    @cached_property
    def values(self) -> pd.DataFrame:
        """As :func:`refblend.study.runs.measures.run_measures` gives it."""
        return run_measures(self.collected)

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """Metrics of finished runs."""
        return self.collected.counted_metrics

    @property
    def curves(self) -> Collected:
        """The runs whose curves DVC plots."""
        return self.collected

    @cached_property
    def responses(self) -> pd.DataFrame:
        """Judged responses of finished runs."""
        frame = self.collected.responses.merge(self.collected.finished[RUN], on=RUN)
        return frame[frame.judge_score.notna()]


def origin_of(study: RunStudy) -> str:
    """:func:`origin` of a study's runs; the end of a report's captions."""
    return origin(study.collected)


def incidents_of_runs(study: RunStudy) -> pd.DataFrame:
    """Incidents of every run and their sum."""
    return incidents_table(study.collected)


def resources_of_runs(study: RunStudy) -> pd.DataFrame:
    """Time, pace, memory and energy of every run."""
    return resources(study.collected)


def stability_of_runs(study: RunStudy) -> pd.DataFrame:
    """Spikes, entropy, length and largest fall of the validation accuracy of every run."""
    return in_run_order(stability(study.metrics), study.collected.runs)


def val_accuracy(study: RunStudy) -> pd.DataFrame:
    """Greedy validation accuracy by arm and step, mean over seeds."""
    validation = validation_frame(study.curves.counted_metrics)
    accuracy = validation[validation.measure == "acc"].groupby(KEYS, as_index=False)["value"].mean()
    return accuracy.rename(columns={"value": "accuracy"})


def weight_entropy(study: RunStudy) -> pd.DataFrame:
    """Average entropy and blending weight by arm and step, mean over seeds."""
    metrics = study.curves.counted_metrics
    parts = [
        series(metrics, f"actor/ref_quality/{name}").groupby(KEYS)["value"].mean().rename(name)
        for name in ("avg_entropy", "weight")
    ]
    blend = pd.concat(parts, axis=1, join="inner").reset_index()
    return blend.reindex(columns=[*KEYS, "avg_entropy", "weight"])


def curve_name(arm: str, start: str) -> str:
    """The name in the plots' data of an arm's runs from one of several warm starts."""
    return f"{arm}{_OF_START}{start})"


def arm_and_start(name: str) -> tuple[str, str]:
    """The arm and the warm start of :func:`curve_name`; a name without a start has an empty one.

    >>> arm_and_start("linear (3689b40b)"), arm_and_start("linear")
    (('linear', '3689b40b'), ('linear', ''))
    """
    arm, _, start = name.removesuffix(")").partition(_OF_START)
    return arm, start


def register_run_tables(report: Report, resources_shown: bool) -> None:
    """Incidents, stability and resources of every run, and the plots of a few arms."""
    report.table("incidents", shown=True)(incidents_of_runs)
    report.table("stability", shown=True)(stability_of_runs)
    report.table("resources", shown=resources_shown)(resources_of_runs)
    report.plot("val_accuracy")(val_accuracy)
    report.plot("weight_entropy")(weight_entropy)


def headline(collected: Collected, row: Mapping[str, Any] | None) -> dict[str, Any]:
    """Numbers for ``dvc metrics``, under the same few names in all reports.

    ``runs`` planned, ``missing`` of these, ``incidents`` over all; of the comparison that answers
    the report's question (a summary's row), as far as it was measured, the arm's ``accuracy`` and
    its paired ``diff`` to the baseline with ``low`` and ``high``.
    """
    names = {"mean": "accuracy", "diff": "diff", "diff_low": "low", "diff_high": "high"}
    measured = {to: row[name] for name, to in names.items()} if row else {}
    return {name: round(float(v), 4) for name, v in measured.items() if pd.notna(v)} | {
        "runs": len(collected.runs),
        "missing": len(collected.runs) - len(collected.finished),
        "incidents": sum(incident_totals(collected).values()),
    }


def quality_names(inputs: Inputs) -> list[str]:
    """The actor and the judges that the arms use, as files of their quality are named."""
    arms = resolve_arms(inputs.experiments, inputs.scale, inputs.params).values()
    return ["actor", *sorted({f"judge_{arm.judge}" for arm in arms if arm.config.use_judge})]


def quality_of_arms(inputs: Inputs) -> list[Path]:
    """Quality reports of the actor and of the judges that the arms use; none of a user's models."""
    files = (inputs.models / "quality" / f"{name}.json" for name in quality_names(inputs))
    return [path for path in files if path.exists()]


def arm_row(collected: Collected, arm: str, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """What the reports' last table says of an arm."""
    text = ", ".join(
        f"`{key}={json.dumps(overrides[key]).strip(chr(34))}`" for key in sorted(overrides)
    )
    return {"name": arm, "overrides": text or "none", "finished": arm_counts(collected, arm)}


def arm_counts(collected: Collected, arm: str) -> str:
    """``2 of 3`` runs of an arm finished."""
    runs = collected.runs[collected.runs.arm == arm]
    return f"{int((runs.status == 'finished').sum())} of {len(runs)}"
