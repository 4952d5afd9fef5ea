"""Shared by several reports: plot data for DVC, and descriptions of arms."""

import json
from collections.abc import Mapping
from typing import Any

import pandas as pd

from refblend.study.runs.collect import Collected
from refblend.study.runs.incidents import incident_totals
from refblend.study.runs.series import series
from refblend.study.runs.validation import validation_frame

KEYS = ["arm", "step"]


def mean_accuracy(collected: Collected) -> pd.DataFrame:
    """Greedy validation accuracy by arm and step, mean over seeds."""
    validation = validation_frame(collected.counted_metrics)
    accuracy = validation[validation.measure == "acc"].groupby(KEYS, as_index=False)["value"].mean()
    return accuracy.rename(columns={"value": "accuracy"})


def mean_blend(collected: Collected) -> pd.DataFrame:
    """Average entropy and blending weight by arm and step, mean over seeds."""
    metrics = collected.counted_metrics
    parts = [
        series(metrics, f"actor/ref_quality/{name}").groupby(KEYS)["value"].mean().rename(name)
        for name in ("avg_entropy", "weight")
    ]
    blend = pd.concat(parts, axis=1, join="inner").reset_index()
    return blend.reindex(columns=[*KEYS, "avg_entropy", "weight"])


def headline(collected: Collected, row: Mapping[str, Any] | None) -> dict[str, Any]:
    """Numbers for ``dvc metrics``, under the same few names in all reports: one row each.

    Args:
        collected: the runs.
        row: of a summary, the comparison that answers the report's question; null without one.

    Returns:
        ``runs`` planned, ``missing`` of these, ``incidents`` over all; where it was measured also
        the arm's ``accuracy``, its paired ``diff`` to the baseline, and ``low`` and ``high`` of it.
    """
    names = {"mean": "accuracy", "diff": "diff", "diff_low": "low", "diff_high": "high"}
    measured = {to: row[name] for name, to in names.items()} if row else {}
    return {name: round(float(v), 4) for name, v in measured.items() if pd.notna(v)} | {
        "runs": len(collected.runs),
        "missing": len(collected.runs) - len(collected.finished),
        "incidents": sum(incident_totals(collected).values()),
    }


def overrides_text(overrides: Mapping[str, Any]) -> str:
    """``key=value`` of an arm's overrides as code, ``none`` without any."""
    text = ", ".join(
        f"`{key}={json.dumps(overrides[key]).strip(chr(34))}`" for key in sorted(overrides)
    )
    return text or "none"


def arm_counts(collected: Collected, arm: str) -> str:
    """``2 of 3`` runs of an arm finished."""
    runs = collected.runs[collected.runs.arm == arm]
    return f"{int((runs.status == 'finished').sum())} of {len(runs)}"
