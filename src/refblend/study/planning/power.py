"""``refblend study power``: seeds that a comparison needs, from the variance of earlier runs."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import pandas as pd

from refblend.errors import StudyError
from refblend.study.design.spec import ExperimentSpec
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
    hours_per_run: float | None = None


@dataclass(frozen=True)
class Spread:
    """How an accuracy varies over seeds, pooled over arms."""

    accuracy: float
    independent: float
    """Deviation of one run's value."""
    paired: float
    """Deviation of the difference to the baseline, seed by seed; NaN without pairs."""
    seeds: int
    """Fewest seeds of an arm."""


def read_spread(values: pd.DataFrame, measure: str, baseline: str) -> Spread:
    """Pool the variance of an accuracy in [0, 1] over all arms that have two seeds or more.

    ``values`` has a row per run with the columns arm, seed and the measure, as in ``per_seed.csv``;
    arms are paired with the baseline.

    Raises:
        StudyError: a column or the baseline is missing, or no arm has two seeds.
    """
    missing = [name for name in ("arm", "seed", measure) if name not in values.columns]
    if missing:
        raise StudyError(
            f"the table has no column {missing[0]}", "Give a table of runs, such as per_seed.csv."
        )
    table = values.pivot(index="seed", columns="arm", values=measure)
    table = table.loc[:, table.count() >= 2]
    if baseline not in table.columns:
        raise StudyError(
            f"the baseline {baseline} has fewer than two seeds with {measure}",
            f"Name one of {', '.join(table.columns) or 'none'} with --baseline.",
        )
    differences = table.drop(columns=baseline).sub(table[baseline], axis=0)
    return Spread(
        accuracy=float(table.stack().mean()),
        independent=math.sqrt(pooled_variance(table)),
        paired=math.sqrt(pooled_variance(differences)) if len(differences.columns) else math.nan,
        seeds=int(table.count().min()),
    )


def pooled_variance(table: pd.DataFrame) -> float:
    """Variance within the columns, each weighted by its degrees of freedom; NaN: no value."""
    freedom = table.count() - 1
    weighted = (freedom * table.var())[freedom > 0]
    return float(weighted.sum() / freedom[freedom > 0].sum()) if len(weighted) else math.nan


def power_table(spread: Spread, question: PowerQuestion) -> pd.DataFrame:
    """One row per design and size of the test set.

    A larger test set takes away binomial noise of independent arms only: what it does to paired
    differences depends on the items that both arms solve, which the table of runs does not hold.

    Returns:
        Columns design, test_problems, deviation, seeds_difference, seeds_equivalence,
        least_detectable (with the present seeds), hours (both arms, the larger number of seeds);
        ``<NA>`` where no number of seeds is enough.
    """
    designs: list[tuple[str, int | None, Design]] = []
    present = question.test_sizes[0] if question.test_sizes else None
    if math.isfinite(spread.paired) and spread.paired > 0:
        designs.append(("paired", present, Design(spread.paired, True, question.alpha)))
    for size in question.test_sizes or (None,):
        deviation = spread.independent
        if size is not None and present is not None:
            noise = spread.accuracy * (1 - spread.accuracy) / size
            own = seed_variance(spread.independent, spread.accuracy, present)
            deviation = math.sqrt(own + noise)
        designs.append(("independent", size, Design(deviation, False, question.alpha)))
    return pd.DataFrame([_row(*design, spread, question) for design in designs])


def _row(
    name: str, size: int | None, design: Design, spread: Spread, question: PowerQuestion
) -> dict[str, object]:
    different = seeds_for(lambda n: power_of_difference(design, n, question.effect), question.power)
    equal = seeds_for(lambda n: power_of_equivalence(design, n, question.margin), question.power)
    both = None if different is None or equal is None else max(different, equal)
    hours = question.hours_per_run
    return {
        "design": name,
        "test_problems": pd.NA if size is None else size,
        "deviation": design.deviation,
        "seeds_difference": pd.NA if different is None else different,
        "seeds_equivalence": pd.NA if equal is None else equal,
        "least_detectable": least_detectable(design, spread.seeds, question.power),
        "hours": pd.NA if both is None or hours is None else 2 * both * hours,
    }


def design_table(
    values: pd.DataFrame,
    experiments: Mapping[str, ExperimentSpec],
    scale: str,
    question: PowerQuestion,
) -> pd.DataFrame:
    """The seeds that the primary contrasts of declared experiments take, and those declared.

    Each contrast is planned at α ÷ (primary contrasts of the experiment), Bonferroni, which Holm
    never exceeds, with its margin and the experiment's smallest effect; ``question`` gives the
    power, the sizes of the test set and the hours of a run. Those of arms that the scale does not
    train are left out.

    Returns:
        One row per experiment, endpoint, margin, design and size: experiment, endpoint, contrasts,
        alpha, declared (of the arm that has fewest), then the columns of :func:`power_table`. An
        endpoint that the earlier runs lack has one row without numbers.
    """
    parts = []
    for name, spec in experiments.items():
        planned: dict[tuple[str, float], list[tuple[str, str]]] = {}
        for contrast in (contrast for contrast in spec.contrasts if contrast.primary):
            if pairs := spec.pairs_of(contrast, scale):
                key = (spec.endpoint_of(contrast), spec.margin_of(contrast))
                planned.setdefault(key, []).extend(pairs)
        family = sum(map(len, planned.values()))
        for (endpoint, margin), pairs in planned.items():
            alpha = spec.alpha / family
            head = {"experiment": name, "endpoint": endpoint, "contrasts": family, "alpha": alpha}
            head["declared"] = min(len(spec.seeds_of(scale, arm)) for arms in pairs for arm in arms)
            if endpoint not in values.columns:
                parts.append(pd.DataFrame([head]))
                continue
            sizes = question.test_sizes if endpoint.startswith("test_") else ()
            asked = replace(
                question, alpha=alpha, margin=margin, effect=spec.effect, test_sizes=sizes
            )
            found = power_table(read_spread(values, endpoint, spec.baseline), asked)
            parts.append(pd.DataFrame([head]).merge(found, how="cross"))
    if not parts:
        raise StudyError(
            f"{', '.join(experiments)}: no primary contrast at scale {scale}",
            "Mark contrasts with primary: true in params/study, or name another scale.",
        )
    return pd.concat(parts, ignore_index=True)
