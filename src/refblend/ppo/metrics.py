"""Metrics of a batch: explained variance, correlation, and the quality of a judge's scores.

An undefined metric (a single class, no spread, nothing finite) is None, never NaN: a None is left
out of the records, a NaN would look like a failure.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from refblend.ppo.masking import masked_mean

Numbers = Sequence[float] | npt.NDArray[np.float64] | Tensor


def _array(values: Numbers) -> npt.NDArray[np.float64]:
    if isinstance(values, Tensor):
        values = values.detach().double().cpu().numpy()
    return np.asarray(values, dtype=np.float64).reshape(-1)


def _finite_pairs(
    first: Numbers, second: Numbers
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Both as arrays, without pairs in which either value is NaN or infinite."""
    x, y = _array(first), _array(second)
    if x.shape != y.shape:
        raise ValueError(f"{x.size} and {y.size} values cannot be paired")
    keep = np.isfinite(x) & np.isfinite(y)
    return x[keep], y[keep]


@torch.no_grad()
def explained_variance(values: Tensor, returns: Tensor, response_mask: Tensor) -> float | None:
    """1 − Var(R − V)/Var(R) over the response tokens (``critic/vf_explained_var``).

    1: perfect; 0: as good as the mean; negative: worse. None if the returns do not vary.
    """

    def variance(x: Tensor) -> float:
        x = x.double()
        mean = masked_mean(x, response_mask)
        return float(masked_mean((x - mean).square(), response_mask))

    total = variance(returns)
    if not total > 0:
        return None
    result = 1.0 - variance(returns.double() - values.double()) / total
    return result if math.isfinite(result) else None


def correlation(first: Numbers, second: Numbers) -> float | None:
    """Pearson's r of two lists of equal length; None if either does not vary.

    With rewards and response lengths it is ``actor/ref_quality/reward_length_corr``.
    """
    x, y = _finite_pairs(first, second)
    if x.size < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return None
    # scaled by the largest value first, so that squares neither overflow nor vanish
    x, y = ((a - a.mean()) / np.abs(a - a.mean()).max() for a in (x, y))
    r = float((x * y).sum() / math.sqrt(float((x * x).sum()) * float((y * y).sum())))
    return min(max(r, -1.0), 1.0)


def roc_auc(scores: Numbers, labels: Numbers) -> float | None:
    """P(score of a right answer > score of a wrong one) + ½·P(equal), by ranks.

    In [0, 1], 0.5 is chance; None if only one class is present. Labels of at least 0.5 count as
    right; pairs with a NaN are left out.
    """
    x, y = _finite_pairs(scores, labels)
    right = y >= 0.5
    positives, negatives = int(right.sum()), int((~right).sum())
    if positives == 0 or negatives == 0:
        return None
    rank_sum = float(pd.Series(x).rank()[right].sum())
    return (rank_sum - positives * (positives + 1) / 2.0) / (positives * negatives)


def grouped_auc(
    scores: npt.NDArray[np.float64], labels: npt.NDArray[np.float64], groups: npt.NDArray[Any]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """:func:`roc_auc` within each group that has right and wrong answers, and its number of pairs.

    Weighted by these pairs, the mean is the AUC over all pairs of one group: what a policy that is
    trained on groups sees of a judge. All three are (n,), the results one value for each group.
    """
    found = []
    codes = np.unique(groups, return_inverse=True)[1]
    rows = np.split(np.argsort(codes, kind="stable"), np.cumsum(np.bincount(codes))[:-1])
    for own in rows:
        auc, right = roc_auc(scores[own], labels[own]), int((labels[own] >= 0.5).sum())
        if auc is not None:
            found.append((auc, right * (len(own) - right)))
    return np.array([auc for auc, _ in found]), np.array([float(count) for _, count in found])


def expected_calibration_error(scores: Numbers, labels: Numbers, bins: int = 10) -> float | None:
    """ECE: Σ_bins share of the samples × |mean score − share of right answers|.

    Bins of equal width over [0, 1]; a score on an edge belongs to the bin above, 1 to the last,
    and scores outside to the nearest bin. Labels as in :func:`roc_auc`. None without samples.
    """
    if bins < 1:
        raise ValueError(f"bins={bins} must be at least 1")
    x, y = _finite_pairs(scores, labels)
    if x.size == 0:
        return None
    right = (y >= 0.5).astype(np.float64)
    places = np.clip(np.floor(x * bins), 0, bins - 1).astype(np.int64)
    gaps = np.bincount(places, weights=x - right, minlength=bins)
    return float(np.abs(gaps).sum() / x.size)
