"""``refblend study power``: seeds that a comparison needs, from the variance of earlier runs."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from refblend.errors import StudyError
from refblend.study.design.spec import ExperimentSpec
from refblend.study.planning.costs import read_table
from refblend.study.stats.exact import fewest_seeds
from refblend.study.stats.power import (
    Design,
    least_detectable,
    power_of_difference,
    power_of_equivalence,
    seed_variance,
    seeds_for,
)


@dataclass(frozen=True)
class PowerQuestion:
    """What a planned comparison of two arms must be able to show."""

    effect: float = 0.03
    """Smallest difference of interest."""
    margin: float = 0.02
    """Differences within ± this count as equivalent."""
    power: float = 0.8
    alpha: float = 0.05
    test_sizes: tuple[int, ...] = ()
    """Numbers of test problems to plan for; the first is that of the earlier runs."""


@dataclass(frozen=True)
class Spread:
    """How a measure varies over seeds, pooled over arms."""

    accuracy: float
    """Its mean."""
    independent: float
    """Deviation of one run's value."""
    paired: float
    """Deviation of the difference to the baseline, seed by seed; NaN without pairs."""
    seeds: int
    """Of the smaller of an arm and the baseline; the median over the arms."""
    pairs: int
    """Seeds that an arm and the baseline have in common; the median over the arms."""


def read_runs(path: Path) -> pd.DataFrame:
    """Read a table of runs such as ``per_seed.csv``, one row each; StudyError if it is not one."""
    remedy = "Give a table with a row per run, such as per_seed.csv."
    table = read_table(path, ("arm", "seed"), remedy)
    if not table.seed.str.fullmatch("[0-9]+").all():
        raise StudyError(f"{path}: column seed has other than whole numbers", remedy)
    return table.astype({"seed": int})


def read_spread(
    values: pd.DataFrame,
    measure: str = "test_greedy",
    baseline: str = "off",
    source: str | Path = "the table",
) -> Spread:
    """Pool the variance of a measure over all arms that have two seeds or more.

    ``values`` are those of :func:`read_runs`, from the file ``source``; arms are paired with the
    baseline.

    Raises:
        StudyError: the measure is no column of numbers, or the baseline has no two seeds.
    """
    column = values.get(measure)
    if column is None or not is_numeric_dtype(column) or is_bool_dtype(column):
        raise StudyError(
            f"{source} has no column {measure} of numbers", "Name a column of it with --measure."
        )
    table = values.pivot(index="seed", columns="arm", values=measure)
    table = table.loc[:, table.count() >= 2]
    if baseline not in table.columns:
        raise StudyError(
            f"{source}: the baseline {baseline} has fewer than two seeds with {measure}",
            f"Give a table with runs of {baseline}, or name another arm with --baseline.",
        )
    others = table.drop(columns=baseline)
    differences = others.sub(table[baseline], axis=0)
    smaller = others.count().clip(upper=int(table[baseline].count()))
    return Spread(
        accuracy=float(table.stack().mean()),
        independent=math.sqrt(pooled_variance(table)),
        paired=math.sqrt(pooled_variance(differences)) if len(differences.columns) else math.nan,
        seeds=int(smaller.median()) if len(smaller) else int(table[baseline].count()),
        pairs=int(differences.count().median()) if len(differences.columns) else 0,
    )


def pooled_variance(table: pd.DataFrame) -> float:
    """Variance within the columns, each weighted by its degrees of freedom; NaN: no value."""
    freedom = table.count() - 1
    weighted = (freedom * table.var())[freedom > 0]
    return float(weighted.sum() / freedom[freedom > 0].sum()) if len(weighted) else math.nan


def power_table(spread: Spread, question: PowerQuestion) -> pd.DataFrame:
    """One row per design and size of the test set.

    The power is Student's, with at least the seeds that the exact tests need to reach α at all. A
    larger test set removes binomial noise of independent arms; its effect on pairs is unknown.

    Returns:
        Columns design, test_problems, deviation, seeds_difference, seeds_equivalence, seeds (of the
        earlier runs) and least_detectable with these; ``<NA>``: no number is enough, or nothing
        varies.
    """
    rows = []
    present = question.test_sizes[0] if question.test_sizes else None
    if math.isfinite(spread.paired):
        rows.append(_row(spread.paired, True, spread.pairs, question, present))
    for size in question.test_sizes or (None,):
        deviation = spread.independent
        if size is not None and present is not None:
            own = seed_variance(deviation, spread.accuracy, present)
            deviation = math.sqrt(own + (deviation**2 - own) * present / size)
        rows.append(_row(deviation, False, spread.seeds, question, size))
    return pd.DataFrame(rows)


