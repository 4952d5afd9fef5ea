"""How far the chosen configuration can be told from the baseline, on the seeds that chose it."""

from dataclasses import dataclass

import pandas as pd

from refblend.seeding import derive_generator
from refblend.study.stats.statistics import (
    Interval,
    bootstrap_interval,
    paired_values,
    student_interval,
)

EXACT = 1e-12
"""Numbers closer than this are equal."""


@dataclass(frozen=True)
class Evidence:
    """The choice against the baseline."""

    text: str
    """One sentence."""
    level: str
    """``clear``, ``weak``, ``none`` or ``baseline``; see :func:`evidence_level`."""


def weigh(values: pd.DataFrame, arm: str, baseline: str, candidates: int) -> Evidence:
    """The choice among so many candidates against the baseline: one row per seed, a column per arm.

    The choice is the baseline itself where no blend is ahead of it.
    """
    if arm == baseline:
        return Evidence(
            f"No blend of {candidates} is ahead of {baseline} by more than one standard error "
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
