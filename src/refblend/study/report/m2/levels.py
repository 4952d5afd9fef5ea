"""Decisions by fixed rules: a sweep's knee or pivot, the better level of a factor, the contrasts
that experiments declare, and the best arm for every measure.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from refblend.seeding import derive_generator
from refblend.study.design.measures import MEASURES, with_endpoint
from refblend.study.report.m2.study import REPORT, SCORING, M2Study, chooses
from refblend.study.report.summary import SUMMARY_COLUMNS, Family, bounds, summarise, summary_frame
from refblend.study.runs.measures import wide
from refblend.study.stats.comparisons import best_configuration
from refblend.study.stats.statistics import complete_seeds, paired_values, student_interval
from refblend.study.stats.thresholds import Choice, find_knee, find_pivot, not_identifiable

LEVEL_MEASURES = ("test_greedy", "val_best", "val_auc", "final_return")
LEVEL_COLUMNS = ["experiment", "measure", "level", "arm", "n", "mean", "low", "high"]
LEVEL_COLUMNS += ["diff", "diff_low", "diff_high"]
KNEE_COLUMNS = ["experiment", "rule", "measure", "levels", "n", "chosen", "low", "high"]
KNEE_COLUMNS += ["stability", "best_level", "sign_changes", "identifiable", "why_not"]


CONTRAST_MEASURES = (
    "test_greedy", "test_sampled", "val_best", "val_auc", "final_return", "length_end",
)  # fmt: skip
BEST_MEASURES = (
    "test_greedy", "test_sampled", "val_final", "val_best", "val_gain", "val_auc", "val_drawdown",
    "final_return", "loss_spikes", "grad_spikes", "judge_auc", "nonzero_rate", "valid_rate",
)  # fmt: skip
COST_MEASURES = ("step_seconds", "throughput", "memory_gb", "gpu_memory_gb")
EVERYWHERE = "all"
"""Scope of the arms of all experiments that learn."""
BEST_COLUMNS = [
    "scope", "measure", "direction", "best", "n", "arms", "mean", "low", "high", "share_best",
    "tied", "n_not_distinguishable", "not_distinguishable_from", "without_values",
]  # fmt: skip


def level_measures(study: M2Study, experiment: str) -> list[str]:
    """The measures by which the levels of a sweep are compared, its endpoint among them."""
    return with_endpoint(study.experiments[experiment].endpoint, LEVEL_MEASURES)


def levels_of(study: M2Study, experiment: str) -> dict[float, str]:
    """Level → arm of an experiment's sweep, increasing; of the arms that it has at this scale."""
    sweep, arms = study.sweep(experiment), study.arms(experiment)
    found = [(float(study.resolved[a].setting(sweep.key)), a) for a in sweep.arms if a in arms]
    return dict(sorted(found))


def sweep_values(study: M2Study, experiment: str, measure: str) -> tuple[pd.DataFrame, pd.Series]:
    """Values of a sweep, one column per level, and of its baseline.

    One row for each seed that every level with any run has, as the rules use them: levels and
    baseline are then means over the same seeds.
    """
    levels = levels_of(study, experiment)
    table = study.wide(experiment, measure)
    base = table.get(study.experiments[experiment].baseline, pd.Series(np.nan, index=table.index))
    values = table[list(levels.values())].set_axis(list(levels), axis=1)
    common = complete_seeds(values)[0].index
    return values.loc[common], base.loc[common]


def swept(study: M2Study) -> list[str]:
    """Experiments that sweep a number and have arms at this scale."""
    return [name for name, spec in study.experiments.items() if spec.sweep and study.arms(name)]


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
                row |= bounds(own, name="mean") | bounds(gain, "diff_", "diff")
                rows.append(row | {"n": own.n})
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
            row = {facet: level, "arm": arm, spec.choice: value, "n": own.n} | bounds(
                own, name="mean"
            )
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


@REPORT.table("contrasts")
def contrasts(study: M2Study) -> pd.DataFrame:
    """Every pair of arms that a contrast names, by every measure, whatever it is decided by.

    The pairs of one experiment and measure are one family, of paired differences; the verdicts say
    what is decided. A treated arm may appear in several pairs, so each is summarised by itself.

    Returns:
        Columns experiment, contrast (all that name the pair), then those of a summary without the
        arm's own numbers.
    """
    parts = [_family(study, name) for name in study.experiments]
    table = pd.concat([part for part in parts if len(part)] or [summary_frame()], ignore_index=True)
    table = table.reindex(columns=["experiment", "contrast", *SUMMARY_COLUMNS])
    own = ["iqm", "low", "high", "boot_low", "boot_high", "runs", "n", "mean"]
    return table.drop(columns=own).rename(columns={"baseline": "against"})


