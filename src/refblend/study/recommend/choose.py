"""The recommended configuration: chosen from M2's runs by one deterministic rule.

1. Only validation is looked at (the mean greedy accuracy over the second half of training); the
   test set and the fresh seeds of M3 stay unseen, so that M3 can confirm or refute the choice.
2. Candidates are the blends of :mod:`refblend.study.recommend.candidates`, on the seeds that all
   of them and the baseline have. A blend whose mean is below the baseline's is out: it costs a
   judge and gains nothing. If none is left, no blending is recommended.
3. Among the rest, the *simplest* one whose paired shortfall to the best mean is at most one
   standard error of that shortfall is recommended (Breiman et al. 1984, as for the knee in
   docs/explanation/statistics.md). Simpler means fewer keys that depart from ``params/ppo.yaml``,
   then fewer numbers in the strategy's formula, then earlier in ``params/study``.

The best mean of many arms with few seeds is mostly luck, and nearly everything is "not
distinguishable from the best" with so few. One standard error is between the two and keeps the
defaults unless the data speak against them.

``scoring.on_failure`` follows from the attacks on the judge, see
:mod:`refblend.study.recommend.on_failure`.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from refblend.config.root import RefblendConfig
from refblend.errors import StudyError
from refblend.seeding import derive_generator
from refblend.study.recommend.candidates import Candidate, Pool, late_accuracy, read_pool
from refblend.study.recommend.evidence import EXACT, Evidence, weigh
from refblend.study.recommend.on_failure import OnFailure, choose_on_failure, with_on_failure
from refblend.study.runs.collect import Collected
from refblend.study.stats.statistics import complete_seeds, student_interval
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


@dataclass(frozen=True)
class Recommendation:
    """What was chosen, and what it rests on."""

    scale: str
    arm: str
    config: RefblendConfig
    baseline: str
    seeds: tuple[int, ...]
    best: str | None
    """The candidate with the best mean; null where none is left."""
    stability: float
    """Share of paired bootstrap resamples in which the rule chooses the same arm."""
    evidence: Evidence
    candidates: pd.DataFrame
    """:data:`CANDIDATE_COLUMNS`, from the simplest candidate on."""
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
    """Choose the recommended configuration from the runs of M2, and the scoring study's attacks.

    Raises:
        StudyError: the baseline has no runs, or fewer than two seeds are shared.
        ConfigError: an arm's configuration is not acceptable.
    """
    pool = read_pool(collected, scale, params)
    values = candidate_values(collected, pool)
    table = candidate_table(values, pool)
    choice = choose_arm(values, pool, table)
    table = with_shortfall(table, values, choice)
    config = choice.candidate.config if choice.candidate else pool.off
    blend = config.algorithm.ref_quality_score
    on_failure = choose_on_failure(attacks, blend.invalid_score, blend.scoring.on_failure)
    if blend.enable:
        config = with_on_failure(config, on_failure.value)
    return Recommendation(
        scale=scale,
        arm=choice.arm,
        config=config,
        baseline=pool.baseline,
        seeds=tuple(int(seed) for seed in values.index),
        best=choice.best,
        stability=choice.stability,
        evidence=weigh(values, choice.arm, pool.baseline, len(table)),
        candidates=table,
        dropped=dict(pool.dropped),
        on_failure=on_failure,
        judge_invalid_rate=pool.invalid_rate,
    )


@dataclass(frozen=True)
class Choice:
    """What the rule gives."""

    arm: str
    candidate: Candidate | None
    """Null where the baseline is recommended."""
    best: str | None
    """The candidate with the best mean; null where none is left."""
    stability: float
    """Share of paired bootstrap resamples in which the rule chooses the same arm."""
    eligible: tuple[str, ...]
    """Candidates whose mean is not below the baseline's, from the simplest on."""


def choose_arm(values: pd.DataFrame, pool: Pool, table: pd.DataFrame) -> Choice:
    """Apply the rule of the module's head to the seeds' values."""
    eligible = tuple(row.arm for row in table.itertuples() if row.diff >= -EXACT)
    if not eligible:
        return Choice(pool.baseline, None, None, float("nan"), eligible)
    ranked = values[list(eligible)].set_axis(np.arange(len(eligible), dtype=float), axis=1)
    knee = find_knee(ranked, derive_generator("m3", "recommend"))
    assert knee.level is not None
    assert knee.best is not None
    arm = eligible[int(knee.level)]
    candidate = next(candidate for candidate in pool.candidates if candidate.arm == arm)
    return Choice(arm, candidate, eligible[int(knee.best)], knee.stability, eligible)


def candidate_values(collected: Collected, pool: Pool) -> pd.DataFrame:
    """The measure: one row per shared seed, one column for the baseline and each candidate.

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
            f"{pool.baseline} and the candidates share {len(shared)} seeds with validations"
            f"{lacking}",
            f"At least {MIN_SEEDS} are needed: finish the runs of M2, with validation on.",
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
                    f"{key.rpartition('.')[2]}={value}"
                    for key, value in candidate.departures.items()
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
    "arm", "departures", "n_departures", "knobs", "n", "mean", "baseline_mean", "diff", "diff_low",
    "diff_high", "shortfall", "shortfall_se", "recommended",
)  # fmt: skip
"""Differences with Student's interval; the shortfall to the best with its standard error."""


def with_shortfall(table: pd.DataFrame, values: pd.DataFrame, choice: Choice) -> pd.DataFrame:
    """Marks the choice; adds the eligible arms' mean paired shortfall to the best and its error."""
    table = table.assign(recommended=table["arm"] == choice.arm)
    if choice.best is None:
        return table
    gaps = {arm: values[choice.best] - values[arm] for arm in choice.eligible}
    return table.assign(
        shortfall=table.arm.map({arm: gap.mean() for arm, gap in gaps.items()}),
        shortfall_se=table.arm.map({arm: gap.sem() for arm, gap in gaps.items()}),
    )
