"""All tables of milestone M2 by name."""

import pandas as pd

from refblend.study.m2_study import LEARNING, M2Study, read_m2_study
from refblend.study.m2_summary import experiment_summary

__all__ = ["M2Study", "m2_tables", "read_m2_study"]


def m2_tables(study: M2Study) -> dict[str, pd.DataFrame]:
    """All tables by the names of :data:`refblend.study.layout.M2_TABLES`."""
    return {f"summary_{name}": experiment_summary(study, name) for name in LEARNING}
