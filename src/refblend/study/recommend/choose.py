"""The recommended configuration: chosen from M2's runs by one deterministic rule.

1. Only validation is looked at (the mean greedy accuracy over the second half of training); the
   test set and the fresh seeds of M3 stay unseen, so that M3 can confirm or refute the choice.
2. Candidates are the blends of :mod:`refblend.study.recommend.candidates`, on the seeds that all
   of them and the baseline have. A blend whose mean is below the baseline's is out: it costs a
   judge and gives nothing. If none is left, no blending is recommended.
3. Among the rest the best has the best mean; the *simplest* whose paired shortfall to it is at most
   one standard error of that shortfall is recommended (Breiman et al. 1984, as for the knee in
   docs/statistics.md). Simpler is: fewer keys that depart from ``params/ppo.yaml``, then fewer
   numbers in the strategy's formula, then earlier in ``params/study``.

The best mean of many arms with few seeds is mostly luck; "not distinguishable from the best" at
these seeds is nearly everything. One standard error stands between the two and keeps the defaults
unless the data speak against them.

``scoring.on_failure`` follows from the attacks on the judge, see
:mod:`refblend.study.recommend.on_failure`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from refblend.config.root import RefblendConfig
from refblend.errors import StudyError
from refblend.seeding import derive_generator
from refblend.study.recommend.candidates import Candidate, Pool, late_accuracy, read_pool
from refblend.study.recommend.on_failure import OnFailure, choose_on_failure, with_on_failure
from refblend.study.report.plotting.common import commit_text
from refblend.study.runs.collect import Collected
from refblend.study.stats.statistics import (
    Interval,
    bootstrap_interval,
    complete_seeds,
    paired_values,
    student_interval,
)
from refblend.study.stats.thresholds import find_knee

MEASURE = "mean greedy validation accuracy over the second half of training"
RULE = (
    f"Measure: {MEASURE}, on the seeds that all candidates and the baseline share. Candidates: "
    "blends with the real judge and the baseline's estimator that ran without failures, incidents "
    "or collapse, and whose mean is not below the baseline's. Recommended: the simplest candidate "
    "whose mean paired shortfall to the best one is at most one standard error of that shortfall; "
    "simpler means fewer keys that depart from params/ppo.yaml, then fewer numbers in the "
    "strategy's formula, then earlier in params/study. No candidate: blending is switched off."
)
MIN_SEEDS = 2
EXACT = 1e-12
"""Means closer than this are equal."""


@dataclass(frozen=True)
class Recommendation:
    """What was chosen, and what it rests on."""

    scale: str
    arm: str
    config: RefblendConfig
    baseline: str
    seeds: tuple[int, ...]
    commit: str
    best: str | None
    """The candidate with the best mean; null where none is left."""
    stability: float
    """Share of paired bootstrap resamples in which the rule chooses the same arm."""
    evidence: str
    level: str
    """``clear``, ``weak``, ``none`` or ``baseline``; see :func:`evidence_level`."""
    candidates: pd.DataFrame
    dropped: dict[str, str]
    on_failure: OnFailure
    judge_invalid_rate: float
    """Median share of invalid scores over M2's runs with a judge; the guards compare with it."""

    @property
    def enable(self) -> bool:
        """Whether a blend is recommended."""
        return self.config.algorithm.ref_quality_score.enable


def recommend(
    collected: Collected,
    scale: str,
    params: str | Path = "params",
    attacks: pd.DataFrame | None = None,
) -> Recommendation:
    """Choose the recommended configuration from the runs of M2.

    Args:
        collected: runs of M2.
        scale: whose configuration is laid under the arms'.
        params: root of the parameter files.
        attacks: the table of the scoring study; null where there is none.

    Raises:
        StudyError: the baseline has no runs, or fewer than two seeds are shared.
        ConfigError: an arm's configuration is not acceptable.
    """
    pool = read_pool(collected, scale, params)
    values = candidate_values(collected, pool)
    seeds = tuple(int(seed) for seed in values.index)
    table = candidate_table(values, pool)
    eligible = [row.arm for row in table.itertuples() if row.diff >= -EXACT]
    chosen: Candidate | None = None
    best, stability = None, float("nan")
    if eligible:
        ranked = values[eligible].set_axis(np.arange(len(eligible), dtype=float), axis=1)
        knee = find_knee(ranked, derive_generator("m3", "recommend"))
        assert knee.level is not None
        assert knee.best is not None
        best, stability = eligible[int(knee.best)], knee.stability
        name = eligible[int(knee.level)]
        chosen = next(candidate for candidate in pool.candidates if candidate.arm == name)
        table = with_shortfall(table, values, eligible, best)
    arm = chosen.arm if chosen else pool.baseline
    table["recommended"] = table["arm"] == arm
    config = chosen.config if chosen else pool.off
    on_failure = choose_on_failure(
        attacks,
        config.algorithm.ref_quality_score.invalid_score,
        config.algorithm.ref_quality_score.scoring.on_failure,
    )
    if config.algorithm.ref_quality_score.enable:
        config = with_on_failure(config, on_failure.value)
    evidence, level = evidence_text(values, arm, pool.baseline, len(table))
    return Recommendation(
        scale=scale,
        arm=arm,
        config=config,
        baseline=pool.baseline,
        seeds=seeds,
        commit=commit_text(collected),
        best=best,
        stability=stability,
        evidence=evidence,
        level=level,
        candidates=table,
        dropped=dict(pool.dropped),
        on_failure=on_failure,
        judge_invalid_rate=pool.invalid_rate,
    )


