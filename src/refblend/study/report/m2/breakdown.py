"""M2's accuracy taken apart: by difficulty, by length, by several tries, and what was cut off."""

import numpy as np
import pandas as pd

from refblend.study.report.m2.study import REPORT, M2Study
from refblend.study.report.shared import RUN

STEPS = "test/greedy_steps_"
LENGTH_BINS = 4


@REPORT.table("breakdown", shown=True)
def breakdown(study: M2Study) -> pd.DataFrame:
    """One row per arm, means over its finished runs.

    ``<n> steps``: greedy test accuracy where solutions have n steps; ``truncated``: greedy test
    answers that were cut off; ``pass@n`` of the last recorded training step; ``length-controlled``:
    accuracy of its responses, the lengths weighted as the baseline has them, and its difference.
    """
    levels = difficulties(study)
    frame = study.collected.responses.merge(study.collected.finished[RUN], on=RUN)
    last = frame[frame.step == frame.groupby(RUN).step.transform("max")]
    rows = []
    for arm in study.all_arms():
        base = next(study.baseline(name, arm) for name in study.learning if arm in study.arms(name))
        own, others = (last[last.arm == name] for name in (arm, base))
        controlled = length_controlled(own, others)
        rows.append(
            {"arm": arm}
            | {f"{n} steps": _mean(study, arm, f"{STEPS}{n}") for n in levels}
            | {"truncated": _mean(study, arm, "test/truncated")}
            | {f"pass@{group_size(study, arm)}": pass_at_n(own, group_size(study, arm))}
            | {"length-controlled": controlled}
            | {"difference": controlled - length_controlled(others, others)}
        )
    return pd.DataFrame(rows)


def difficulties(study: M2Study) -> list[int]:
    """Numbers of steps that test problems have."""
    names = study.metrics["metric"].drop_duplicates()
    return sorted(int(name.removeprefix(STEPS)) for name in names if name.startswith(STEPS))


def by_difficulty(study: M2Study, arm: str, level: int) -> pd.Series:
    """Greedy test accuracy of an arm's runs on problems of so many steps."""
    metrics = study.metrics
    return metrics[(metrics.arm == arm) & (metrics.metric == f"{STEPS}{level}")]["value"]


def group_size(study: M2Study, arm: str) -> int:
    """Responses per prompt."""
    return study.resolved[arm].config.actor_rollout_ref.rollout.n


def pass_at_n(responses: pd.DataFrame, n: int) -> float:
    """Share of prompts with a right answer among their n responses, which follow one another."""
    hits = []
    for _, part in responses.groupby([*RUN, "step"], sort=False):
        right = part.acc.ge(0.5).to_numpy()
        hits += list(right[: len(right) // n * n].reshape(-1, n).any(axis=1))
    return float(np.mean(hits)) if hits else np.nan


def length_controlled(responses: pd.DataFrame, baseline: pd.DataFrame) -> float:
    """Accuracy if lengths were distributed as the baseline's, in bins of its quantiles.

    Bins without a response of the arm are left out, and the others' weights rise.
    """
    if responses.empty or baseline.empty:
        return np.nan
    inner = np.unique(np.quantile(baseline.length, np.linspace(0, 1, LENGTH_BINS + 1)[1:-1]))
    own, weights = (np.searchsorted(inner, frame.length) for frame in (responses, baseline))
    accuracy = responses.acc.ge(0.5).groupby(own).mean()
    share = pd.Series(weights).value_counts(normalize=True).reindex(accuracy.index).fillna(0)
    return float((accuracy * share).sum() / share.sum()) if share.sum() else np.nan


def _mean(study: M2Study, arm: str, metric: str) -> float:
    metrics = study.metrics
    return float(metrics[(metrics.arm == arm) & (metrics.metric == metric)]["value"].mean())
