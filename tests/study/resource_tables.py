"""Tables of measured runs, as a report writes them: ``resources.csv``."""

from typing import Any

import pandas as pd


def resource_row(arm: str, seed: int, **changed: Any) -> dict[str, Any]:
    """A run that took 100 s and 1 Wh."""
    row = {
        "arm": arm,
        "seed": str(seed),
        "status": "finished",
        "wall_time_s": 100.0,
        "energy_kwh": 0.001,
        "kg_co2e": 0.0004,
        "resumed": 0,
        "peak_memory_gb": 3.0,
    }
    return row | changed


def resource_table(*rows: dict[str, Any]) -> pd.DataFrame:
    return pd.DataFrame(rows)
