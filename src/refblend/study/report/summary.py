"""Every arm and measure of an experiment over its seeds, and against its baseline."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from refblend.seeding import derive_generator
from refblend.study.design.measures import ACCURACIES, ORDERED, label, with_endpoint
from refblend.study.report.readable import number, plus_minus
from refblend.study.report.study import SCORING, Study
from refblend.study.runs.measures import wide
from refblend.study.stats.comparisons import best_configuration
from refblend.study.stats.statistics import complete_seeds, student_interval
from refblend.study.stats.thresholds import choose_level, not_identifiable

MAIN_MEASURES = (
    "test_greedy", "test_sampled", "val_final", "val_best", "val_gain", "val_auc", "val_drawdown",
    "final_return", "loss_spikes", "grad_spikes", "entropy_end", "entropy_collapse", "length_end",
    "weight_mean", "judge_auc", "nonzero_rate", "valid_rate",
)  # fmt: skip
"""What experiments that learn are compared by, the headline first."""
COSTS = ("memory_gb", "gpu_memory_gb", "step_seconds", "throughput", "judge_seconds")
LEVEL_MEASURES = ("test_greedy", "val_best", "val_auc", "final_return")
NOT_RANKED = {"entropy_end", "entropy_collapse", "length_end", "weight_mean"}
BEST_MEASURES = [measure for measure in MAIN_MEASURES if measure not in NOT_RANKED]
ALL = "all"
"""Scope of the arms of all experiments that learn."""
_NAMES = (
    "arm", "measure", "baseline", "runs", "n", "mean", "low", "high", "pairs", "diff",
    "diff_low", "diff_high", "diff_family_low", "diff_family_high",
)  # fmt: skip
SUMMARY_COLUMNS = dict.fromkeys(_NAMES, "float64") | dict.fromkeys(_NAMES[:3], "str")
SUMMARY_COLUMNS |= {"runs": "int64", "n": "int64", "pairs": "Int64"}
"""Columns of a summary. ``low, high`` is Student's 95 % interval, ``diff_low, diff_high`` Student's
at 1 − the experiment's alpha, ``diff_family_*`` the same with Bonferroni over the measure's
comparisons. ``runs`` counts planned runs, ``n`` those that have the measure, ``pairs`` seeds
of both arms."""


def summarise(study: Study, experiment: str, measures: Sequence[str]) -> pd.DataFrame:
    """One row per measure and arm: :data:`SUMMARY_COLUMNS`; without measures that no arm has."""
    rows: list[dict[str, Any]] = []
    seeds, alpha = study.seeds(experiment), study.experiments[experiment].alpha
    bases = {arm: study.baseline(experiment, arm) for arm in seeds}
    for measure in measures:
        values = study.wide(experiment, measure)
        # A baseline that cannot have the measure (a judge's, without a judge) gives no comparison.
        family = [
            arm
            for arm, base in bases.items()
            if base != arm and base in seeds and values[base].notna().any()
        ]
        for arm in seeds if values.notna().to_numpy().any() else ():
            own = values[arm].dropna()
            found = student_interval(own)
            row: dict[str, Any] = {"arm": arm, "measure": measure, "runs": len(seeds[arm])}
            row |= {"n": found.n, "mean": found.estimate, "low": found.low, "high": found.high}
            if arm in family:
                pairs = (own - values[bases[arm]]).dropna()
                for name, level in (("diff", alpha), ("diff_family", alpha / len(family))):
                    found = student_interval(pairs, 1 - level)
                    row |= {f"{name}_low": found.low, f"{name}_high": found.high}
                row |= {"baseline": bases[arm], "pairs": found.n, "diff": found.estimate}
            rows.append(row)
    return pd.DataFrame(rows, columns=list(SUMMARY_COLUMNS)).astype(SUMMARY_COLUMNS)


def experiment_summary(study: Study, experiment: str) -> pd.DataFrame:
    """The main measures, the experiment's endpoint, and the measure of its contrasts."""
    return summarise(study, experiment, decisive_first(study, experiment, MAIN_MEASURES))


def cost_table(study: Study, experiment: str) -> pd.DataFrame:
    """The factors of every arm, then a summary of what a step costs."""
    table = summarise(study, experiment, COSTS)
    factors = study.experiments[experiment].factors.items()
    levels = {name: [study.resolved[a].settings[key] for a in table.arm] for name, key in factors}
    return pd.concat([pd.DataFrame(levels, index=table.index), table], axis=1)


def main_table(study: Study, experiment: str, summary: pd.DataFrame) -> pd.DataFrame:
    """The table that the page shows of an experiment: one row per arm.

    Of one that learns greedy and sampled test accuracy, each with its difference to the baseline,
    and the mean weight; of one that measures costs all of them. Some columns may be empty:
    :func:`to_markdown` leaves them out.
    """
    spec, rows = study.experiments[experiment], []
    several = len(study.baselines(experiment)) > 1
    measures = COSTS if spec.exclusive else with_endpoint(spec.endpoint, list(ACCURACIES))
    shown = {measure: ACCURACIES.get(measure) or label(measure) for measure in measures}
    order = ["arm", *spec.factors, "n", "against"]
    order += [column for name in shown.values() for column in (name, f"Δ {name}")]
    for arm, part in summary.groupby("arm", sort=False):
        own = {row["measure"]: row for row in part.to_dict("records")}
        cells: dict[str, Any] = {"arm": arm}
        cells |= {name: part[name].iloc[0] for name in spec.factors if name in part}
        cells["n"] = f"{part.n.max()}/{part.runs.max()}"
        if several and study.baseline(experiment, str(arm)) != arm:
            cells["against"] = study.baseline(experiment, str(arm))
        for measure, name in shown.items():
            if row := own.get(measure):
                cells[name] = plus_minus(row["mean"], row["low"], row["high"], row["n"])
                if pd.notna(row["diff"]) and (not spec.exclusive or measure == "step_seconds"):
                    found = (row["diff"], row["diff_low"], row["diff_high"], row["pairs"])
                    cells[f"Δ {name}"] = plus_minus(*found, signed=True)
        if not spec.exclusive and "weight_mean" in own:
            cells["mean w"] = number(own["weight_mean"]["mean"])
        rows.append(cells)
    return pd.DataFrame(rows).reindex(columns=[*order, "mean w"])


