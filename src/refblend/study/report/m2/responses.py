"""M2's tables of answers: accuracy by difficulty, length and several tries, and the judges' AUC
within a prompt."""

from typing import Any

import numpy as np
import pandas as pd

from refblend.ppo.metrics import roc_auc
from refblend.study.design.measures import label
from refblend.study.report.m2.study import REPORT, M2Study, varies_judge
from refblend.study.report.readable import interval
from refblend.study.report.shared import RUN
from refblend.study.runs.run_files import MANY_STEPS
from refblend.study.stats.statistics import student_interval

STEPS = "test/greedy_steps_"
LENGTH_BINS = 4
WITHIN = "judge AUC within a prompt"


@REPORT.table("breakdown", shown=True)
def breakdown(study: M2Study) -> pd.DataFrame:
    """One row per arm and warm start, means over its finished runs.

    ``<n> steps``: greedy test accuracy where solutions have n steps; ``truncated``: greedy test
    answers that were cut off; ``pass@n`` of the last recorded training step; ``length-controlled``:
    accuracy of its responses, the lengths weighted as the baseline's runs from the same warm start
    have them, and the difference to these. A baseline of any experiment is its own.
    """
    levels, bases = difficulties(study), set()
    for name in study.learning:
        bases |= set(study.baselines(name))
    frame = study.collected.responses.merge(study.collected.finished[RUN], on=RUN)
    last = frame[frame.step == frame.groupby(RUN).step.transform("max")]
    rows = []
    for head, seeds in study.groups():
        arm = head["arm"]
        used = (name for name in study.learning if arm in study.arms(name))
        base = arm if arm in bases else study.baseline(next(used), arm)
        start = head.get("warm_start", next(iter(study.starts.get(base, {"": []}))))
        others = last[
            (last.arm == base) & last.seed.isin(study.starts.get(base, {}).get(start, []))
        ]
        own = last[(last.arm == arm) & last.seed.isin(seeds)]
        controlled = length_controlled(own, others)
        group = study.resolved[arm].config.actor_rollout_ref.rollout.n
        rows.append(
            head
            | {"runs": len(seeds)}
            | {steps_name(n): by_difficulty(study, arm, n, seeds).mean() for n in levels}
            | {"truncated": _values(study, arm, "test/truncated", seeds).mean()}
            | {f"pass@{group}": pass_at_n(own, group)}
            | {"length-controlled": controlled}
            | {"difference": controlled - length_controlled(others, others)}
        )
    return pd.DataFrame(rows)


def steps_name(level: int) -> str:
    """``1 step``, ``2 steps``, ``4 or more steps``."""
    return f"{level}{' or more' if level == MANY_STEPS else ''} step{'s' * (level > 1)}"


def difficulties(study: M2Study) -> list[int]:
    """Numbers of steps that test problems have."""
    names = study.metrics["metric"].drop_duplicates()
    return sorted(int(name.removeprefix(STEPS)) for name in names if name.startswith(STEPS))


def by_difficulty(study: M2Study, arm: str, level: int, seeds: list[int]) -> pd.Series:
    """Greedy test accuracy of some of an arm's runs on problems of so many steps."""
    return _values(study, arm, f"{STEPS}{level}", seeds)


def truncated(study: M2Study, experiment: str, arm: str) -> float:
    """Share of an arm's greedy test answers that were cut off, mean over its runs."""
    return float(_values(study, arm, "test/truncated", study.seeds(experiment)[arm]).mean())


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


def _values(study: M2Study, arm: str, metric: str, seeds: list[int]) -> pd.Series:
    metrics = study.metrics
    rows = (metrics.arm == arm) & (metrics.metric == metric) & metrics.seed.isin(seeds)
    return metrics[rows]["value"]


def auc_within(responses: pd.DataFrame, n: int) -> float:
    """AUC of a run's scores among the n responses to the same prompt, all such pairs together.

    As :func:`refblend.scoring.measure.quality.auc_within` has it for held-out questions: this is
    what a policy trained on groups sees of a judge. Valid scores only; NaN where no prompt has
    right and wrong responses. The responses of a step stand as they were kept, n after n.
    """
    aucs, pairs = [], []
    for _, part in responses.groupby("step", sort=False):
        valid = part.judge_valid.fillna(False).to_numpy(dtype=bool)
        right, score = part.acc.ge(0.5).to_numpy(), part.judge_score.to_numpy(dtype=float)
        for first in range(0, len(part) // n * n, n):
            kept = np.flatnonzero(valid[first : first + n]) + first
            auc = roc_auc(score[kept], right[kept].astype(float))
            if auc is not None:
                aucs.append(auc)
                pairs.append(int(right[kept].sum()) * int((~right[kept]).sum()))
    return float(np.average(aucs, weights=pairs)) if aucs else np.nan


@REPORT.table("{experiment}_judge_auc", each=varies_judge)
def judge_auc(study: M2Study, experiment: str) -> pd.DataFrame:
    """Every run with a judge: arm, judge, seed, its AUC ``within`` a prompt and ``pooled``.

    Within a prompt it is that of the kept training responses; pooled over the prompts of a batch
    the mean over all steps. A judge that only tells easy from hard problems is good pooled, and
    of no use to a policy that is trained on differences within a prompt.
    """
    pooled, responses = study.wide(experiment, "judge_auc"), study.of(experiment, study.responses)
    kept = dict(iter(responses.groupby(RUN, sort=False)))
    rows = []
    for arm in study.treated(experiment):
        n = study.resolved[arm].config.actor_rollout_ref.rollout.n
        for seed in study.seeds(experiment)[arm]:
            within = auc_within(kept[arm, seed], n) if (arm, seed) in kept else np.nan
            row = {"arm": arm, "judge": study.resolved[arm].judge, "seed": seed}
            rows.append(row | {"within": within, "pooled": pooled[arm].get(seed, np.nan)})
    return pd.DataFrame(rows, columns=["arm", "judge", "seed", "within", "pooled"])


@REPORT.table("{experiment}_judge_quality", shown=True, each=varies_judge)
def judge_quality(tables: dict[str, pd.DataFrame], experiment: str) -> pd.DataFrame:
    """:func:`judge_auc` for readers: a row per arm, the lowest AUC within a prompt first."""
    rows: list[dict[str, Any]] = []
    groups = tables[f"{experiment}_judge_auc"].groupby(["judge", "arm"], sort=False)
    for (judge, arm), part in sorted(groups, key=lambda item: item[1].within.mean()):
        row = {"judge": judge, "arm": arm, "n": int(part.within.notna().sum())}
        for column, name in (("within", WITHIN), ("pooled", label("judge_auc") + ", pooled")):
            row[name] = interval(student_interval(part[column].dropna()))
        rows.append(row)
    return pd.DataFrame(rows, columns=None if rows else ["judge", "arm", "n"])
