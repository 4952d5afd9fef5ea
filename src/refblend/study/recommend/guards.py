"""Guards of M3: checks that fail when the recommended configuration is no longer safe to use.

They fail when a run is missing, when incidents exceed what is tolerated, or when the recommended
configuration blends and is worse than the baseline: when the whole interval of their paired
difference lies below 0. Not to blend is safe whatever the challenger does.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from refblend.errors import StudyError
from refblend.files import sha256_file
from refblend.study.recommend.candidates import Confirmation, invalid_rate
from refblend.study.recommend.overlay import (
    challenger_path,
    invalid_when_chosen,
    read_enable,
    regime_path,
)
from refblend.study.runs.collect import Collected
from refblend.study.runs.incidents import incident_totals, split_limit, unfinished
from refblend.study.runs.measures import run_measures, wide
from refblend.study.stats.statistics import Interval, student_interval

TOLERATED: Mapping[str, float] = {
    "overlength": 0,
    "oom": 0,
    "nonfinite": 0,
    "judge_error": 0,
    "reward_error": 0,
    "judge_invalid": 0.05,
}
"""Largest number over all runs. For ``judge_invalid`` the largest share of a run's scores, or twice
the share that was usual in M2 when the configuration was chosen, whichever is larger."""

RATES = ("judge_invalid",)


def parse_tolerated(texts: Iterable[str]) -> dict[str, float]:
    """``kind=number`` arguments laid over :data:`TOLERATED`.

    >>> parse_tolerated(["oom=2"])["oom"]
    2.0

    Raises:
        StudyError: an unknown kind, or a number that is negative, not finite, or not a rate.
    """
    limits = dict(TOLERATED)
    for text in texts:
        kind, number = split_limit(text, TOLERATED)
        try:
            limit = float(number)
        except ValueError:
            limit = float("nan")
        if not 0 <= limit < float("inf") or (kind in RATES and limit > 1):
            raise StudyError(
                f"--tolerated {text}: {number!r} is not acceptable",
                "Give a rate from 0 to 1." if kind in RATES else "Give a number of at least 0.",
            )
        limits[kind] = limit
    return limits


def guard(
    collected: Collected,
    recommended: str | Path,
    confirmation: Confirmation,
    tolerated: Mapping[str, float] = TOLERATED,
) -> dict[str, Any]:
    """Check the runs of M3, whose challengers were trained with the files beside ``recommended``.

    Regimes have files of their own in the folder beside it.

    Returns:
        The record of the checks, all passed.

    Raises:
        StudyError: a check failed; all failures are named.
        ConfigError: the overlay cannot be read.
    """
    totals, rates = incident_totals(collected), invalid_rates(collected)
    limits = dict(tolerated)
    limits["judge_invalid"] = max(limits["judge_invalid"], 2 * invalid_when_chosen(recommended))
    failures = unfinished(collected) + beyond(totals, rates, limits)
    checked = []
    for arm, regime in confirmation.challengers.items():
        path = regime_path(recommended, regime)
        record, problems = _checked(collected, confirmation, arm, path, rates)
        checked.append({"regime": regime, "arm": arm} | record)
        failures += problems
    if failures:
        raise StudyError(
            "; ".join(failures),
            "See the report of M3 and docs/how-to/stability.md; fix the cause, or choose again "
            "with `refblend study recommend`.",
        )
    return {
        "runs": len(collected.runs),
        "incidents": totals,
        "judge_invalid_rate": max(rates.values(), default=0.0),
        "tolerated": limits | {"judge_invalid": round(limits["judge_invalid"], 6)},
        "measure": confirmation.endpoint,
        "challengers": checked,
    }


def _checked(
    collected: Collected,
    confirmation: Confirmation,
    arm: str,
    recommended: Path,
    rates: Mapping[str, float],
) -> tuple[dict[str, Any], list[str]]:
    """What the runs of a challenger say of the file that its regime recommends; what fails."""
    baseline, trained = confirmation.experiment.baseline_of(arm), set(collected.runs.arm)
    blends, scored = read_enable(recommended), read_enable(challenger_path(recommended))
    difference, problem = compare(collected, confirmation, arm)
    failures = [f"no run of the arm {each}" for each in (baseline, arm) if each not in trained]
    if scored and not any(run.startswith(f"{arm} ") for run in rates):
        failures.append(f"no run of {arm} has a judge's score although its configuration blends")
    if difference is None:
        return {}, [*failures, problem]
    record = {
        "against": baseline,
        "recommended": {"blends": blends, "sha256": sha256_file(recommended)},
        "difference": {name: round(value, 6) for name, value in asdict(difference).items()},
    }
    return record, [*failures, problem] if problem and blends else failures


def beyond(
    totals: Mapping[str, int], rates: Mapping[str, float], limits: Mapping[str, float]
) -> list[str]:
    """Incidents over all runs, and shares of invalid scores of a run, beyond their limits."""
    return [
        f"{totals[kind]} {kind} incidents (tolerated: {limit:g})"
        for kind, limit in limits.items()
        if kind not in RATES and totals[kind] > limit
    ] + [
        f"{rate:.1%} of the judge's scores of {run} are invalid "
        f"(tolerated: {limits['judge_invalid']:.1%})"
        for run, rate in rates.items()
        if rate > limits["judge_invalid"]
    ]


def invalid_rates(collected: Collected) -> dict[str, float]:
    """Share of invalid judge scores of every run with a judge, including failed runs."""
    return {
        f"{arm} seed {seed}": rate
        for (arm, seed), part in collected.metrics.groupby(["arm", "seed"], sort=False)
        if np.isfinite(rate := invalid_rate(part))
    }


def compare(
    collected: Collected, confirmation: Confirmation, arm: str
) -> tuple[Interval | None, str]:
    """Challenger − baseline, seed by seed (:func:`guarded_interval`), and what speaks against the
    challenger: a whole interval below 0, or runs to compare are missing."""
    baseline = confirmation.experiment.baseline_of(arm)
    values = run_measures(collected)
    measure = confirmation.endpoint
    if not (values.measure == measure).any():
        return None, f"no run has the endpoint {measure}"
    table = wide(values, measure, [baseline, arm])
    runs = collected.runs  # an arm may have more seeds than the other
    lacking = [
        f"{name} seed {seed}"
        for name in table.columns
        for seed in sorted(runs.seed[runs.arm == name])
        if seed not in table.index or pd.isna(table.loc[seed, name])
    ]
    differences = (table[arm] - table[baseline]).dropna()
    if lacking or len(differences) < 2:
        without = f"; without {measure}: {', '.join(lacking)}" if lacking else ""
        return None, f"{len(differences)} seeds to compare {arm} with {baseline}{without}"
    problems = collected.metrics.loc[collected.metrics.metric == "test/problems", "value"]
    smallest = 1 / problems.min() if measure.startswith("test_") and len(problems) else 0.0
    found = guarded_interval(differences, smallest)
    text = (
        f"{arm} is below {baseline}: {measure} {found.estimate:+.4f} "
        f"[{found.low:+.4f}, {found.high:+.4f}] (n = {found.n})"
    )
    return found, text if found.high < 0 else ""


def guarded_interval(differences: pd.Series, smallest: float) -> Interval:
    """Student's 95 % interval of paired differences with a spread of at least one test problem.

    Accuracies on N problems differ in steps of 1/N. Two seeds with the same small difference have
    a spread of 0, which would make a single problem look certain; so the standard deviation is
    taken as at least ``smallest`` = 1/N.
    """
    interval = student_interval(differences)
    spread = float(differences.std(ddof=1))
    if spread >= smallest or interval.n < 2:
        return interval
    half = float(stats.t.ppf(0.975, interval.n - 1)) * smallest / math.sqrt(interval.n)
    return Interval(
        interval.estimate, interval.estimate - half, interval.estimate + half, interval.n
    )
