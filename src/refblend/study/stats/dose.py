"""Dose-response over all arms of an experiment: the slope on the realised dose, and lack of fit.

The dose of an arm is the mean weight over its runs. Runs of one seed share their data, so both
models have an effect of each seed. With y the outcome, least squares fits

* the line: y = seed + β·dose of the arm,
* the arms: y = seed + an effect of each arm, which the line is a special case of.

The slope is β with Student's interval. Lack of fit is the F test of the arms against the line
(Draper and Smith, Applied Regression Analysis, section 2.1): small p says that arms of equal dose
differ, or that the response bends.
"""

import math

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from refblend.study.stats.statistics import CONFIDENCE


def dose_response(runs: pd.DataFrame) -> dict[str, float]:
    """Fit both models to runs: columns ``arm``, ``seed``, ``dose`` and ``outcome``.

    Rows without a dose or an outcome are left out. Arms need not have the same seeds. ``slope`` is
    the change of the outcome per unit of dose, ``lack_of_fit`` F. What cannot be computed
    is NaN: everything if all doses are equal, bounds and p values without degrees of freedom.
    """
    runs = runs.dropna(subset=["dose", "outcome"])
    names = ("low", "high", "slope", "runs", "p_slope", "lack_of_fit", "p_lack_of_fit")
    row = dict.fromkeys(names, math.nan) | {"runs": len(runs), "arms": runs.arm.nunique()}
    doses = runs.groupby("arm").dose.transform("mean").to_numpy(np.float64)
    if len(runs) == 0 or np.ptp(doses) == 0:
        return row
    y = runs.outcome.to_numpy(np.float64)
    seeds = pd.get_dummies(runs.seed).to_numpy(np.float64)
    arms = pd.get_dummies(runs.arm).to_numpy(np.float64)
    line, line_error, line_freedom = _fit(np.column_stack([doses, seeds]), y)
    _, error, freedom = _fit(np.column_stack([arms, seeds]), y)
    _, within, _ = _fit(seeds, doses)
    if within <= 1e-12 * float(doses @ doses):  # the seeds explain every dose
        return row
    row["slope"] = slope = float(line[0])
    if line_freedom and line_error:
        spread = math.sqrt(line_error / line_freedom / within)
        half = float(stats.t.ppf((1 + CONFIDENCE) / 2, line_freedom)) * spread
        row |= {"low": slope - half, "high": slope + half}
        row["p_slope"] = float(2 * stats.t.sf(abs(slope / spread), line_freedom))
    further = line_freedom - freedom
    if freedom and further and error:
        row["lack_of_fit"] = ratio = (line_error - error) / further / (error / freedom)
        row["p_lack_of_fit"] = float(stats.f.sf(ratio, further, freedom))
    return row


def _fit(
    design: NDArray[np.float64], y: NDArray[np.float64]
) -> tuple[NDArray[np.float64], float, int]:
    """Coefficients, sum of squared residuals, and the degrees of freedom left."""
    found, _, rank, _ = np.linalg.lstsq(design, y, rcond=None)
    rest = y - design @ found
    return np.asarray(found, np.float64), float(rest @ rest), len(y) - int(rank)
