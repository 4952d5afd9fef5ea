"""The verdicts on M2's declared contrasts, which its first page leads with."""

import pandas as pd

from refblend.study.report.m2.study import REPORT, M2Study
from refblend.study.report.verdicts import verdicts


@REPORT.table("verdicts")
def all_verdicts(study: M2Study) -> pd.DataFrame:
    """One row per declared contrast, as in ``results/<scale>/verdicts.csv``."""
    learning = {name: study.experiments[name] for name in study.learning}
    return verdicts(study.values, learning, study.scale)
