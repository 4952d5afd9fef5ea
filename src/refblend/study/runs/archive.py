"""The archive of a scale: every number of every run, kept with the results.

Runs are large and stay where they were made; these files are a few MB and are committed. All
tables, figures and reports can be made from them, without training anything: the files of
:func:`refblend.study.runs.collect.write_collected`, and ``quality/``, what the embedded models were
measured to be, and when and where.
"""

import os
from contextlib import suppress
from pathlib import Path

import pandas as pd

from refblend.errors import StudyError
from refblend.files import copy_file
from refblend.study.design.names import COLLECTED
from refblend.study.runs.collect import RUN, STEP, Collected, read_collected, write_collected
from refblend.trainer.tracking import TIMING_PREFIXES

QUALITY = "quality"
OF_THE_MACHINE = [
    "wall_time_s", "energy_kwh", "kg_co2e", "resumed", "commit", "dirty", "hardware", "models",
]  # fmt: skip
"""Columns of ``runs`` that differ between two equal studies."""


def write_archive(collected: Collected, out: Path) -> bool:
    """Write the numbers of all runs of a scale, unless those there differ in times only.

    Returns:
        Whether they were written.
    """
    with suppress(StudyError):
        frames = zip(_numbers(read_collected(out)), _numbers(collected), strict=True)
        if all(archived.equals(new) for archived, new in frames):
            for name in COLLECTED:
                os.utime(out / name)  # the workflow's outputs are up to date
            return False
    write_collected(collected, out)
    return True


def _numbers(collected: Collected) -> list[pd.DataFrame]:
    """What two equal studies agree in, in an order that does not depend on the grid's."""
    metrics = collected.metrics[~collected.metrics.metric.str.startswith(TIMING_PREFIXES)]
    frames = (collected.runs.drop(columns=OF_THE_MACHINE), RUN), (metrics, [*STEP, "metric"])
    return [
        frame.sort_values(by, kind="stable", ignore_index=True)
        for frame, by in (*frames, (collected.responses, RUN))
    ]


def has_quality(models: Path, out: Path) -> bool:
    """Whether a scale's archive has the measurements of its embedded models."""
    measured = {file.name: file.read_bytes() for file in (models / QUALITY).glob("*.json")}
    archived = {file.name: file.read_bytes() for file in (out / QUALITY).glob("*.json")}
    return measured.items() <= archived.items()


def copy_quality(models: Path, circumstances: Path, out: Path) -> None:
    """Copy measurements of a scale's embedded models, and when and where they were made, to its
    archive; there are none where the models are not ours."""
    for source, place in ((models / QUALITY, QUALITY), (circumstances, f"{QUALITY}/circumstances")):
        for file in sorted(source.glob("*.json")):
            copy_file(file, out / place / file.name)
