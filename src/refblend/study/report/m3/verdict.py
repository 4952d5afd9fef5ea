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
from refblend.study.report.m3.study import REPORT, M3Study
from refblend.study.report.m3.tables import comparison_rows
from refblend.study.report.readable import change, interval_text
from refblend.study.report.registry import Tables

PLACEMENTS = {
    "per_token": "Q_t = q on every response token",
    "terminal": "Q_t = q on the last response token, 0 before",
    "per_token_mean": "Q_t = q/L on every response token",
}
WORDS = {1: "better", -1: "worse", 0: "undecided"}
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
            "difference": change(row),
            "simultaneous interval": interval_text(
                row["diff"], row["diff_family_low"], row["diff_family_high"], True
            ),
            "says": "not compared" if pd.isna(row["diff"]) else said(row),
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


def said(row: Mapping[Any, Any]) -> str:
    """The verdict in a word; one that is not decided may still be shown to be equivalent."""
    sign = decided(row)
    return "equivalent" if sign == 0 and row["verdict"] == "equivalent" else WORDS[sign]


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


def shrinkage(study: M3Study) -> dict[str, Any] | None:
    """The chosen blend's advantage in M2, and the smaller one that remains on fresh seeds.

    By the measure of the choice; null unless a blend was chosen and its advantage shrank.
    """
    chosen = next((row for row in study.record["candidates"] if row["recommended"]), None)
    fresh = study.late_difference()
    if not study.blends or chosen is None or fresh.n == 0 or fresh.estimate >= chosen["diff"]:
        return None
    return {"before": chosen["diff"], "fresh": fresh}
