"""What M2 measures besides learning: D's scoring path, E's lengths, F's placement of the judge."""

from typing import Any

import pandas as pd

from refblend.errors import StudyError
from refblend.study.report.m2.study import M2Study
from refblend.study.report.summary import empty_summary, family_of, summarise
from refblend.study.runs.run_measures import MEASURES

COSTS = ("memory_gb", "step_seconds", "throughput", "judge_seconds")

PHYSICAL = ("s", "GiB", "tokens", "tokens/s", "nats", "steps")
"""Units that a label shows; shares and rewards are plain numbers."""

SCORING = "algorithm.ref_quality_score.scoring"
FACTORS = {
    "E": {
        "length": "data.max_response_length",
        "max_model_len": "actor_rollout_ref.rollout.max_model_len",
    },
    "F": {"pool": f"{SCORING}.resource_pool", "overlap": f"{SCORING}.overlap"},
}
"""Knobs that an experiment varies, by the name of their column."""

SCORING_COLUMNS = [
    "experiment",
    "arm",
    "responses",
    "overlength",
    "nonzero_rate",
    "valid_rate",
    "fallback_rate",
    "auc",
    "auc_all",
    "ece",
    "tokens_per_response",
    "seconds_per_response",
]


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


def cost_table(study: M2Study, experiment: str) -> pd.DataFrame:
    """E or F: the knobs of every arm, then a summary as of the other experiments."""
    names = list(FACTORS[experiment])
    if not study.arms(experiment):
        return pd.concat([pd.DataFrame(columns=names), empty_summary()], axis=1)
    factors = arm_factors(study, experiment)
    table = summarise(
        family_of(study, experiment), lambda measure: study.wide(experiment, measure), COSTS
    )
    table = table.merge(factors, on="arm", how="left")
    return table[[*names, *[name for name in table if name not in names]]]


def arm_factors(study: M2Study, experiment: str) -> pd.DataFrame:
    """Columns arm and the knobs of :data:`FACTORS`, one row an arm."""
    rows: list[dict[str, Any]] = [
        {"arm": arm} | {name: study.setting(arm, key) for name, key in FACTORS[experiment].items()}
        for arm in study.arms(experiment)
    ]
    return pd.DataFrame(rows, columns=["arm", *FACTORS[experiment]])


def hidden_judge_time(study: M2Study) -> pd.DataFrame:
    """F: how much of the judge's time overlapping takes out of the step, for every pool and seed.

    The share is (step time serial − step time overlapped) ÷ judge time serial, all medians over
    steps, from two runs of one seed. It is measured, not assumed: noise can carry it below 0, and
    above 1 where overlapping saves more than the judge's own time.

    Returns:
        Columns pool, serial, overlapped (arms), seed, step_serial, step_overlapped, judge_serial
        (seconds), hidden (share); a seed that one of the two lacks has a row with gaps.
    """
    columns = ["pool", "serial", "overlapped", "seed", "step_serial", "step_overlapped"]
    columns += ["judge_serial", "hidden"]
    if not study.arms("F"):
        return pd.DataFrame(columns=columns)
    step, judge = study.wide("F", "step_seconds"), study.wide("F", "judge_seconds")
    parts = []
    for pool, arms in arm_factors(study, "F").groupby("pool", sort=False):
        serial, overlapped = (arms[arms.overlap == flag]["arm"] for flag in (False, True))
        if len(serial) != 1 or len(overlapped) != 1:
            continue
        one, other = serial.iloc[0], overlapped.iloc[0]
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
    return pd.concat(parts, ignore_index=True)[columns] if parts else pd.DataFrame(columns=columns)


def label(measure: str) -> str:
    """Label of a measure, with its unit where a reader needs one."""
    known = MEASURES[measure]
    return f"{known.label} ({known.unit})" if known.unit in PHYSICAL else known.label
