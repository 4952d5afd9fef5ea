"""Sentences of the report of M3, made from numbers by rule: what came out, and what did not.

A comparison is a *result* when its simultaneous Student interval (95 % over the comparisons of one
measure) excludes 0, and a *negative result* otherwise, or when it points against the blend. The
same rule is applied to the contrasts that M2 stated before its runs.
"""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from refblend.study.report.m3.study import BASELINE, DEFAULTS, RECOMMENDED, M3Study
from refblend.study.report.readable import interval_text
from refblend.study.runs.incidents import incident_totals
from refblend.study.stats.statistics import Interval

HEADLINE = "test_greedy"
LABEL = "greedy test accuracy"
LISTED = ((RECOMMENDED, BASELINE), (RECOMMENDED, DEFAULTS), (DEFAULTS, BASELINE))


def comparison(confirmation: pd.DataFrame, arm: str, against: str) -> dict[str, Any] | None:
    """The row of a comparison by the headline measure; null where nothing was measured."""
    rows = confirmation[
        (confirmation.measure == HEADLINE)
        & (confirmation.arm == arm)
        & (confirmation.baseline == against)
        & confirmation["diff"].notna()
    ]
    return None if rows.empty else {str(k): v for k, v in rows.iloc[0].to_dict().items()}


def difference_text(row: Mapping[str, Any]) -> str:
    """``+0.012 [-0.010, +0.034] (n = 5)``."""
    bounds = interval_text(row["diff"], row["diff_low"], row["diff_high"], signed=True)
    return f"{bounds} (n = {row['pairs']})"


def decided(row: Mapping[str, Any]) -> bool:
    """Whether the simultaneous interval of a comparison excludes 0."""
    flag = row["interval_excludes_0"]
    return not pd.isna(flag) and (flag is True or str(flag) == "True")


def headline(study: M3Study, confirmation: pd.DataFrame) -> str:
    """The first paragraph."""
    runs, finished = study.collected.runs, study.collected.finished
    record = study.record
    chosen = (
        f"Recommended is arm `{record['arm']}` of M2"
        if study.blends
        else f"No blend of M2 reached `{record['baseline']}`: recommended is training without one"
    )
    parts = [
        f"{chosen}. {len(finished)} of {len(runs)} confirming runs finished, on seeds "
        f"{', '.join(map(str, study.seeds))}, which were not used to choose."
    ]
    for arm, against in LISTED:
        row = comparison(confirmation, arm, against)
        if row is None:
            parts.append(f"`{arm}` could not be compared with `{against}`.")
        else:
            parts.append(f"By {LABEL}, `{arm}` − `{against}` is {difference_text(row)}.")
    counts = incident_totals(study.collected)
    named = ", ".join(f"{name.replace('_', '-')} {count}" for name, count in counts.items())
    return " ".join([*parts, f"Incidents over all confirming runs: {named}."])


def results(study: M3Study, confirmation: pd.DataFrame) -> list[str]:
    """Comparisons that are decided, of M3 and of M2's stated contrasts."""
    found = []
    for arm, against in LISTED:
        row = comparison(confirmation, arm, against)
        if row is not None and decided(row):
            word = "above" if row["diff"] > 0 else "below"
            found.append(f"M3: `{arm}` is {word} `{against}` by {LABEL}: {difference_text(row)}.")
    found += [f"M2: {text}" for text, is_decided in contrast_texts(study) if is_decided]
    return found


def negative_results(study: M3Study, confirmation: pd.DataFrame) -> list[str]:
    """What could not be shown, failed, or points against the blend."""
    record = study.record
    found = []
    if record["level"] in ("none", "weak", "baseline"):
        found.append(f"The choice from M2 rests on little: {record['evidence']}")
    for arm, against in LISTED:
        row = comparison(confirmation, arm, against)
        if row is None:
            found.append(f"M3: `{arm}` could not be compared with `{against}`.")
        elif not decided(row):
            found.append(
                f"M3: `{arm}` is not distinguishable from `{against}` by {LABEL}: "
                f"{difference_text(row)}{_reach(row)}."
            )
        elif row["diff"] < 0:
            found.append(f"M3: `{arm}` is worse than `{against}`: {difference_text(row)}.")
    shrunk = shrinkage(study)
    if shrunk:
        found.append(shrunk)
    found += [f"M2: {text}" for text, is_decided in contrast_texts(study) if not is_decided]
    absent = study.collected.runs[study.collected.runs.status != "finished"]
    found += [
        f"`{row.arm}` seed {row.seed} is {row.status}" + (f": {row.reason}." if row.reason else ".")
        for row in absent.itertuples()
    ]
    return found


def _reach(row: Mapping[str, Any]) -> str:
    """Says so where no data of this size could have passed the sign-flip test."""
    if row["smallest_p_holm"] <= 0.05:
        return ""
    return (
        f"; the sign-flip test could not have told them apart with these seeds (smallest adjusted "
        f"p {row['smallest_p_holm']:.3g})"
    )


def shrinkage(study: M3Study) -> str:
    """How much of M2's advantage by the measure of the choice is left on fresh seeds.

    Empty unless a blend was chosen and its advantage is smaller on fresh seeds.
    """
    chosen = next((row for row in study.record["candidates"] if row["recommended"]), None)
    fresh = study.late_difference()
    if chosen is None or fresh.n == 0 or fresh.estimate >= chosen["diff"]:
        return ""
    return (
        f"By the measure of the choice ({study.record['measure']}) the advantage over "
        f"`{study.record['baseline']}` was {chosen['diff']:+.3f} in M2 and is "
        f"{_text(fresh)} on fresh seeds: the best of many is flattered by the choice."
    )


def _text(interval: Interval) -> str:
    bounds = interval_text(interval.estimate, interval.low, interval.high, signed=True)
    return f"{bounds} (n = {interval.n})"


def contrast_texts(study: M3Study) -> list[tuple[str, bool]]:
    """M2's stated contrasts by the headline measure, and whether each is decided."""
    table = study.m2_table("contrasts")
    if table is None or table.empty:
        return []
    rows = table[(table.measure == HEADLINE) & table["diff"].notna()]
    texts = []
    for row in rows.to_dict("records"):
        pair = f"`{row['arm']}` − `{row['against']}`"
        text = f"{row['contrast']} (experiment {row['experiment']}), {pair}: "
        plain = {str(key): value for key, value in row.items()} | {"pairs": int(row["pairs"])}
        texts.append((f"{text}{difference_text(plain)}.", decided(plain)))
    return texts