def sweep_values(study: Study, experiment: str, measure: str) -> tuple[pd.DataFrame, pd.Series]:
    """Values of a sweep, one column per level, and of its baseline.

    One row for each seed that every level with any run has, as the rules use them: levels and
    baseline are then means over the same seeds.
    """
    levels = study.levels(experiment)
    table = study.wide(experiment, measure)
    base = table.get(study.experiments[experiment].baseline, pd.Series(np.nan, index=table.index))
    values = table[list(levels.values())].set_axis(list(levels), axis=1)
    common = complete_seeds(values)[0].index
    return values.loc[common], base.loc[common]


def decisive_first(study: Study, experiment: str, measures: Sequence[str]) -> list[str]:
    """The measures, after those that decide the experiment if these are not among them."""
    measures = with_endpoint(study.compared_by(experiment), measures)
    return with_endpoint(study.experiments[experiment].endpoint, measures)


def chosen_levels(study: Study) -> pd.DataFrame:
    """The level that a sweep's rule chooses by every measure, its interval, or why there is none.

    ``chosen`` is what the rule gives also where it is not identifiable, ``low`` and ``high`` are
    its 95 % interval over resampled seeds.
    """
    rows = []
    for experiment, spec in study.experiments.items():
        if spec.sweep is None or not study.levels(experiment):
            continue
        rule = spec.sweep.rule
        for measure in decisive_first(study, experiment, LEVEL_MEASURES):
            values, base = sweep_values(study, experiment, measure)
            rng = derive_generator("m2", experiment, rule, measure)
            choice = choose_level(rule, values, base, rng)
            why = not_identifiable(choice, list(values.columns))
            low, high = choice.interval() or (np.nan, np.nan)
            row: dict[str, Any] = {"experiment": experiment, "rule": rule, "measure": measure}
            row |= {"levels": ", ".join(f"{level:g}" for level in values.columns), "n": choice.n}
            row |= {"chosen": choice.level, "low": low, "high": high, "stability": choice.stability}
            row |= {"best_level": choice.best, "sign_changes": choice.changes}
            rows.append(row | {"identifiable": not why, "why_not": why})
    types = {"chosen": "float64", "best_level": "float64", "sign_changes": "Int64"}
    return pd.DataFrame(rows).astype(types)


def best_per_metric(study: Study) -> pd.DataFrame:
    """The best arm for every measure: of each leading experiment, of all that learn, and by costs.

    An arm with fewer seeds than its experiment is not ranked. Only runs that were alone on the
    machine are compared by time and memory; the judge's time, where the experiment varies how it
    scores. ``share_best``: share of resampled seeds in which it is the best, ``tied``: other arms
    with the same mean.
    """
    leads = [name for name in study.learning if study.experiments[name].leads]
    first = next(iter([*leads, *study.learning]), None)
    ranked = {arm for name in study.learning for arm in study.ranked(name)}
    scopes = [(name, study.ranked(name), study.experiments[name].endpoint) for name in leads]
    if first:
        arms = [arm for arm in study.all_arms() if arm in ranked]
        scopes.append((ALL, arms, study.experiments[first].endpoint))
    asked = [(name, arms, with_endpoint(end, BEST_MEASURES)) for name, arms, end in scopes]
    for name, spec in study.experiments.items():
        if spec.exclusive:
            judge = any(key.startswith(SCORING) for key in spec.factors.values())
            costs = ["step_seconds", "throughput", "memory_gb", "gpu_memory_gb"]
            asked.append((name, study.arms(name), costs + ["judge_seconds"] * judge))
    rows = [
        _best_row(study, scope, arms, measure)
        for scope, arms, measures in asked
        if len(arms) > 1
        for measure in measures
    ]
    columns = ["scope", "measure", "direction", "best", "n", "arms", "mean", "low", "high"]
    columns += ["share_best", "tied", "n_not_distinguishable", "not_distinguishable_from"]
    found = [row for row in rows if row]
    return pd.DataFrame(found, columns=[*columns, "without_values"])


def _best_row(study: Study, scope: str, arms: list[str], measure: str) -> dict[str, Any] | None:
    """The best of several arms; null where no two of them have the measure on common seeds."""
    # An experiment's own seeds only: others may start from other models.
    if scope == ALL:
        seeds = {arm: study.values.seed[study.values.arm == arm] for arm in arms}
        values = wide(study.values, measure, seeds)
    else:
        values = study.wide(scope, measure)[arms]
    rng = derive_generator("m2", "best", scope, measure)
    best = best_configuration(values, rng, higher_is_better=ORDERED[measure])
    if best is None or best["arms"] == 1:
        return None
    direction = "highest" if ORDERED[measure] else "lowest"
    return best | {"scope": scope, "measure": measure, "direction": direction}
