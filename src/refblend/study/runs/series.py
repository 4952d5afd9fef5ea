"""One metric of all runs, step by step."""

import pandas as pd


def series(metrics: pd.DataFrame, *names: str) -> pd.DataFrame:
    """Rows of that one of ``names`` which most runs have (the first of equals), sorted.

    One name for all runs: arms without a judge may lack a metric, and two almost identical metrics
    must not be mixed in one figure.
    """
    parts = [metrics[metrics.metric == name] for name in names]
    best = max(parts, key=lambda part: part[["arm", "seed"]].drop_duplicates().shape[0])
    return best.sort_values(["arm", "seed", "step"], ignore_index=True)
