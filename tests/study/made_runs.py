"""A grid without a study."""

import pandas as pd


def grid_of(*runs: tuple[str, int]) -> pd.DataFrame:
    """A grid of these (arm, seed), all of experiment M1 and without overrides."""
    rows = [{"experiment": "M1", "arm": a, "seed": str(s), "overrides": "{}"} for a, s in runs]
    return pd.DataFrame(rows, dtype=str)