def _family(study: M2Study, experiment: str) -> pd.DataFrame:
    """The pairs of one experiment's contrasts, each with columns of its own for its two arms."""
    spec, arms = study.experiments[experiment], study.arms(experiment)
    stated: dict[str, tuple[str, str, str]] = {}
    for contrast in spec.contrasts:
        for treated, reference in contrast.pairs.items():
            if treated in arms and reference in arms:
                pair = f"{treated} − {reference}"
                name = f"{stated[pair][0]}; {contrast.name}" if pair in stated else contrast.name
                stated[pair] = (name, treated, reference)

    def values_of(measure: str) -> pd.DataFrame:
        table = study.wide(experiment, measure)
        columns: dict[str, pd.Series] = {}
        for pair, (_, treated, reference) in stated.items():
            columns |= {f"{pair} treated": table[treated], f"{pair} reference": table[reference]}
        return pd.DataFrame(columns)

    pairs = [(f"{pair} treated", f"{pair} reference") for pair in stated]
    planned = study.planned(experiment)
    family = Family(
        f"{experiment} contrasts",
        [treated for treated, _ in pairs],
        pairs,
        {f"{pair} treated": planned[treated] for pair, (_, treated, _) in stated.items()},
    )
    family = family.declared_by(spec)
    table = summarise(family, values_of, with_endpoint(spec.endpoint, CONTRAST_MEASURES))
    found = [stated[name.removesuffix(" treated")] for name in table["arm"]]
    names = pd.DataFrame(found, columns=["contrast", "arm", "baseline"])
    return table.assign(experiment=experiment, **names)


def at_endpoint(study: M2Study, table: pd.DataFrame) -> pd.DataFrame:
    """Rows of a table of several experiments that hold each one's endpoint."""
    endpoints = {name: spec.endpoint for name, spec in study.experiments.items()}
    return table[table.measure == table.experiment.map(endpoints)]


def scope_endpoints(study: M2Study) -> dict[str, str]:
    """Among whose arms the best is named, and by which measure: the leading experiments, and all
    that learn, by the first one's endpoint."""
    found = {name: study.experiments[name].endpoint for name in study.leading}
    first = next(iter([*study.leading, *study.learning]), None)
    return found | ({EVERYWHERE: study.experiments[first].endpoint} if first else {})


@REPORT.table("best_per_metric")
def best_per_metric(study: M2Study) -> pd.DataFrame:
    """The best arm for every measure: of each leading experiment, of all that learn, and by costs.

    An arm with fewer seeds than its experiment is not ranked. Only runs that were alone on the
    machine are compared by time and memory; the judge's time, where the experiment varies how it
    scores.

    Returns:
        :data:`BEST_COLUMNS`; ``share_best``: share of resampled seeds in which it is the best,
        ``tied``: other arms with the same mean.
    """
    scopes: list[tuple[str, list[str], Sequence[str]]] = [
        (
            name,
            study.all_ranked() if name == EVERYWHERE else study.ranked(name),
            with_endpoint(endpoint, BEST_MEASURES),
        )
        for name, endpoint in scope_endpoints(study).items()
    ]
    for name, spec in study.experiments.items():
        if spec.exclusive:
            judge = any(key.startswith(SCORING) for key in spec.factors.values())
            measures = (*COST_MEASURES, "judge_seconds") if judge else COST_MEASURES
            scopes.append((name, study.arms(name), measures))
    rows = [
        _best_row(study, scope, arms, measure)
        for scope, arms, measures in scopes
        if len(arms) > 1
        for measure in measures
    ]
    return pd.DataFrame([row for row in rows if row], columns=BEST_COLUMNS)


def _best_row(study: M2Study, scope: str, arms: list[str], measure: str) -> dict[str, Any] | None:
    """The best of several arms; null where no two of them have the measure on common seeds."""
    higher = MEASURES[measure].higher_is_better
    assert higher is not None, "only measures with a direction are ranked"
    # An experiment's own seeds only: others may start from other models.
    everywhere = scope == EVERYWHERE
    values = wide(study.values, measure, arms) if everywhere else study.wide(scope, measure)[arms]
    rng = derive_generator("m2", "best", scope, measure)
    best = best_configuration(values, rng, higher_is_better=higher)
    if best.arm is None or not best.gaps:
        return None
    complete = values.drop(columns=list(best.without_values)).dropna()
    own = student_interval(complete[best.arm])
    return bounds(own, name="mean") | {
        "scope": scope,
        "measure": measure,
        "direction": "highest" if higher else "lowest",
        "best": best.arm,
        "n": best.n,
        "arms": len(best.gaps) + 1,
        "share_best": best.share,
        "tied": sum(gap.estimate == 0 for gap in best.gaps.values()),
        "n_not_distinguishable": len(best.not_distinguishable),
        "not_distinguishable_from": ", ".join(map(str, best.not_distinguishable)),
        "without_values": ", ".join(map(str, best.without_values)),
    }