def candidate_values(collected: Collected, pool: Pool) -> pd.DataFrame:
    """The measure, one row a shared seed, one column the baseline and each candidate.

    Raises:
        StudyError: fewer than two seeds are shared.
    """
    arms = [pool.baseline, *(candidate.arm for candidate in pool.candidates)]
    late = late_accuracy(collected)
    frame = late[late.arm.isin(arms)].pivot(index="seed", columns="arm", values="value")
    frame = frame.reindex(columns=arms)
    shared, without = complete_seeds(frame)
    if without or len(shared) < MIN_SEEDS:
        lacking = f"; none of {', '.join(map(str, without))}" if without else ""
        raise StudyError(
            f"{len(shared)} seeds with validations are shared by {pool.baseline} and the "
            f"candidates{lacking}",
            f"At least {MIN_SEEDS} are needed: run M2 to its end, with validation on.",
        )
    return shared


def candidate_table(values: pd.DataFrame, pool: Pool) -> pd.DataFrame:
    """The baseline's and each candidate's mean, and the paired difference to the baseline."""
    rows = []
    for candidate in pool.candidates:
        gain = student_interval(values[candidate.arm] - values[pool.baseline])
        rows.append(
            {
                "arm": candidate.arm,
                "departures": ", ".join(
                    f"{key.rpartition('.')[2]}={_value(candidate.config, key)}"
                    for key in candidate.departures
                ),
                "n_departures": len(candidate.departures),
                "knobs": candidate.parameters,
                "n": gain.n,
                "mean": values[candidate.arm].mean(),
                "baseline_mean": values[pool.baseline].mean(),
                "diff": gain.estimate,
                "diff_low": gain.low,
                "diff_high": gain.high,
            }
        )
    return pd.DataFrame(rows, columns=list(CANDIDATE_COLUMNS))


CANDIDATE_COLUMNS = (
    "arm",
    "departures",
    "n_departures",
    "knobs",
    "n",
    "mean",
    "baseline_mean",
    "diff",
    "diff_low",
    "diff_high",
    "shortfall",
    "shortfall_se",
    "recommended",
)
"""Differences with Student's interval; the shortfall to the best with its standard error."""


def with_shortfall(
    table: pd.DataFrame, values: pd.DataFrame, eligible: list[str], best: str
) -> pd.DataFrame:
    """Mean paired shortfall to the best arm and its standard error, of the eligible arms."""
    gaps = {arm: values[best] - values[arm] for arm in eligible}
    return table.assign(
        shortfall=table.arm.map({arm: gap.mean() for arm, gap in gaps.items()}),
        shortfall_se=table.arm.map({arm: gap.sem() for arm, gap in gaps.items()}),
    )


def evidence_level(bootstrap: Interval, student: Interval, corrected: Interval) -> str:
    """How far a paired difference to the baseline can be told from 0.

    ``clear``: both 95 % intervals and Student's at 1 − 0.05/k for k candidates exclude 0; ``weak``:
    the two at 95 % do, but not after the correction for choosing among k; ``none`` otherwise, also
    where all differences are equal: an interval without width claims more than a few seeds can.
    """
    if not student.high - student.low > EXACT:
        return "none"
    if not (bootstrap.excludes_zero and student.excludes_zero):
        return "none"
    return "clear" if corrected.excludes_zero else "weak"


def evidence_text(
    values: pd.DataFrame, arm: str, baseline: str, candidates: int
) -> tuple[str, str]:
    """A sentence on the choice against the baseline, and its level."""
    if arm == baseline:
        return (
            f"No blend of {candidates} reaches the mean of {baseline} "
            f"({values[baseline].mean():.4f}, n = {len(values)}).",
            "baseline",
        )
    pairs = paired_values(values[arm], values[baseline])
    bootstrap = bootstrap_interval(pairs, derive_generator("m3", "evidence"))
    student = student_interval(pairs)
    corrected = student_interval(pairs, 1 - 0.05 / max(1, candidates))
    level = evidence_level(bootstrap, student, corrected)
    meaning = {
        "clear": f"distinguishable from {baseline}, also after correction for the choice",
        "weak": f"distinguishable from {baseline} only before correction for the choice",
        "none": f"not distinguishable from {baseline}",
    }[level]
    return (
        f"{arm} − {baseline}: {student.estimate:+.4f}, Student's 95 % interval "
        f"[{student.low:+.4f}, {student.high:+.4f}], bootstrap [{bootstrap.low:+.4f}, "
        f"{bootstrap.high:+.4f}], Student's for a choice among {candidates} "
        f"[{corrected.low:+.4f}, {corrected.high:+.4f}], n = {student.n}: {meaning}.",
        level,
    )


def _value(config: RefblendConfig, key: str) -> Any:
    value: Any = config
    for part in key.split("."):
        value = getattr(value, part)
    return value
