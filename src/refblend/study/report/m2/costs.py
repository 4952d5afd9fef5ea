"""What M2 measures besides learning: the scoring path, costs of arms, and overlapped scoring.

Two figures: time, memory and throughput by two factors, and the judge's time that is hidden.
"""

from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from refblend.errors import StudyError
from refblend.study.design.measures import label
from refblend.study.report.m2.study import (
    REPORT,
    SCORING,
    M2Study,
    level_name,
    measures_costs,
    varies_overlap,
)
from refblend.study.report.plotting import common as plot
from refblend.study.report.readable import cell, change, words
from refblend.study.report.registry import Tables
from refblend.study.report.summary import summarise

COSTS = ("memory_gb", "gpu_memory_gb", "step_seconds", "throughput", "judge_seconds")
SCORING_COLUMNS = [
    "experiment", "arm", "responses", "overlength", "nonzero_rate", "valid_rate", "fallback_rate",
    "auc", "auc_all", "ece", "tokens_per_response", "seconds_per_response",
]  # fmt: skip
HIDDEN_COLUMNS = ["pool", "serial", "overlapped", "seed", "step_serial", "step_overlapped"]
HIDDEN_COLUMNS += ["judge_serial"]

HOW = (
    "Marks: mean over seeds of a run's median over its steps after the first (memory: its peak); "
    "bars: Student's 95 % interval, an arrow head where it goes on beyond the panel; strokes: "
    "seeds. Jobs ran alone on the machine."
)
HIDDEN = (
    " Right: share of the judge's time that overlapping takes out of the step, (serial − "
    "overlapped step time) ÷ serial judge time. Beyond 0 and 1 is noise or more than the "
    "judge's own time."
)


@REPORT.table("scoring_path", shown=True)
def scoring_table(study: M2Study) -> pd.DataFrame:
    """Experiment D from the target ``scoring``; without rows where it was not measured.

    Raises:
        StudyError: the folder has no table ``robustness``, or it lacks a column.
    """
    if study.scoring is None:
        return pd.DataFrame(columns=SCORING_COLUMNS)
    path = study.scoring / "tables" / "robustness.csv"
    try:
        return pd.read_csv(path)[SCORING_COLUMNS]
    except (OSError, ValueError, KeyError) as error:
        raise StudyError(
            f"{path}: cannot be used ({error})",
            f"Make it again by `snakemake scoring --config scale={study.scale}`.",
        ) from None


@REPORT.table("{experiment}_costs", each=measures_costs)
def cost_table(study: M2Study, experiment: str) -> pd.DataFrame:
    """The factors of every arm, then a summary as of the other experiments."""
    family = study.family(experiment)
    table = summarise(family, lambda measure: study.wide(experiment, measure), COSTS)
    factors = study.experiments[experiment].factors.items()
    levels = {name: [study.resolved[a].setting(key) for a in table.arm] for name, key in factors}
    return pd.concat([pd.DataFrame(levels, index=table.index), table], axis=1)


def readable_costs(table: pd.DataFrame, factors: Sequence[str]) -> pd.DataFrame:
    """One row per arm: its factors, and every cost with its interval."""
    rows: dict[str, dict[str, Any]] = {}
    for row in table.to_dict("records"):
        cells = rows.setdefault(
            row["arm"], {"arm": row["arm"]} | {name: row[name] for name in factors}
        )
        cells["n"] = f"{row['n']} of {row['runs']}"
        cells[label(row["measure"])] = cell(row, "mean")
        if row["measure"] == "step_seconds" and pd.notna(row["diff"]):
            cells["step time against the baseline (s)"] = change(row)
    shown = pd.DataFrame(list(rows.values()), columns=None if rows else ["arm"])
    return shown.fillna("–")


@REPORT.table("{experiment}_hidden", each=varies_overlap)
def hidden_judge_time(study: M2Study, experiment: str) -> pd.DataFrame:
    """How much of the judge's time overlapping takes out of the step, for every pool and seed.

    The share is (step time serial − step time overlapped) ÷ judge time serial, all medians over
    steps, from two runs of one seed. It is measured, not assumed: noise can push it below 0, and
    above 1 where overlapping saves more than the judge's own time.

    Returns:
        :data:`HIDDEN_COLUMNS`, and ``hidden``: arms, seconds, and the share; a seed that one of
        the two lacks has a row with gaps.
    """
    step, judge = study.wide(experiment, "step_seconds"), study.wide(experiment, "judge_seconds")
    rows = []
    for pool, arms in by_pool(study, experiment).items():
        if set(arms) == {False, True}:
            serial, overlapped = arms[False], arms[True]
            for seed in step.index:
                times = (step[serial][seed], step[overlapped][seed], judge[serial][seed])
                rows.append((pool, serial, overlapped, seed, *times))
    table = pd.DataFrame(rows, columns=HIDDEN_COLUMNS)
    return table.assign(hidden=(table.step_serial - table.step_overlapped) / table.judge_serial)


