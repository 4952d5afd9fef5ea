"""The archive of a scale: every number of every run, kept with the results.

Runs are large and stay where they were made; these files are a few MB and are committed. All
tables, figures and reports can be made from them, without training anything:

- ``runs.csv``: one row per run, as :mod:`refblend.study.runs.collect` describes it.
- ``runs.parquet``: one row per (arm, seed, step) and one column per metric; null where a step has
  no such metric.
- ``responses.parquet``: one row per recorded response, without its text.
- ``quality/``: what the embedded models were measured to be, and when and where.
"""

import os
from contextlib import suppress
from pathlib import Path

import pandas as pd

from refblend.data.schema import PARQUET_ERRORS
from refblend.documents import shorten
from refblend.errors import StudyError
from refblend.files import atomic_path, copy_file
from refblend.study.design.grid import unique_runs
from refblend.study.runs.collect import Collected, as_collected, numbers_hash

RUNS, METRICS, RESPONSES, QUALITY = "runs.csv", "runs.parquet", "responses.parquet", "quality"
STEP = ["arm", "seed", "step"]


def write_archive(collected: Collected, out: Path) -> bool:
    """Write the three files of all runs of a scale, unless those there differ in times only.

    Returns:
        Whether they were written.
    """
    with suppress(StudyError):
        if numbers_hash(_in_order(read_archive(out))) == numbers_hash(_in_order(collected)):
            for name in (RUNS, METRICS, RESPONSES):
                os.utime(out / name)  # the workflow's outputs are up to date
            return False
    wide = collected.metrics.pivot(index=STEP, columns="metric", values="value").reset_index()
    frames = {METRICS: wide, RESPONSES: collected.responses}
    with atomic_path(out / RUNS) as temporary:
        collected.runs.to_csv(temporary, index=False)
    for name, frame in frames.items():
        with atomic_path(out / name) as temporary:
            frame.to_parquet(temporary, index=False, compression="zstd")
    return True


def _in_order(collected: Collected) -> Collected:
    """The frames in an order that does not depend on the grid's."""

    def ordered(frame: pd.DataFrame, *by: str) -> pd.DataFrame:
        return frame.sort_values(["arm", "seed", *by], kind="stable", ignore_index=True)

    metrics = ordered(collected.metrics, "step", "metric")
    return Collected(ordered(collected.runs), metrics, ordered(collected.responses))


def read_archive(folder: Path) -> Collected:
    """The frames of all runs of a scale.

    Raises:
        StudyError: a file is missing or unreadable.
    """
    try:
        wide = pd.read_parquet(folder / METRICS)
        wide = wide[[*STEP, *sorted(wide.columns.difference(STEP))]]
        long = wide.melt(id_vars=STEP, var_name="metric", value_name="value").dropna(subset="value")
        return as_collected(folder / RUNS, long, pd.read_parquet(folder / RESPONSES))
    except (OSError, KeyError, TypeError, *PARQUET_ERRORS) as error:
        raise StudyError(
            f"{folder}: the archive of runs cannot be read ({shorten(str(error), 300)})",
            f"Rebuild it with `snakemake --config scale={folder.name}`.",
        ) from None


def of_grid(archive: Collected, grid: pd.DataFrame) -> Collected:
    """What :func:`refblend.study.runs.collect.collect` gives for a grid, from the archive.

    Raises:
        StudyError: the archive lacks a run of the grid.
    """
    wanted = unique_runs(grid)[["arm", "seed"]].astype({"seed": "int64"}).reset_index(drop=True)
    runs = wanted.merge(archive.runs, on=["arm", "seed"], how="left", validate="1:1")
    absent = runs[runs.status.isna()]
    if len(absent):
        first = absent.iloc[0]
        raise StudyError(
            f"the archive has no run of arm {first.arm}, seed {first.seed}, and lacks "
            f"{len(absent)} in all",
            "Rebuild it with `refblend study archive`.",
        )
    place = wanted.assign(place=range(len(wanted)))

    def part(frame: pd.DataFrame, by: list[str]) -> pd.DataFrame:
        chosen = frame.merge(place, on=["arm", "seed"])
        return chosen.sort_values(["place", *by], kind="stable", ignore_index=True)[frame.columns]

    return Collected(
        runs.astype(archive.runs.dtypes),
        part(archive.metrics, ["step"]),  # by metric, too: a stable sort of columns in order
        part(archive.responses, []),
    )


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
