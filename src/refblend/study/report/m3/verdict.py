"""M3's answer: what is recommended, how sure that is, and whether fresh seeds confirm it.

A comparison is *decided* when its simultaneous Student interval (95 % over the comparisons of one
measure) excludes 0. The recommendation is confirmed when the recommended arm is decidedly above the
baseline by the experiment's endpoint, refuted when it is decidedly below, and open otherwise.
"""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from refblend.config.root import RefblendConfig
from refblend.ppo.weights import STRATEGIES
from refblend.study.design.measures import MEASURES
from refblend.study.report.m3.study import REPORT, M3Study
from refblend.study.report.m3.tables import comparison_rows
from refblend.study.report.readable import interval_text
from refblend.study.report.registry import Tables

PLACEMENTS = {
    "per_token": "Q_t = q on every response token",
    "terminal": "Q_t = q on the last response token, 0 before",
    "per_token_mean": "Q_t = q/L on every response token",
}
WORDS = {1: "better", -1: "worse", 0: "not distinguishable"}
"""The outcomes of a comparison: decided upwards, decided downwards, not decided."""


@REPORT.table("verdict", shown=True)
def verdict(study: M3Study, tables: Tables) -> pd.DataFrame:
    """One row per comparison by the endpoint: its intervals and the outcome."""
    rows = [
        {
            "arm": row["arm"],
            "against": row["baseline"],
            "measure": study.confirmation.endpoint,
            "pairs": row["pairs"],
            "difference": interval_text(row["diff"], row["diff_low"], row["diff_high"], True),
            "simultaneous interval": interval_text(
                row["diff"], row["diff_family_low"], row["diff_family_high"], True
            ),
            "says": "not compared" if pd.isna(row["diff"]) else WORDS[decided(row)],
        }
        for row in comparison_rows(study, tables).to_dict("records")
    ]
    return pd.DataFrame(rows).astype({"pairs": "Int64"})


def decided(row: Mapping[Any, Any]) -> int:
    """Sign of a difference whose simultaneous interval excludes 0, otherwise 0.

    Args:
        row: of M2's or M3's summary; tables read from CSV contain text or booleans.
    """
    flag = row["interval_excludes_0"]
    if pd.isna(flag) or str(flag) != "True":
        return 0
    return 1 if row["diff"] > 0 else -1


def difference_text(row: Mapping[Any, Any]) -> str:
    """``+0.012 [-0.010, +0.034] (n = 5)``."""
    bounds = interval_text(row["diff"], row["diff_low"], row["diff_high"], signed=True)
    return f"{bounds} (n = {int(row['pairs'])})"


def label(study: M3Study) -> str:
    """The endpoint in words."""
    return MEASURES[study.confirmation.endpoint].label


def blend_text(config: RefblendConfig) -> str:
    """A configuration's blend with its formula and the values of its parameters."""
    blend = config.algorithm.ref_quality_score
    if not blend.enable:
        return "no blend, w = 0"
    strategy = STRATEGIES[blend.strategy]
    values = ", ".join(f"`{name}` {getattr(blend, name)}" for name in strategy.parameters)
    return (
        f"strategy `{strategy.name}`, {strategy.formula}, with {values}; placement "
        f"`{blend.placement}`, {PLACEMENTS[blend.placement]}"
    )


def recommendation(study: M3Study) -> str:
    """What is recommended."""
    record = study.record
    if not study.blends:
        return (
            f"**Recommended: no blending.** No blend of M2 reached `{record['baseline']}` by the "
            "measure of the choice."
        )
    return f"**Recommended: arm `{record['arm']}` of M2**: {blend_text(study.recommended)}."


def confirmed(study: M3Study, rows: pd.DataFrame) -> str:
    """Whether fresh seeds confirm it, by the first comparison of the recommended arm.

    Args:
        study: the confirming runs.
        rows: as :func:`refblend.study.report.m3.tables.comparison_rows` gives them.
    """
    roles = study.confirmation
    pair = f"`{roles.recommended}` − `{roles.baseline}`"
    rows = rows[(rows.arm == roles.recommended) & (rows.baseline == roles.baseline)]
    row = rows.iloc[0].to_dict()
    if pd.isna(row["diff"]):
        return f"**Not tested**: no seed has both arms of {pair} by {label(study)}."
    answer = {1: "**Confirmed**", -1: "**Refuted**", 0: "**Neither confirmed nor refuted**"}
    text = f"{answer[decided(row)]} on fresh seeds: {pair} is {difference_text(row)}"
    if decided(row) == 0:
        text += ", and the simultaneous interval does not exclude 0"
    same = "" if study.blends else " Both arms train without a blend, so no difference is expected."
    return f"{text}, by {label(study)}.{same}"


def certainty(study: M3Study) -> list[str]:
    """The certainty of the choice on the seeds that made it, and what remains on fresh ones."""
    record = study.record
    texts = [str(record["evidence"])]
    if record["stability"] is not None:
        texts.append(
            f"The rule chooses the same arm in {record['stability']:.0%} of the paired bootstrap "
            "resamples of M2's seeds."
        )
    shrunk = shrinkage(study)
    return [*texts, shrunk] if shrunk else texts


def shrinkage(study: M3Study) -> str:
    """The part of M2's advantage, by the measure of the choice, that remains on fresh seeds.

    Empty unless a blend was chosen and its advantage is smaller on fresh seeds.
    """
    record = study.record
    chosen = next((row for row in record["candidates"] if row["recommended"]), None)
    fresh = study.late_difference()
    if chosen is None or fresh.n == 0 or fresh.estimate >= chosen["diff"]:
        return ""
    left = interval_text(fresh.estimate, fresh.low, fresh.high, signed=True)
    return (
        f"By the measure of the choice ({record['measure']}) the advantage over "
        f"`{record['baseline']}` was {chosen['diff']:+.3f} in M2 and is {left} (n = {fresh.n}) on "
        "fresh seeds: the best of many arms is flattered by the choice."
    )
