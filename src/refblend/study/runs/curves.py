"""Metrics over training steps."""

import re
from collections.abc import Sequence

import pandas as pd

from refblend.study.runs.collect import RUN
from refblend.study.stats.statistics import count_spikes, has_collapsed
from refblend.trainer.guards import SANITY_SOURCE

LOSS = ("actor/pg_loss", "actor/loss")
"""Policy loss; the first that a run has."""
ENTROPY = ("actor/ref_quality/avg_entropy", "actor/entropy")
"""Entropy of the actor; the first that a run has."""
GRADIENT, LENGTH = "actor/grad_norm", "response_length/mean"
_ACCURACY = re.compile(rf"val-core/(?!{SANITY_SOURCE}/).+/acc/mean@1")


def series(metrics: pd.DataFrame, *names: str) -> pd.DataFrame:
    """Rows of whichever of ``names`` most runs recorded (the first of equals), sorted.

    One name for all runs: arms without a judge may lack a metric, and two almost identical metrics
    must not be mixed in one figure.
    """
    parts = [metrics[metrics.metric == name] for name in names]
    best = max(parts, key=lambda part: part[RUN].drop_duplicates().shape[0])
    return best.sort_values([*RUN, "step"], ignore_index=True)


def accuracy_by_step(metrics: pd.DataFrame) -> pd.DataFrame:
    """Greedy validation accuracy: arm, seed, step and value, the mean over data sources.

    The sanity set does not count.
    """
    names = [name for name in metrics.metric.unique() if _ACCURACY.fullmatch(name)]
    part = metrics[metrics.metric.isin(names)]
    return part.groupby([*RUN, "step"], as_index=False)["value"].mean()


def course(run: pd.DataFrame, names: Sequence[str]) -> pd.Series:
    """The first of ``names`` that a run recorded, from its first value on; empty without any.

    ``run`` has a column for each metric and a row for each step; NaN where it was not finite.
    """
    for name in names:
        if (first := run[name].first_valid_index()) is not None:
            return run.loc[first:, name]
    return pd.Series(dtype=float)


def stability(metrics: pd.DataFrame) -> pd.DataFrame:
    """Every run's measures of stability, as columns; the index is (arm, seed).

    Spikes are steps outside median ± 5·1.4826·MAD; ``entropy_collapse`` is 0 or 1.
    """
    trained, names = metrics[metrics.step > 0], [*LOSS, *ENTROPY, GRADIENT, LENGTH]
    steps = pd.MultiIndex.from_frame(trained[[*RUN, "step"]].drop_duplicates())
    table = trained[trained.metric.isin(names)].pivot(
        index=[*RUN, "step"], columns="metric", values="value"
    )
    rows = []
    for (arm, seed), run in table.reindex(index=steps, columns=names).groupby(level=RUN):
        of_run = run.droplevel(RUN).sort_index()
        loss, entropy, norm, length = (
            course(of_run, names) for names in (LOSS, ENTROPY, [GRADIENT], [LENGTH])
        )
        known, lengths = entropy.dropna(), length.dropna()
        row = {"arm": arm, "seed": seed}
        row |= {"loss_spikes": count_spikes(loss), "grad_spikes": count_spikes(norm)}
        if len(known):
            row |= {"entropy_start": known.iloc[0], "entropy_end": known.iloc[-1]}
            row["entropy_collapse"] = float(has_collapsed(entropy))
        if len(lengths):
            row["length_end"] = lengths.iloc[-1]
        rows.append(row)
    columns = [*RUN, "loss_spikes", "grad_spikes", "entropy_start", "entropy_end"]
    columns += ["entropy_collapse", "length_end"]
    return pd.DataFrame(rows, columns=columns).set_index(RUN)
