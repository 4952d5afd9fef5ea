"""The best arm on a metric, and what is known against the others.

Runs come as a frame with one row per seed and one column per arm (NaN: the run is missing), because
arms share seeds, data order and initial weights and are compared seed by seed.
"""

import math
from typing import Any

import numpy as np
import pandas as pd

from refblend.study.stats.statistics import CONFIDENCE, complete_seeds, student_interval

ROUNDING = 1e-9
"""Interval widths up to this are rounding of equal differences."""


def best_configuration(
    values: pd.DataFrame,
    rng: np.random.Generator,
    higher_is_better: bool = True,
    resamples: int = 5000,
) -> dict[str, Any] | None:
    """The arm with the best mean, as a row; None where there is no seed that all arms have.

    ``n`` seeds that all ``arms`` with any run have are used, for the best one's ``mean`` with its
    interval as for everything else. ``share_best`` is the share of resamples in which it is the
    best, NaN for fewer than two seeds; ``tied`` are others with the same mean.

    The first of equal arms wins. The mean of the best of several arms is biased upwards by the
    selection, so confirm it on fresh seeds. Another arm is distinguishable if 0 lies outside
    Student's interval of the paired difference, adjusted for all k(k − 1)/2 pairs because the best
    is chosen by looking at the data.
    """
    data, without = complete_seeds(values)
    n = len(data)
    if n == 0:
        return None
    table = data.to_numpy(dtype=np.float64)
    sign = 1.0 if higher_is_better else -1.0
    best = int(np.argmax(sign * table.mean(axis=0)))
    gaps = table[:, [best]] - table
    replicates = gaps[rng.integers(n, size=(resamples, n))].mean(axis=1)  # a seed with all arms
    share = float((np.argmin(sign * replicates, axis=-1) == best).mean()) if n > 1 else np.nan
    each = 1 - (1 - CONFIDENCE) / max(1, math.comb(len(data.columns), 2))
    others = [i for i in range(len(data.columns)) if i != best]
    alike = []
    for i in others:
        wide = student_interval(gaps[:, i], each)  # NaN for one seed, which shows no difference
        if not ((wide.low > 0 or wide.high < 0) and wide.high - wide.low > ROUNDING):
            alike.append(str(data.columns[i]))
    arm = str(data.columns[best])
    mean = student_interval(data[arm])
    return {
        "best": arm,
        "n": n,
        "arms": len(data.columns),
        "mean": mean.estimate,
        "low": mean.low,
        "high": mean.high,
        "share_best": share,
        "tied": int((gaps[:, others].mean(axis=0) == 0).sum()),
        "n_not_distinguishable": len(alike),
        "not_distinguishable_from": ", ".join(alike),
        "without_values": ", ".join(map(str, without)),
    }
