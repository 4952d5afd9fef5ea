"""What M2 measures besides learning: the scoring path, costs of arms, and overlapped scoring."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from refblend.errors import StudyError
from refblend.study.design.measures import label
from refblend.study.report.m2.study import (
    REPORT,
    SCORING,
    M2Study,
    measures_costs,
    varies_overlap,
)
from refblend.study.report.readable import interval_text
from refblend.study.report.summary import summarise

COSTS = ("memory_gb", "gpu_memory_gb", "step_seconds", "throughput", "judge_seconds")
SCORING_COLUMNS = [
    "experiment", "arm", "responses", "overlength", "nonzero_rate", "valid_rate", "fallback_rate",
    "auc", "auc_all", "ece", "tokens_per_response", "seconds_per_response",
]  # fmt: skip
HIDDEN_COLUMNS = ["pool", "serial", "overlapped", "seed", "step_serial", "step_overlapped"]
HIDDEN_COLUMNS += ["judge_serial", "hidden"]


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
    names = list(study.experiments[experiment].factors)
    family = study.family(experiment)
    table = summarise(family, lambda measure: study.wide(experiment, measure), COSTS)
    table = table.merge(arm_factors(study, experiment), on="arm", how="left")
    return table[[*names, *[name for name in table if name not in names]]]


def arm_factors(study: M2Study, experiment: str) -> pd.DataFrame:
    """Columns arm and the experiment's factors, one row per arm."""
    factors = study.experiments[experiment].factors
    rows = [
        {"arm": arm} | {name: study.resolved[arm].setting(key) for name, key in factors.items()}
        for arm in study.arms(experiment)
    ]
    return pd.DataFrame(rows, columns=["arm", *factors])


def readable_costs(table: pd.DataFrame, factors: Sequence[str]) -> pd.DataFrame:
    """One row per arm: its factors, and every cost with its interval."""
    rows: dict[str, dict[str, Any]] = {}
    for row in table.to_dict("records"):
        cells = rows.setdefault(
            row["arm"], {"arm": row["arm"]} | {name: row[name] for name in factors}
        )
        cells["n"] = f"{row['n']} of {row['runs']}"
        cells[label(row["measure"])] = interval_text(row["mean"], row["low"], row["high"])
        if row["measure"] == "step_seconds" and pd.notna(row["diff"]):
            cells["step time against the baseline (s)"] = interval_text(
                row["diff"], row["diff_low"], row["diff_high"], signed=True
            )
    shown = pd.DataFrame(list(rows.values()), columns=None if rows else ["arm"])
    return shown.fillna("–")


@REPORT.table("{experiment}_hidden", each=varies_overlap)
def hidden_judge_time(study: M2Study, experiment: str) -> pd.DataFrame:
    """How much of the judge's time overlapping takes out of the step, for every pool and seed.

    The share is (step time serial − step time overlapped) ÷ judge time serial, all medians over
    steps, from two runs of one seed. It is measured, not assumed: noise can push it below 0, and
    above 1 where overlapping saves more than the judge's own time.

    Returns:
        :data:`HIDDEN_COLUMNS`: arms, seconds, and the share; a seed that one of the two lacks has
        a row with gaps.
    """
    step, judge = study.wide(experiment, "step_seconds"), study.wide(experiment, "judge_seconds")
    parts = []
    for pool, arms in by_pool(study, experiment).items():
        if set(arms) != {False, True}:
            continue
        one, other = arms[False], arms[True]
        part = pd.DataFrame(
            {
                "pool": pool,
                "serial": one,
                "overlapped": other,
                "seed": step.index,
                "step_serial": step[one].to_numpy(),
                "step_overlapped": step[other].to_numpy(),
                "judge_serial": judge[one].to_numpy(),
            }
        )
        saved = part["step_serial"] - part["step_overlapped"]
        parts.append(part.assign(hidden=saved / part["judge_serial"]))
    empty = pd.DataFrame(columns=HIDDEN_COLUMNS)
    return pd.concat(parts, ignore_index=True)[HIDDEN_COLUMNS] if parts else empty


def by_pool(study: M2Study, experiment: str) -> dict[str, dict[bool, str]]:
    """The judge's pool → whether it overlaps → the arm, in the order of the arms."""
    pools: dict[str, dict[bool, str]] = {}
    for name in study.arms(experiment):
        arm = study.resolved[name]
        pool = str(arm.setting(f"{SCORING}.resource_pool"))
        pools.setdefault(pool, {})[bool(arm.setting(f"{SCORING}.overlap"))] = name
    return pools
