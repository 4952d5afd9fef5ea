"""Decisions by fixed rules: a sweep's knee or pivot, and the better level of a factor."""

from typing import Any

import numpy as np
import pandas as pd

from refblend.seeding import derive_generator
from refblend.study.design.measures import with_endpoint
from refblend.study.report.m2.study import REPORT, M2Study, chooses
from refblend.study.stats.comparisons import best_configuration
from refblend.study.stats.statistics import Interval, paired_values, student_interval
from refblend.study.stats.thresholds import Choice, find_knee, find_pivot, not_identifiable

LEVEL_MEASURES = ("test_greedy", "val_best", "val_auc", "final_return")
LEVEL_COLUMNS = ["experiment", "measure", "level", "arm", "n", "mean", "low", "high"]
LEVEL_COLUMNS += ["diff", "diff_low", "diff_high"]
KNEE_COLUMNS = ["experiment", "rule", "measure", "levels", "n", "chosen", "low", "high"]
KNEE_COLUMNS += ["stability", "best_level", "sign_changes", "identifiable", "why_not"]


def level_measures(study: M2Study, experiment: str) -> list[str]:
    """The measures by which the levels of a sweep are compared, its endpoint among them."""
    return with_endpoint(study.experiments[experiment].endpoint, LEVEL_MEASURES)


def levels_of(study: M2Study, experiment: str) -> dict[float, str]:
    """Level → arm of an experiment's sweep, increasing; of the arms that it has at this scale."""
    sweep, arms = study.sweep(experiment), study.arms(experiment)
    found = [(float(study.resolved[a].setting(sweep.key)), a) for a in sweep.arms if a in arms]
    return dict(sorted(found))


def sweep_values(study: M2Study, experiment: str, measure: str) -> tuple[pd.DataFrame, pd.Series]:
    """Values of a sweep, one column per level, and of its baseline; one row per seed."""
    levels = levels_of(study, experiment)
    table = study.wide(experiment, measure)
    base = table.get(study.experiments[experiment].baseline, pd.Series(np.nan, index=table.index))
    return table[list(levels.values())].set_axis(list(levels), axis=1), base


def swept(study: M2Study) -> list[str]:
    """Experiments that sweep a number and have arms at this scale."""
    return [name for name, spec in study.experiments.items() if spec.sweep and study.arms(name)]


def bounds(interval: Interval, name: str, prefix: str = "") -> dict[str, float]:
    """Estimate and bounds of an interval as columns."""
    ends = {f"{prefix}low": interval.low, f"{prefix}high": interval.high}
    return {name: interval.estimate} | ends


@REPORT.table("levels")
def level_means(study: M2Study) -> pd.DataFrame:
    """Every level of every sweep: mean and difference to the baseline, Student's intervals."""
    rows = []
    for experiment in swept(study):
        for measure in level_measures(study, experiment):
            values, base = sweep_values(study, experiment, measure)
            for level, arm in levels_of(study, experiment).items():
                own = student_interval(values[level].dropna())
                gain = student_interval(paired_values(values[level], base))
                row = {"experiment": experiment, "measure": measure, "level": level, "arm": arm}
                rows.append(
                    row | {"n": own.n} | bounds(own, "mean") | bounds(gain, "diff", "diff_")
                )
    return pd.DataFrame(rows, columns=LEVEL_COLUMNS)


@REPORT.table("knee_pivot")
def knee_and_pivot(study: M2Study) -> pd.DataFrame:
    """The level that the rule chooses for every measure, its interval over seeds, or why not.

    Returns:
        :data:`KNEE_COLUMNS`; ``chosen`` is what the rule gives also where it is not identifiable,
        ``low`` and ``high`` are its 95 % interval over resampled seeds.
    """
    rows = [
        _chosen_level(study, experiment, measure)
        for experiment in swept(study)
        for measure in level_measures(study, experiment)
    ]
    types = {"chosen": "float64", "best_level": "float64", "sign_changes": "Int64"}
    return pd.DataFrame(rows, columns=KNEE_COLUMNS).astype(types)


def _chosen_level(study: M2Study, experiment: str, measure: str) -> dict[str, Any]:
    """What the rule of a sweep says about one measure."""
    sweep = study.sweep(experiment)
    values, base = sweep_values(study, experiment, measure)
    rng = derive_generator("m2", experiment, sweep.rule, measure)
    if sweep.rule == "knee":
        knee = find_knee(values, rng)
        choice: Choice = knee
        extra: dict[str, Any] = {"best_level": knee.best}
    else:
        pivot = find_pivot(values, base, rng)
        choice, extra = pivot, {"sign_changes": pivot.changes}
    why = not_identifiable(choice, list(values.columns))
    low, high = choice.interval() or (np.nan, np.nan)
    return {
        "experiment": experiment,
        "rule": sweep.rule,
        "measure": measure,
        "levels": ", ".join(f"{level:g}" for level in values.columns),
        "n": choice.n,
        "chosen": choice.level,
        "low": low,
        "high": high,
        "stability": choice.stability,
        "identifiable": not why,
        "why_not": why,
        **extra,
    }


@REPORT.table("{experiment}_choice", shown=True, each=chooses)
def choice_table(study: M2Study, experiment: str) -> pd.DataFrame:
    """The levels of a factor (of the judge's placement) within each facet, and which is better.

    Rule: among the treated arms of one facet, the better level is that of the arm with the best
    mean of the endpoint over the seeds that all have; it is *shown* to be better than another if
    that one is distinguishable from it (:func:`best_configuration`).

    Returns:
        Columns of facet and factor, arm, n, mean, low, high, best, share_best; ``distinguishable``
        from the best, missing for the best itself; ``swept``: experiments that assume this one's
        choice run under this level.
    """
    spec = study.experiments[experiment]
    assert spec.choice is not None, "asked of choices only"
    facet, assumed = spec.facet or "facet", assumed_levels(study, experiment)
    columns = [facet, "arm", spec.choice, "n", "mean", "low", "high", "best", "share_best"]
    rows = []
    for level, arms in study.facets(experiment).items():
        rng = derive_generator("m2", experiment, spec.choice, level)
        best = best_configuration(study.endpoint(experiment)[arms], rng)
        for arm in arms:
            own = student_interval(study.endpoint(experiment)[arm].dropna())
            value = study.level(experiment, spec.choice, arm)
            other = pd.NA if arm not in best.gaps else arm not in best.not_distinguishable
            row = {facet: level, "arm": arm, spec.choice: value, "n": own.n} | bounds(own, "mean")
            row |= {"best": arm == best.arm, "distinguishable": other, "swept": value in assumed}
            rows.append(row | {"share_best": best.share if arm == best.arm else np.nan})
    table = pd.DataFrame(rows, columns=[*columns, "distinguishable", "swept"])
    return table.astype({"distinguishable": "boolean"})


def assuming(study: M2Study, experiment: str) -> list[str]:
    """Experiments that are to run under what this one chooses."""
    return [name for name, spec in study.experiments.items() if spec.assumes == experiment]


def assumed_levels(study: M2Study, experiment: str) -> set[str]:
    """Levels of an experiment's choice under which those that assume it vary other things."""
    spec = study.experiments[experiment]
    assert spec.choice is not None, "asked of choices only"
    key = spec.factors[spec.choice]
    return {
        str(study.resolved[arm].setting(key))
        for name in assuming(study, experiment)
        for arm in study.subjects(name)
    }