def by_pool(study: M2Study, experiment: str) -> dict[str, dict[bool, str]]:
    """The judge's pool → whether it overlaps → the arm, in the order of the arms."""
    pools: dict[str, dict[bool, str]] = {}
    for name in study.arms(experiment):
        arm = study.resolved[name]
        pool = str(arm.setting(f"{SCORING}.resource_pool"))
        pools.setdefault(pool, {})[bool(arm.setting(f"{SCORING}.overlap"))] = name
    return pools


@REPORT.figure("{experiment}_costs", each=measures_costs)
def costs(study: M2Study, tables: Tables, experiment: str) -> plot.Drawn:
    """Costs by the experiment's factors, and the judge's time that overlapping hides."""
    spec, table = study.experiments[experiment], tables[f"{experiment}_costs"]
    hides = varies_overlap(spec)
    measures = ["step_seconds", "judge_seconds"]
    measures = measures if hides else ["step_seconds", "memory_gb", "throughput"]
    first, *others = spec.factors
    place, line = first, others[0] if others else None
    if line and not hides:
        place, line = line, place
    figure, axes = plot.panels(3, 3, 0.85 * plot.COLUMN)
    for axis, measure in zip(axes, measures, strict=False):
        part = table[(table.measure == measure) & table["mean"].notna()]
        _by_factors(axis, part, study.wide(experiment, measure), place, line)
        axis.set(xlabel=words(place), ylabel=label(measure))
    if hides:
        hidden = tables[f"{experiment}_hidden"].dropna(subset="hidden")
        pools = dict(iter(hidden.groupby("pool", sort=False)["hidden"]))
        plot.categories(axes[2], [level_name(str(pool)) for pool in pools], upright=True)
        marks = [_mark(i, seeds, colour="#333333") for i, seeds in enumerate(pools.values())]
        plot.draw_marks(axes[2], marks, upright=True)
        axes[2].set_ylabel("judge time hidden (share)")
    plot.one_legend(figure, axes)
    shown = "time of a training step and of the judge in it" if hides else "cost of a training step"
    return figure, (
        f"Experiment {experiment}: {shown}, by {words(place)}"
        + (f" and {words(line)} (colour). " if line else ". ")
        + f"{HOW}{HIDDEN if hides else ''} {study.origin(experiment)}"
    )


def _by_factors(
    axis: Axes, table: pd.DataFrame, values: pd.DataFrame, place: str, line: str | None
) -> None:
    """Arms at the place and in the colour of their two factors.

    The table has columns arm and the factors, ``values`` a row per seed and a column per arm.
    """
    places = list(dict.fromkeys(table[place]))
    lines = list(dict.fromkeys(table[line])) if line else [""]
    marks = []
    for number, level in enumerate(lines):
        part = table[table[line] == level] if line else table
        looks: dict[str, Any] = {
            "colour": plot.LEVEL_COLOURS[number % 3],
            "shape": "os^"[number % 3],
        }
        looks |= {"label": f"{words(line)} {level_name(str(level))}"} if line else {}
        shift = 0.2 * (number - (len(lines) - 1) / 2)
        mine = [
            _mark(places.index(row[place]) + shift, values[row["arm"]].dropna(), **looks)
            for row in part.to_dict("records")
        ]
        places_and_means = [mark.place for mark in mine], [mark.mean for mark in mine]
        axis.plot(*places_and_means, color=looks["colour"], linewidth=1)
        marks += mine
    plot.categories(axis, [level_name(str(level)) for level in places], upright=True)
    plot.draw_marks(axis, marks, upright=True, zero=False)


def _mark(place: float, seeds: pd.Series, **looks: Any) -> plot.Mark:
    return plot.mean_mark(place, seeds, 1.2, beside=0.07, **looks)
