"""R's report is M1's on another experiment: some arms against a baseline, seed by seed."""

from dataclasses import replace

from refblend.study.report.m1 import figures, text  # noqa: F401 - they register
from refblend.study.report.m1.study import REPORT as ARMS_AGAINST_BASELINE

REPORT = replace(ARMS_AGAINST_BASELINE, name="r", title="R real model")
