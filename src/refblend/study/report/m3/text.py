"""M3's report: what is recommended, how sure that is, and whether fresh seeds confirm it.

A comparison is *decided* when its simultaneous Student interval (95 % over the comparisons of one
measure) excludes 0. The recommendation is confirmed when the recommended arm is decidedly above the
baseline by the experiment's endpoint, refuted when it is decidedly below, and open otherwise.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from refblend.config.root import RefblendConfig
from refblend.files import read_json, sha256_file
from refblend.ppo.weights import STRATEGIES
from refblend.study.design.measures import MEASURES
from refblend.study.report.m3.study import REPORT, M3Study, comparison_rows
from refblend.study.report.readable import cell, change
from refblend.study.report.registry import Tables
from refblend.study.report.shared import arm_row, headline
from refblend.study.runs.incidents import facts

PLACEMENTS = {
    "per_token": "Q_t = q on every response token",
    "terminal": "Q_t = q on the last response token, 0 before",
    "per_token_mean": "Q_t = q/L on every response token",
}
WORDS = {1: "better", -1: "worse", 0: "undecided"}
"""The outcomes of a comparison: decided upwards, decided downwards, not decided."""


@REPORT.text
def text(study: M3Study, tables: Tables) -> dict[str, Any]:
    """The variables of the template."""
    rows: list[dict[Any, Any]] = comparison_rows(study, tables).to_dict("records")
    roles, stated = study.confirmation, contrasts(study)
    return facts(study.collected) | {
        "experiment": roles.experiment,
        "roles": roles,
        "label": MEASURES[roles.endpoint].label,
        "blend": blend_text(study.recommended) if study.blends else None,
        "first": rows[0],
        "confirmed": decided(rows[0]),
        "shrunk": shrinkage(study),
        "arms": [
            arm_row(study.collected, arm, overrides) | {"blend": blend_text(study.configs[arm])}
            for arm, overrides in roles.experiment.arms_of(study.inputs.scale).items()
        ],
        "estimator": study.recommended.algorithm.adv_estimator,
        "record": study.record,
        "overlay": study.overlay.read_text(encoding="utf-8").rstrip(),
        "overlay_name": study.overlay.name,
        "overlay_hash": sha256_file(study.overlay)[:16],
        "m1": m1_text(study.inputs.results / "m1"),
        "decided": [row for row in rows if decided(row)],
        "open": [row for row in rows if not decided(row)],
        "decided_before": [row for row in stated if decided(row)],
        "open_before": [row for row in stated if not decided(row)],
    }


def m1_text(folder: Path) -> str:
    """One sentence on M1 from its ``metrics.json``; says so where there is none."""
    path = folder / "metrics.json"
    if not path.exists():
        return "M1 has no record here."
    numbers = read_json(path)
    finished = numbers["runs"] - numbers["missing"]
    text = f"{finished} of {numbers['runs']} runs finished with {numbers['incidents']} incidents"
    rules = pd.read_csv(folder / "tables" / "verdict.csv").holds
    return f"{text}; {int((rules == 'yes').sum())} of {len(rules)} rules of stability were kept."


def contrasts(study: M3Study) -> list[dict[Any, Any]]:
    """M2's stated contrasts by the endpoint, those without a difference left out."""
    table = study.m2_table("contrasts")
    if table is None or table.empty:
        return []
    endpoint = study.confirmation.endpoint
    return table[(table.measure == endpoint) & table["diff"].notna()].to_dict("records")


@REPORT.metrics
def metrics(study: M3Study, tables: Tables) -> dict[str, Any]:
    """Headline numbers for ``dvc metrics``."""
    (row,) = comparison_rows(study, tables).head(1).to_dict("records")
    return headline(study.collected, {str(name): value for name, value in row.items()})


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
            "simultaneous interval": cell(row, "diff", "diff_family_", signed=True),
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
