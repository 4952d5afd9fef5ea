"""The table of verdicts: every declared contrast of some experiments, for all reports."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from refblend.study.design.grid import read_grid
from refblend.study.design.measures import MEASURES
from refblend.study.design.spec import ContrastSpec, ExperimentSpec
from refblend.study.report.formats import write_csv
from refblend.study.report.registry import read_experiments
from refblend.study.runs.archive import of_grid, read_archive
from refblend.study.runs.measures import run_measures, wide
from refblend.study.stats.verdicts import Contrast, decide, is_paired

VERDICT_COLUMNS = {
    "experiment": "str",
    "contrast": "str",
    "primary": "bool",
    "n": "int64",
    "estimate": "float64",
    "low": "float64",
    "high": "float64",
    "p": "float64",
    "p_adjusted": "float64",
    "verdict": "str",
    "treated": "str",
    "reference": "str",
    "endpoint": "str",
    "margin": "float64",
    "alpha": "float64",
    "paired": "bool",
    "p_equivalence": "float64",
    "p_equivalence_adjusted": "float64",
    "least_p_adjusted": "float64",
    "detectable": "float64",
    "seeds_needed": "Int64",
}
"""``estimate`` is treated − reference with its interval at 1 − α; ``detectable`` and
``seeds_needed`` are for a power of 80 %, see :class:`refblend.study.stats.verdicts.Outcome`."""


@dataclass(frozen=True)
class Stated:
    """One contrast of an experiment, and its runs."""

    spec: ContrastSpec
    treated: str
    reference: str
    endpoint: str
    runs: Contrast


def verdicts(
    values: pd.DataFrame, experiments: Mapping[str, ExperimentSpec], scale: str
) -> pd.DataFrame:
    """One row per contrast whose arms the experiment has at the scale; families are adjusted.

    The primary contrasts of an experiment are one family, its exploratory ones another.

    Args:
        values: of :func:`refblend.study.runs.measures.run_measures`.
        experiments: as declared, by name.
        scale: whose arms and seeds count.

    Returns:
        :data:`VERDICT_COLUMNS`.
    """
    rows: list[dict[str, Any]] = []
    for name, spec in experiments.items():
        stated = list(_stated(values, spec, scale))
        paired = {
            endpoint: is_paired([each.runs for each in stated if each.endpoint == endpoint])
            for endpoint in dict.fromkeys(each.endpoint for each in stated)
        }
        for primary in (True, False):
            family = [each for each in stated if each.spec.primary == primary]
            rows += _family(name, spec.alpha, family, paired)
    return pd.DataFrame(rows, columns=list(VERDICT_COLUMNS)).astype(VERDICT_COLUMNS)


def write_verdicts(scale: str, results: Path, params: Path, out: Path | None = None) -> Path:
    """Write ``verdicts.csv`` of all experiments of a scale's grid, from its archive alone.

    Args:
        scale: whose verdicts.
        results: of the scale, with ``grid.tsv`` and the archive.
        params: root of the parameter files.
        out: folder to write; none: ``results``.

    Raises:
        StudyError: grid or archive are missing, or the archive lacks a run.
    """
    grid = read_grid(results / "grid.tsv")
    names = tuple(dict.fromkeys(grid.experiment))
    values = run_measures(of_grid(read_archive(results), grid))
    path = (out or results) / "verdicts.csv"
    write_csv(verdicts(values, read_experiments(names, params), scale), path)
    return path


def _stated(values: pd.DataFrame, spec: ExperimentSpec, scale: str) -> Iterator[Stated]:
    """The contrasts of an experiment at a scale, in the order of its file."""
    arms, seeds = list(spec.arms_of(scale)), spec.seeds_of(scale)
    for contrast in spec.contrasts:
        endpoint = spec.endpoint_of(contrast)
        table = wide(values, endpoint, arms).reindex(seeds)
        better = MEASURES[endpoint].higher_is_better
        assert better is not None, "the grid refuses measures without a direction"
        for treated, reference in contrast.pairs.items():
            if treated in arms and reference in arms:
                margin = contrast.margin or spec.margin
                runs = Contrast(table[treated], table[reference], margin, better)
                yield Stated(contrast, treated, reference, endpoint, runs)


def _family(
    experiment: str, alpha: float, family: list[Stated], paired: Mapping[str, bool]
) -> list[dict[str, Any]]:
    """Rows of contrasts that are adjusted together."""
    outcomes = decide(
        [each.runs for each in family], [paired[each.endpoint] for each in family], alpha
    )
    rows = []
    for each, found in zip(family, outcomes, strict=True):
        row = {name: getattr(found, name) for name in VERDICT_COLUMNS if hasattr(found, name)}
        row |= {"experiment": experiment, "contrast": each.spec.name, "alpha": alpha}
        row |= {"primary": each.spec.primary, "margin": each.runs.margin}
        row |= {name: getattr(found.difference, name) for name in ("estimate", "low", "high")}
        row |= {name: getattr(each, name) for name in ("treated", "reference", "endpoint")}
        rows.append(row)
    return rows
