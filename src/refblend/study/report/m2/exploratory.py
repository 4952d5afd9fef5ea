"""What M2 tells of experiments beyond their verdicts: how fast arms learn, and whether a score on
every token is a dose and a reward for length. Exploratory: nothing here is adjusted or decided."""

from typing import Any

import pandas as pd

from refblend.study.design.arms import SCORE
from refblend.study.design.spec import ExperimentSpec
from refblend.study.report.m2.responses import truncated
from refblend.study.report.m2.runs import summary_rows
from refblend.study.report.m2.study import REPORT, M2Study
from refblend.study.report.registry import Tables
from refblend.study.report.speed import (
    OF_SPEED,
    SPEED_COLUMNS,
    readable_speed,
    speed_labels,
    speed_rows,
)
from refblend.study.runs.curves import LENGTH


def asks_speed(spec: ExperimentSpec) -> bool:
    """Whether a contrast is decided by how fast its arms learn."""
    return bool(speed_labels(spec))


@REPORT.table("{experiment}_speed", each=asks_speed)
def speed(study: M2Study, experiment: str) -> pd.DataFrame:
    """Every arm against its baseline, and the pairs of contrasts by speed, by :data:`..SPEED`.

    A pair is compared once for each warm start, which is a column where there are several.
    """
    spec, seeds = study.experiments[experiment], study.seeds(experiment)
    pairs = dict.fromkeys(study.family(experiment).pairs)
    for contrast in spec.contrasts:
        if spec.endpoint_of(contrast).startswith(OF_SPEED):
            pairs |= dict.fromkeys(spec.pairs_of(contrast, study.scale))
    own: dict[str, dict[str, list[int]]] = {}
    for arm, planned in seeds.items():
        for start, used in study.starts.get(arm, {}).items():
            if both := sorted(set(used) & set(planned)):
                own.setdefault(start, {name: [] for name in seeds})[arm] = both
    parts = []
    for start, of_start in own.items():
        part = speed_rows(study.values, pairs, of_start)
        parts.append(part.assign(warm_start=start) if len(own) > 1 else part)
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=[*SPEED_COLUMNS])


@REPORT.table("{experiment}_speed_main", shown=True, each=asks_speed)
def speed_for_readers(tables: Tables, experiment: str) -> pd.DataFrame:
    """:func:`speed` for readers: a row for each pair and warm start."""
    table = tables[f"{experiment}_speed"]
    if "warm_start" not in table:
        return readable_speed(table)
    parts = []
    for start, part in table.groupby("warm_start", sort=False):
        shown = readable_speed(part)
        shown.insert(1, "warm start", start)
        parts.append(shown)
    return pd.concat(parts, ignore_index=True)


def doses(study: M2Study, tables: Tables, experiment: str) -> dict[str, Any] | None:
    """What an experiment that chooses the score's placement has of doses and lengths.

    Null where no arm has the whole score on every token. ``arms``: these, each with its mean length
    at the first and the last step; ``lengths``: of all arms, the difference in length to the
    baseline at the last step, and the shares of greedy test answers that were cut off; ``equal``:
    experiments that place the score on every token in equal dose.
    """
    spec = study.experiments[experiment]
    if spec.choice is None or spec.factors[spec.choice] != f"{SCORE}.placement":
        return None
    whole = [arm for arm in study.treated(experiment) if sums_to_length(study, arm)]
    rows = [row for row in summary_rows(tables, experiment, "length_end") if pd.notna(row["diff"])]
    lengths = study.metric(experiment, LENGTH)
    arms = []
    for arm in whole:
        means = lengths[lengths.arm == arm].groupby("step")["value"].mean()
        if len(means):
            arms.append({"arm": arm, "first": means.iloc[0], "last": means.iloc[-1]})
    if not arms:
        return None
    for row in rows:
        names = {"cut": row["arm"], "cut_of_baseline": row["baseline"]}
        row |= {key: truncated(study, experiment, arm) for key, arm in names.items()}
    equal = [
        name
        for name in study.learning
        if any(study.resolved[arm].setting(PER_LENGTH) for arm in study.treated(name))
    ]
    return {"arms": arms, "lengths": rows, "equal": equal}


PER_LENGTH = f"{SCORE}.weight_per_length"


def sums_to_length(study: M2Study, arm: str) -> bool:
    """Whether an arm has the whole score on every token."""
    found = study.resolved[arm]
    return found.placement == "per_token" and not found.setting(PER_LENGTH)
