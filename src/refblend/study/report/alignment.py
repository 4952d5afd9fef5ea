"""Does alignment early in training order how training ends? The table and figure of a report."""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from refblend.seeding import derive_generator
from refblend.study.design.arms import Arm
from refblend.study.report import style as plot
from refblend.study.report.study import Study
from refblend.study.runs.collect import RUN
from refblend.study.stats.statistics import rank_correlation

OUTCOME = "test_sampled"
LEAST_ARMS = 5
"""Arms that a rank correlation needs."""
RESAMPLES = 1000
REGIMES = {"exact": plot.PALETTE[0], "noisy": plot.PALETTE[1], "sparse": plot.PALETTE[2]}


def regime(arm: Arm) -> str:
    """``exact``, ``noisy`` or ``sparse``: what the rule reward of an arm is like."""
    verifier = arm.config.reward.verifier
    if verifier.flip_rate > 0:
        return "noisy"
    return "sparse" if verifier.checked_share < 1 else "exact"


def alignment_by_arm(study: Study) -> pd.DataFrame:
    """Arms with the mean alignment of their first recorded step and the mean sampled test accuracy.

    Arms with another number of steps than most are left out. Columns: arm, regime, runs, alignment,
    ``test_sampled``; sorted by alignment.
    """
    table = (
        _pairs(study)
        .groupby(["arm", "regime"], as_index=False)
        .agg(runs=("seed", "size"), alignment=("alignment", "mean"), test_sampled=(OUTCOME, "mean"))
    )
    return table.sort_values("alignment", ignore_index=True)


def rank_correlations(study: Study) -> pd.DataFrame:
    """Spearman's correlation over all arms and over those of each regime.

    Columns: regime (``all`` too), arms, rho, low, high: 95 % from a bootstrap over seeds.
    """
    values, rows = _pairs(study), []
    for name in ("all", *REGIMES):
        part = values if name == "all" else values[values.regime == name]
        if part.arm.nunique() < LEAST_ARMS:
            continue
        wide = part.pivot(index="seed", columns="arm", values=["alignment", OUTCOME])
        both = np.array([wide["alignment"], wide[OUTCOME]])
        drawn = derive_generator("alignment", name).multinomial(
            len(wide), np.full(len(wide), 1 / len(wide)), size=RESAMPLES
        )
        resampled = np.array([_rho(both, counts) for counts in drawn])
        resampled = resampled[np.isfinite(resampled)]
        rho = _rho(both, np.ones(len(wide), dtype=int))
        if not np.isfinite(rho) or not len(resampled):  # all arms are equal
            continue
        low, high = np.quantile(resampled, [0.025, 0.975])
        rows.append((name, part.arm.nunique(), rho, low, high))
    return pd.DataFrame(rows, columns=["regime", "arms", "rho", "low", "high"])


def _pairs(study: Study) -> pd.DataFrame:
    """Runs with both numbers: arm, seed, alignment, ``test_sampled``, regime of the arm."""
    pairs = study.values[[*RUN, "alignment", OUTCOME]].dropna()
    pairs = pairs.assign(regime=[regime(study.resolved[arm]) for arm in pairs.arm])
    steps = {arm: study.resolved[arm].config.trainer.total_training_steps for arm in pairs.arm}
    counts = pairs.arm.map(steps)
    return pairs[counts == counts.mode().iloc[0]] if len(pairs) else pairs


def _rho(values: NDArray[np.float64], counts: NDArray[np.int64]) -> float:
    """Spearman's correlation of the arms' means of two measures, (2, seeds, arms).

    Seeds are weighted by how often they were drawn. NaN where there is no order.
    """
    known = np.isfinite(values) * counts[:, None]
    with np.errstate(invalid="ignore"):
        means = (np.nan_to_num(values) * known).sum(axis=1) / known.sum(axis=1)
    return rank_correlation(*means[:, np.isfinite(means).all(axis=0)])


def alignment(study: Study, tables: dict[str, pd.DataFrame]) -> plot.Drawn:
    """Every arm: alignment at the first recorded step and sampled test accuracy at the end."""
    figure, (axis,) = plot.panels(1, 1, figsize=(1.4 * plot.COLUMN, plot.COLUMN))
    for name, part in tables["alignment"].groupby("regime"):
        axis.plot(part.alignment, part[OUTCOME], "o", markersize=4, color=REGIMES[name], label=name)
    axis.set(xlabel="alignment at the first recorded step", ylabel="sampled test accuracy")
    plot.one_legend(figure, [axis])
    rows = tables["alignment_rank"].itertuples()
    ranks = "; ".join(f"{r.regime} {r.rho:.2f} [{r.low:.2f}, {r.high:.2f}]" for r in rows)
    return figure, (
        "Alignment of an arm's advantages with the truth, early in training, against its sampled "
        f"test accuracy. Dots: means over seeds. Spearman's correlation over arms: {ranks}."
    )
