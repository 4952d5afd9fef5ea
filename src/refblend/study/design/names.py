"""Names of scales, milestones and reports; importing them costs nothing."""

from typing import Literal, get_args

Scale = Literal["smoke", "cpu", "smollm", "gpu"]
SCALES: tuple[str, ...] = get_args(Scale)
Reported = Literal["m1", "m2", "m3", "r"]
MILESTONES: tuple[str, ...] = get_args(Reported)
SERIES = "series"
"""Experiments whose runs are still being made, block by block: declared, in no report yet."""
Milestone = Literal[Reported, "series"]
ReportName = Literal["scoring", "m1", "m2", "m3", "r"]
REPORTS: tuple[str, ...] = get_args(ReportName)
"""In the order in which they are made."""
READS: dict[str, tuple[str, ...]] = dict.fromkeys(REPORTS, ()) | {
    "m2": ("scoring",),
    "m3": ("m1", "m2", "scoring"),
}
"""Every report, and those whose published results it reads."""
