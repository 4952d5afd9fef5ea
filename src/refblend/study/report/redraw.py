"""Every report of a scale from its archive: in a fresh clone, without training anything."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from refblend.study.design.grid import read_grid, select
from refblend.study.report.engine import write_everything
from refblend.study.report.publish import publish
from refblend.study.report.registry import Inputs, load_report, milestone_experiments
from refblend.study.report.verdicts import write_verdicts
from refblend.study.runs.archive import QUALITY, of_grid, read_archive
from refblend.study.runs.collect import write_collected

ORDER = ("scoring", "m1", "m2", "m3", "r")
"""Each may read the reports before it; a scale need not have all."""


def redraw_reports(
    scale: str, results: Path, params: Path, out: Path | None = None
) -> Iterator[Path]:
    """Write tables, figures and text of all reports.

    Args:
        scale: whose archive it is.
        results: of the scale, with ``grid.tsv``, the archive and what M3 has chosen.
        params: root of the parameter files.
        out: folder to write; none: ``results``, where they say anything else.

    Yields:
        Each report when it is written, and the table of verdicts.

    Raises:
        StudyError: the archive is missing, or lacks a run.
    """
    archive, grid = read_archive(results), read_grid(results / "grid.tsv")
    with tempfile.TemporaryDirectory(prefix="refblend-redraw-") as scratch:
        for milestone in ORDER:
            collected = Path(scratch) / milestone
            study = tuple(milestone_experiments(milestone, params))
            if milestone == "scoring":
                if not (results / "scoring" / "measurements").is_dir():
                    continue
                shutil.copytree(results / QUALITY / "circumstances", collected / "circumstances")
            elif set(study) & set(grid.experiment):
                write_collected(of_grid(archive, select(grid, study)), collected)
            else:
                continue
            inputs = Inputs(scale, study, collected, models=results, results=results, params=params)
            report, built = load_report(milestone), (out or Path(scratch) / "built") / milestone
            write_everything(report, inputs, built)
            if out is None:
                publish(report, inputs, built)
            yield (out or results) / milestone / "report.md"
    yield write_verdicts(scale, results, params, out)
