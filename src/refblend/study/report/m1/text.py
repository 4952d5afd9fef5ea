"""The text of M1's report: its first page answers the question, the rest is the record."""

from typing import Any

from refblend.study.design.measures import label
from refblend.study.report.m1.study import REPORT, M1Study
from refblend.study.report.m1.verdict import answers
from refblend.study.report.registry import Tables
from refblend.study.report.shared import arm_counts, headline, overrides_text
from refblend.study.runs.incidents import facts


@REPORT.text
def text(study: M1Study, tables: Tables) -> dict[str, Any]:
    """The variables of the template."""
    summary = tables["arm_summary"]
    endpoint = study.experiment.endpoint
    return facts(study.collected) | {
        "experiment": study.experiment,
        "answers": answers(tables["verdict"]),
        "rows": summary[(summary.measure == endpoint) & (summary.n > 0)].to_dict("records"),
        "reached": "greedy test accuracy" if endpoint == "test_greedy" else label(endpoint),
        "warm_start": study.warm_start,
        "arms": [
            {"name": arm, "overrides": overrides_text(overrides)}
            | {"finished": arm_counts(study.collected, arm)}
            for arm, overrides in study.experiment.arms_of(study.scale).items()
        ],
    }


@REPORT.metrics
def metrics(study: M1Study, tables: Tables) -> dict[str, Any]:
    """Headline numbers for ``dvc metrics``: the first arm against the baseline."""
    summary = tables["arm_summary"]
    rows = summary[
        (summary.measure == study.experiment.endpoint) & (summary.baseline == study.baseline)
    ]
    records = rows.to_dict("records")
    return headline(study.collected, records[0] if records else None)
