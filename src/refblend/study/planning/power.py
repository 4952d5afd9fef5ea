"""``refblend study power``: seeds that a comparison needs, from the variance of earlier runs."""

import math
from collections.abc import Mapping
from pathlib import Path

import pandas as pd
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from refblend.documents import shorten
from refblend.errors import StudyError
from refblend.study.design.spec import ExperimentSpec
from refblend.study.stats.exact import least_p
from refblend.study.stats.power import (
    Design,
    least_detectable,
    seeds_of_difference,
    seeds_of_equivalence,
)


def read_runs(path: Path) -> pd.DataFrame:
    """A table such as ``per_seed.csv``; StudyError if it has no row per ``arm`` and ``seed``."""
    try:
        text = {"arm": str, "seed": str}
        table = pd.read_csv(path, dtype=text, keep_default_na=False, na_values=["", "nan"])
        if missing := {"arm", "seed"} - set(table.columns):
            raise ValueError(f"no column {', '.join(sorted(missing))}")
        if not table.seed.str.fullmatch("[0-9]+").all():
            raise ValueError("column seed has other than whole numbers")
        table = table.astype({"seed": "int64"})
        for run in table[table.duplicated(["arm", "seed"])].itertuples():
            raise ValueError(f"arm {run.arm}, seed {run.seed} has several rows")
    except (OSError, ValueError, OverflowError) as error:
        raise StudyError(
            f"{path}: cannot be read as a table of runs ({shorten(str(error), 200)})",
            "Give a table with a row per run, such as per_seed.csv.",
        ) from None
    return table


def deviations(
    values: pd.DataFrame, measure: str, baseline: str, source: str | Path = "the table"
) -> dict[str, float]:
    """How a measure varies over seeds, pooled over all arms that have two seeds or more.

    ``paired`` is that of the differences to the baseline, seed by seed, where an arm has pairs;
    ``independent`` that of one run's value. ``values`` are those of :func:`read_runs`, from the
    file ``source``. StudyError: the measure is no column of numbers, or the baseline has no two
    seeds.
    """
    if not is_numeric_dtype(values[measure]) or is_bool_dtype(values[measure]):
        raise StudyError(f"{source}: column {measure} has no numbers", "Give another table.")
    table = values.pivot(index="seed", columns="arm", values=measure)
    table = table.loc[:, table.count() >= 2]
    if baseline not in table.columns:
        raise StudyError(
            f"{source}: the baseline {baseline} has fewer than two seeds with {measure}",
            f"Give a table with runs of {baseline}.",
        )
    differences = table.drop(columns=baseline).sub(table[baseline], axis=0)
    found = {"paired": pooled_variance(differences), "independent": pooled_variance(table)}
    return {name: math.sqrt(value) for name, value in found.items() if math.isfinite(value)}


def pooled_variance(table: pd.DataFrame) -> float:
    """Variance within the columns, each weighted by its degrees of freedom; NaN: no value."""
    freedom = table.count() - 1
    weighted = (freedom * table.var())[freedom > 0]
    return float(weighted.sum() / freedom[freedom > 0].sum()) if len(weighted) else math.nan


def power_table(
    values: pd.DataFrame,
    experiments: Mapping[str, ExperimentSpec],
    scale: str,
    power: float = 0.8,
    effect: float | None = None,
    source: str | Path = "the table",
) -> pd.DataFrame:
    """The seeds that the contrasts of declared experiments take, and those declared.

    The primary contrasts are planned, or all if none is primary, each at α ÷ their number:
    Bonferroni, which Holm never exceeds. The variance is that of the experiment's own runs, or of
    all in ``values`` while its baseline has none. The power is Student's, with at least the seeds
    that the exact tests need to reach α at all. ``effect``: the smallest difference of interest
    instead of the declared one.

    One row per experiment, endpoint, margin and design, with the seeds that a difference and an
    equivalence take, those declared (of the arm that has fewest; of pairs, common ones) and
    ``least_detectable`` with these. None: no number is enough, or nothing varies. StudyError: no
    seeds at the scale, no contrast, or no runs of a baseline.
    """
    rows: list[dict[str, object]] = []
    for name, spec in experiments.items():
        if scale not in spec.seeds:
            raise StudyError(
                f"{name} has no seeds at scale {scale}", f"Name one of {', '.join(spec.seeds)}."
            )
        planned, own = _planned(spec, scale), _own(values, spec, scale)
        family = sum(map(len, planned.values()))
        for (endpoint, margin), pairs in planned.items():
            head: dict[str, object] = {"experiment": name, "endpoint": endpoint}
            head |= {"contrasts": family, "alpha": spec.alpha / family}
            if endpoint not in values.columns:
                rows.append(head)
                continue
            own_seeds = spec.seeds_by_arm(scale)
            seeds = [[set(own_seeds[arm]) for arm in pair] for pair in pairs]
            declared = {
                "paired": min(len(treated & reference) for treated, reference in seeds),
                "independent": min(len(each) for both in seeds for each in both),
            }
            for design, deviation in deviations(own, endpoint, spec.baseline, source).items():
                asked = Design(deviation, design == "paired", spec.alpha / family)
                found = _row(asked, declared[design], effect or spec.effect, margin, power)
                rows.append(head | {"design": design} | found)
    if not rows:
        raise StudyError(
            f"{', '.join(experiments)}: no contrast at scale {scale}",
            "Declare contrasts in params/study, or name another scale.",
        )
    return pd.DataFrame(rows, dtype=object)


def _row(
    design: Design, declared: int, effect: float, margin: float, power: float
) -> dict[str, object]:
    different = equal = least = None
    if design.deviation > 0:
        different = seeds_of_difference(design, effect, power)
        equal = seeds_of_equivalence(design, margin, power)
        # The verdicts' tests are exact: with fewer seeds none of them can reach α.
        enough = least_p(declared, declared, design.paired) <= design.alpha
        least = least_detectable(design, declared, power) if enough else math.inf
    return {
        "deviation": design.deviation,
        "seeds_difference": different,
        "seeds_equivalence": equal,
        "declared": declared,
        "least_detectable": least,
    }


def _planned(spec: ExperimentSpec, scale: str) -> dict[tuple[str, float], list[tuple[str, str]]]:
    """Endpoint and margin → the contrasts to plan, as pairs of arms, that are decided by them."""
    planned: dict[tuple[str, float], list[tuple[str, str]]] = {}
    primary = [contrast for contrast in spec.contrasts if contrast.primary]
    for contrast in primary or spec.contrasts:
        if pairs := spec.pairs_of(contrast, scale):
            key = (spec.endpoint_of(contrast), spec.margin_of(contrast))
            planned.setdefault(key, []).extend(pairs)
    return planned


def _own(values: pd.DataFrame, spec: ExperimentSpec, scale: str) -> pd.DataFrame:
    """The rows of an experiment's own runs; all rows where its baseline has not two of them."""
    declared = spec.seeds_by_arm(scale)
    mine = [
        seed in declared.get(arm, ()) for arm, seed in zip(values.arm, values.seed, strict=True)
    ]
    own = values[mine]
    return own if (own.arm == spec.baseline).sum() >= 2 else values
