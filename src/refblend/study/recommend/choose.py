"""The recommended configuration: chosen from M2's runs by one deterministic rule.

1. Only validation is looked at (the mean greedy accuracy over the second half of training); the
   test set and the fresh seeds of M3 stay unseen, so that M3 can confirm or refute the choice.
2. Candidates are the baseline, which does not blend, and the blends of
   :mod:`refblend.study.recommend.candidates`. Each is compared with the baseline on all seeds that
   the two share; the best has the largest mean difference, 0 for the baseline itself. A blend
   whose mean difference is below 0 is out: it costs a judge and gains nothing.
3. The *simplest* candidate whose mean paired shortfall to the best is at most one standard error
   of that shortfall is recommended (Breiman et al. 1984, as for the knee in
   docs/explanation/statistics.md). Simpler means no blend first, then fewer keys that depart from
   ``params/ppo.yaml``, then fewer numbers in the strategy's formula, then earlier in
   ``params/study``. The rule thus says "do not blend" unless the best blend is ahead by more than
   the noise.

The best mean of many arms with few seeds is mostly luck, and nearly everything is "not
distinguishable from the best" with so few. One standard error is between the two, and costs no
judge unless the data speak for one. The evidence says how far the choice can be told from the
baseline, on the seeds that chose it.

The *challenger* is the blend that M3 tests on fresh seeds: the recommended one, or, where none is
recommended, the one with the largest mean difference to the baseline. So a recommendation not to
blend is tested, too.

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
from refblend.study.recommend.on_failure import OnFailure, choose_on_failure, with_on_failure
from refblend.study.runs.collect import Collected
from refblend.study.stats.statistics import (
    Interval,
    bootstrap_interval,
    complete_seeds,
    paired_values,
    resample_rows,
    student_interval,
)
from refblend.study.stats.thresholds import SLACK

EXACT = 1e-12
"""Numbers closer than this are equal."""


@dataclass(frozen=True)
class Evidence:
    """The choice against the baseline."""

    text: str
    """One sentence."""
    level: str
    """``clear``, ``weak``, ``none`` or ``baseline``; see :func:`evidence_level`."""


def weigh(values: pd.DataFrame, arm: str, baseline: str, best: str, candidates: int) -> Evidence:
    """The choice among so many candidates, ``best`` first, against the baseline.

    ``values`` has one row per seed and a column per arm. The choice is the baseline itself where
    the best blend is not ahead of it by more than the noise.
    """
    if arm == baseline:
        said = (
            f"No blend of {candidates} has a higher mean than {baseline}"
            if best == baseline
            else f"{baseline} is within one standard error of {best}, the best of {candidates}"
        )
        return Evidence(
            f"{said} ({baseline}: mean {values[baseline].mean():.4f}, n = {len(values)}).",
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
    return Evidence(
        f"{arm} − {baseline}: {student.estimate:+.4f}, Student's 95 % interval "
        f"[{student.low:+.4f}, {student.high:+.4f}], bootstrap [{bootstrap.low:+.4f}, "
        f"{bootstrap.high:+.4f}], Student's for a choice among {candidates} "
        f"[{corrected.low:+.4f}, {corrected.high:+.4f}], n = {student.n}: {meaning}.",
        level,
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


MEASURE = "mean greedy validation accuracy over the second half of training"
RULE = (
    f"Measure: {MEASURE}, on the seeds that a candidate shares with the one it is compared with, "
    "without those that M3 confirms on. Candidates: the baseline without a blend, and blends with "
    "the real judge that differ from it in nothing else, have every seed of their experiment and "
    "ran without failures, incidents or collapse. Recommended: of those whose mean is not below "
    "the baseline's, the simplest whose mean paired shortfall to the best one is at most one "
    "standard error of that shortfall; simpler means no blend first, then fewer keys that "
    "depart from params/ppo.yaml, then fewer numbers in the strategy's formula, then earlier in "
    "params/study."
)
MIN_SEEDS = 2
RESAMPLES = 2000


@dataclass(frozen=True)
class Recommendation:
    """What was chosen, and what it rests on."""

    scale: str
    arm: str
    config: RefblendConfig
    baseline: str
    seeds: tuple[int, ...]
    regime: str | None
    """Null: the one that M3 confirms."""
    best: str
    """The candidate with the best mean difference; it may be the baseline."""
    stability: float
    """Share of paired bootstrap resamples in which the rule chooses the same arm."""
    evidence: Evidence
    candidates: pd.DataFrame
    """:data:`CANDIDATE_COLUMNS`, from the simplest candidate on."""
    dropped: dict[str, str]
    on_failure: OnFailure
    challenger: str
    """The arm that M3 tests on fresh seeds; the baseline where no arm is a candidate."""
    challenger_config: RefblendConfig
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
    regime: str | None = None,
) -> Recommendation:
    """Choose the recommended configuration from the runs of M2, and the scoring study's attacks.

    Of a regime that an experiment declares: from its arms, against its own baseline.

    Raises:
        StudyError: the baseline has no runs, or fewer than two seeds are shared.
        ConfigError: an arm's configuration is not acceptable.
    """
    pool = read_pool(collected, scale, params, regime)
    values = candidate_values(pool)
    table = candidate_table(values, pool)
    choice = choose_arm(values, pool)
    table = with_shortfall(table, values, choice)
    config, on_failure = _settled(choice.candidate, pool, attacks)
    challenger = choice.candidate or nearest_blend(table, pool)
    return Recommendation(
        scale=scale,
        arm=choice.arm,
        config=config,
        baseline=pool.baseline,
        seeds=tuple(int(seed) for seed in values.index),
        regime=regime,
        best=choice.best,
        stability=choice.stability,
        evidence=weigh(values, choice.arm, pool.baseline, choice.best, len(pool.candidates)),
        candidates=table,
        dropped=dict(pool.dropped),
        on_failure=on_failure,
        challenger=challenger.arm if challenger else pool.baseline,
        challenger_config=_settled(challenger, pool, attacks)[0],
        judge_invalid_rate=pool.invalid_rate,
    )


def nearest_blend(table: pd.DataFrame, pool: Pool) -> Candidate | None:
    """The candidate with the largest mean difference to the baseline; null where there is none."""
    gains = table.set_index("arm")["diff"]
    return max(pool.candidates, key=lambda candidate: gains[candidate.arm], default=None)


def _settled(
    candidate: Candidate | None, pool: Pool, attacks: pd.DataFrame | None
) -> tuple[RefblendConfig, OnFailure]:
    """A candidate's configuration, or the baseline's, with the ``on_failure`` that follows."""
    config = candidate.config if candidate else pool.off
    blend = config.algorithm.ref_quality_score
    on_failure = choose_on_failure(attacks, blend.invalid_score, blend.scoring.on_failure)
    return with_on_failure(config, on_failure.value) if blend.enable else config, on_failure


@dataclass(frozen=True)
class Choice:
    """What the rule gives."""

    arm: str
    candidate: Candidate | None
    """Null where the baseline is recommended."""
    best: str
    """The candidate with the best mean difference; it may be the baseline."""
    stability: float
    """Share of paired bootstrap resamples in which the rule chooses the same arm."""


def choose_arm(values: pd.DataFrame, pool: Pool) -> Choice:
    """Apply the rule of the module's head to the seeds' values."""
    arms = [pool.baseline, *(candidate.arm for candidate in pool.candidates)]
    arm, best = apply_rule(values[arms], pool.baseline)
    complete, _ = complete_seeds(values[arms])
    rng, agree = derive_generator("m3", "recommend"), []
    for rows in resample_rows(len(complete), RESAMPLES, rng) if len(complete) >= MIN_SEEDS else ():
        agree.append(apply_rule(complete.iloc[rows], pool.baseline)[0] == arm)
    candidate = next((each for each in pool.candidates if each.arm == arm), None)
    return Choice(arm, candidate, best, float(np.mean(agree)) if agree else float("nan"))


def apply_rule(values: pd.DataFrame, baseline: str) -> tuple[str, str]:
    """The chosen arm, and the one with the best mean difference to the baseline.

    Args:
        values: a row per seed, a column per arm, the simplest first; NaN where a run is missing.
        baseline: one of the columns.
    """
    table = values.to_numpy(dtype=np.float64)
    gains = np.nanmean(table - table[:, [list(values.columns).index(baseline)]], axis=0)
    best = int(np.argmax(gains))
    shortfalls = table[:, [best]] - table
    counts = np.isfinite(shortfalls).sum(axis=0)
    means = np.nanmean(shortfalls, axis=0)
    spread = np.sqrt(np.nansum((shortfalls - means) ** 2, axis=0) / np.maximum(counts - 1, 1))
    within = (means <= spread / np.sqrt(counts) * SLACK) & (counts >= MIN_SEEDS)
    within &= gains >= -EXACT
    within[best] = True
    return str(values.columns[int(np.argmax(within))]), str(values.columns[best])


def candidate_values(pool: Pool) -> pd.DataFrame:
    """The measure: one row per seed of the baseline, one column for it and each candidate.

    Raises:
        StudyError: a candidate shares fewer than two seeds with the baseline.
    """
    arms = [pool.baseline, *(candidate.arm for candidate in pool.candidates)]
    late = late_accuracy(pool.collected)
    frame = late[late.arm.isin(arms)].pivot(index="seed", columns="arm", values="value")
    frame = frame.reindex(columns=arms)
    frame = frame[frame[pool.baseline].notna()]
    for arm, shared in frame.notna().sum().items():
        if shared < MIN_SEEDS:
            raise StudyError(
                f"{pool.baseline} and {arm} share {shared} seeds with validations",
                f"At least {MIN_SEEDS} are needed: finish the runs of M2, with validation on.",
            )
    return frame


def candidate_table(values: pd.DataFrame, pool: Pool) -> pd.DataFrame:
    """The baseline's and each candidate's mean, and the paired difference to the baseline."""
    off = values[pool.baseline]
    rows = [
        {"arm": pool.baseline, "departures": "no blend", "n_departures": 0, "n_parameters": 0}
        | {"n": len(off), "mean": off.mean(), "baseline_mean": off.mean(), "diff": 0.0}
    ]
    for candidate in pool.candidates:
        gain = student_interval((values[candidate.arm] - off).dropna())
        rows.append(
            {
                "arm": candidate.arm,
                "departures": ", ".join(
                    f"{key.rpartition('.')[2]}={value}"
                    for key, value in candidate.departures.items()
                ),
                "n_departures": len(candidate.departures),
                "n_parameters": candidate.parameters,
                "n": gain.n,
                "mean": values[candidate.arm].mean(),
                "baseline_mean": off[values[candidate.arm].notna()].mean(),
                "diff": gain.estimate,
                "diff_low": gain.low,
                "diff_high": gain.high,
            }
        )
    return pd.DataFrame(rows, columns=list(CANDIDATE_COLUMNS))


CANDIDATE_COLUMNS = (
    "arm", "departures", "n_departures", "n_parameters", "n", "mean", "baseline_mean", "diff",
    "diff_low", "diff_high", "shortfall", "shortfall_se", "recommended",
)  # fmt: skip
"""Differences with Student's interval; the shortfall to the best with its standard error."""


def with_shortfall(table: pd.DataFrame, values: pd.DataFrame, choice: Choice) -> pd.DataFrame:
    """Marks the choice; adds every candidate's mean paired shortfall to the best and its error."""
    table = table.assign(recommended=table["arm"] == choice.arm)
    gaps = {arm: (values[choice.best] - values[arm]).dropna() for arm in table.arm}
    return table.assign(
        shortfall=table.arm.map({arm: gap.mean() for arm, gap in gaps.items()}),
        shortfall_se=table.arm.map({arm: gap.sem() for arm, gap in gaps.items()}),
    )
