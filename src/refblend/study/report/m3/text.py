"""The text of M3's report: the first page answers the question, the rest is the record."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from refblend.files import read_json, sha256_file
from refblend.study.report.m3.study import REPORT, M3Study
from refblend.study.report.m3.tables import comparison_rows
from refblend.study.report.m3.verdict import (
    blend_text,
    certainty,
    confirmed,
    decided,
    difference_text,
    label,
    recommendation,
)
from refblend.study.report.registry import Tables
from refblend.study.report.shared import (
    arm_counts,
    headline,
    mean_accuracy,
    mean_blend,
    overrides_text,
)
from refblend.study.runs.incidents import incident_text
from refblend.study.runs.origin import facts


@REPORT.text
def text(study: M3Study, tables: Tables) -> dict[str, Any]:
    """The variables of the template."""
    rows = comparison_rows(study, tables)
    roles = study.confirmation
    return facts(study.collected) | {
        "experiment": roles.experiment,
        "roles": roles,
        "recommendation": recommendation(study),
        "confirmed": confirmed(study, rows),
        "certainty": certainty(study),
        "incident_text": incident_text(study.collected),
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
        "results": results(study, rows),
        "open": open_questions(study, rows),
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


def results(study: M3Study, rows: pd.DataFrame) -> list[str]:
    """Comparisons that are decided, of M3 and of M2's stated contrasts."""
    found = [
        f"M3: `{row['arm']}` is {'above' if decided(row) > 0 else 'below'} `{row['baseline']}` by "
        f"{label(study)}: {difference_text(row)}."
        for row in rows.to_dict("records")
        if decided(row)
    ]
    return found + [contrast_text(row) for row in contrasts(study) if decided(row)]


def open_questions(study: M3Study, rows: pd.DataFrame) -> list[str]:
    """What could not be shown or failed, of M3 and of M2's stated contrasts."""
    found = []
    for row in rows.to_dict("records"):
        pair = f"M3: `{row['arm']}` and `{row['baseline']}`"
        if pd.isna(row["diff"]):
            found.append(f"{pair} could not be compared by {label(study)}.")
        elif not decided(row):
            found.append(
                f"{pair} are not distinguishable by {label(study)}: {difference_text(row)}"
                f"{_reach(row)}."
            )
    found += [contrast_text(row) for row in contrasts(study) if not decided(row)]
    absent = study.collected.runs[study.collected.runs.status != "finished"]
    found += [
        f"`{row.arm}` seed {row.seed} is {row.status}" + (f": {row.reason}." if row.reason else ".")
        for row in absent.itertuples()
    ]
    return found


def _reach(row: Mapping[Any, Any]) -> str:
    """A note if no data of this size could have passed the sign-flip test."""
    if row["smallest_p_holm"] <= 0.05:
        return ""
    return (
        "; with these seeds the sign-flip test cannot tell them apart (smallest adjusted p "
        f"{row['smallest_p_holm']:.3g})"
    )


def contrasts(study: M3Study) -> list[dict[Any, Any]]:
    """M2's stated contrasts by the endpoint, those without a difference left out."""
    table = study.m2_table("contrasts")
    if table is None or table.empty:
        return []
    endpoint = study.confirmation.endpoint
    return table[(table.measure == endpoint) & table["diff"].notna()].to_dict("records")


def contrast_text(row: Mapping[Any, Any]) -> str:
    """A contrast of M2 with its numbers."""
    return (
        f"M2: {row['contrast']} (experiment {row['experiment']}), `{row['arm']}` − "
        f"`{row['against']}`: {difference_text(row)}."
    )


@REPORT.metrics
def metrics(study: M3Study, tables: Tables) -> dict[str, Any]:
    """Headline numbers for ``dvc metrics``."""
    (row,) = comparison_rows(study, tables).head(1).to_dict("records")
    return headline(study.collected, {str(name): value for name, value in row.items()})


@REPORT.plot("val_accuracy")
def val_accuracy(study: M3Study) -> pd.DataFrame:
    """Validation accuracy of every arm."""
    return mean_accuracy(study.collected)


@REPORT.plot("weight_entropy")
def weight_entropy(study: M3Study) -> pd.DataFrame:
    """Weight against entropy of every arm."""
    return mean_blend(study.collected)
