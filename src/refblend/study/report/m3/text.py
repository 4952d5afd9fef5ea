"""The text of M3's report: the first page answers the question, the rest is the record."""

from pathlib import Path
from typing import Any

import pandas as pd

from refblend.files import read_json, sha256_file
from refblend.study.design.measures import MEASURES
from refblend.study.report.m3.study import REPORT, M3Study
from refblend.study.report.m3.tables import comparison_rows
from refblend.study.report.m3.verdict import blend_text, decided, shrinkage
from refblend.study.report.registry import Tables
from refblend.study.report.shared import arm_counts, headline, overrides_text
from refblend.study.runs.incidents import facts


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
            {"name": arm, "overrides": overrides_text(overrides)}
            | {"finished": arm_counts(study.collected, arm), "blend": blend_text(config)}
            for (arm, overrides), config in zip(
                roles.experiment.arms_of(study.inputs.scale).items(),
                study.configs.values(),
                strict=True,
            )
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
