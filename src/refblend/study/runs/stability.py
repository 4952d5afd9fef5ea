"""How steadily every run trained: spikes, entropy, lengths, falls of the validation accuracy."""

import numpy as np
import pandas as pd

from refblend.study.runs.series import series
from refblend.study.runs.validation import start_and_end
from refblend.study.stats.statistics import count_spikes, entropy_collapse

LOSS = ("actor/pg_loss", "actor/loss")
"""Policy loss; the first that a run has."""

STABILITY = {
    "arm": "str",
    "seed": "int64",
    "loss_spikes": "int64",
    "grad_spikes": "int64",
    "grad_norm_max": "float64",
    "entropy_start": "float64",
    "entropy_end": "float64",
    "entropy_collapse": "Int64",
    "length_start": "float64",
    "length_end": "float64",
    "val_drawdown": "float64",
}
"""Columns of :func:`stability` and their types."""


def stability(metrics: pd.DataFrame) -> pd.DataFrame:
    """Stability of every run.

    Returns:
        Columns arm, seed, loss_spikes and grad_spikes (steps outside median ± 5·1.4826·MAD),
        grad_norm_max, entropy_start, entropy_end, entropy_collapse (the step at which it has
        collapsed; missing if it never does), length_start, length_end, val_drawdown.
    """
    drawdown = start_and_end(metrics)
    drawdown = drawdown[drawdown.measure == "acc"].set_index(["arm", "seed"])["drawdown"]
    rows = []
    for (arm, seed), part in metrics.groupby(["arm", "seed"]):
        loss = series(part, *LOSS)["value"]
        norm = series(part, "actor/grad_norm")["value"]
        entropies = series(part, "actor/ref_quality/avg_entropy", "actor/entropy")
        entropy, collapsed = entropies["value"], entropy_collapse(entropies["value"])
        length = series(part, "response_length/mean")["value"]
        rows.append(
            {
                "arm": arm,
                "seed": seed,
                "loss_spikes": count_spikes(loss),
                "grad_spikes": count_spikes(norm),
                "grad_norm_max": norm.max(),
                "entropy_start": entropy.iloc[0] if len(entropy) else np.nan,
                "entropy_end": entropy.iloc[-1] if len(entropy) else np.nan,
                "entropy_collapse": pd.NA if collapsed is None else entropies["step"][collapsed],
                "length_start": length.iloc[0] if len(length) else np.nan,
                "length_end": length.iloc[-1] if len(length) else np.nan,
                "val_drawdown": drawdown.get((arm, seed), np.nan),
            }
        )
    frame = pd.DataFrame(rows, columns=list(STABILITY))
    return frame.astype(STABILITY)