def _row(
    deviation: float, paired: bool, seeds: int, question: PowerQuestion, size: int | None
) -> dict[str, object]:
    different = equal = least = None
    if deviation > 0:
        design, power = Design(deviation, paired, question.alpha), question.power
        different = seeds_for(lambda n: power_of_difference(design, n, question.effect), power)
        equal = seeds_for(lambda n: power_of_equivalence(design, n, question.margin), power)
        # The verdicts' tests are exact: with fewer seeds none of them can reach α.
        fewest = fewest_seeds(design.alpha, paired)
        different = _at_least(fewest, different)
        equal = _at_least(fewest_seeds(2 * design.alpha, paired), equal)
        enough = fewest is not None and seeds >= fewest
        least = least_detectable(design, seeds, power) if enough else math.inf
    row: dict[str, object] = {
        "design": "paired" if paired else "independent",
        "test_problems": size,
        "deviation": deviation,
        "seeds_difference": different,
        "seeds_equivalence": equal,
        "seeds": seeds,
        "least_detectable": least,
    }
    return {name: pd.NA if value is None else value for name, value in row.items()}


def _at_least(fewest: int | None, seeds: int | None) -> int | None:
    """The larger of two numbers of seeds; None where no number is enough for one of them."""
    return None if fewest is None or seeds is None else max(fewest, seeds)


def design_table(
    values: pd.DataFrame,
    experiments: Mapping[str, ExperimentSpec],
    scale: str,
    question: PowerQuestion,
    source: str | Path = "the table",
) -> pd.DataFrame:
    """The seeds that the primary contrasts of declared experiments take, and those declared.

    Each contrast is planned at α ÷ (primary contrasts of the experiment): Bonferroni, which Holm
    never exceeds. The variance is that of the experiment's own runs, or of all in ``values`` while
    its baseline has none.

    Returns:
        One row per experiment, endpoint, margin, design and size: experiment, endpoint, contrasts,
        alpha, declared (seeds of the arm that has fewest), then :func:`power_table`'s columns.

    Raises:
        StudyError: no seeds at the scale, no primary contrast, or no runs of a baseline.
    """
    parts = []
    for name, spec in experiments.items():
        if scale not in spec.seeds:
            raise StudyError(
                f"{name} has no seeds at scale {scale}", f"Name one of {', '.join(spec.seeds)}."
            )
        planned = _planned(spec, scale)
        family = sum(map(len, planned.values()))
        own = _own(values, spec, scale)
        for (endpoint, margin), pairs in planned.items():
            alpha = spec.alpha / family
            seeds = [[set(spec.seeds_of(scale, arm)) for arm in pair] for pair in pairs]
            fewest = min(len(each) for both in seeds for each in both)
            head = {"experiment": name, "endpoint": endpoint, "contrasts": family, "alpha": alpha}
            head["declared"] = fewest
            if endpoint not in values.columns:
                parts.append(pd.DataFrame([head]))
                continue
            sizes = question.test_sizes if endpoint.startswith("test_") else ()
            asked = replace(
                question, alpha=alpha, margin=margin, effect=spec.effect, test_sizes=sizes
            )
            spread = read_spread(own, endpoint, spec.baseline, source)
            common = min(len(treated & reference) for treated, reference in seeds)
            found = power_table(replace(spread, seeds=fewest, pairs=common), asked)
            parts.append(pd.DataFrame([head]).merge(found, how="cross"))
    if not parts:
        raise StudyError(
            f"{', '.join(experiments)}: no primary contrast at scale {scale}",
            "Mark contrasts with primary: true in params/study, or name another scale.",
        )
    return pd.concat(parts, ignore_index=True)


def _planned(spec: ExperimentSpec, scale: str) -> dict[tuple[str, float], list[tuple[str, str]]]:
    """Endpoint and margin → the primary contrasts, as pairs of arms, that are decided by them."""
    planned: dict[tuple[str, float], list[tuple[str, str]]] = {}
    for contrast in (contrast for contrast in spec.contrasts if contrast.primary):
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
