"""M1's report: is blending as stable as the baseline? By rules stated before the runs.

An arm is *stable* if all rules hold for it. A rule on a difference (:data:`DIFFERENCES`) is broken
only if Student's simultaneous 95 % interval of the paired difference lies wholly on the bad side of
0: with few seeds only large differences can break it. A rule whose interval says nothing (one pair
of seeds, or equal differences on the bad side) is undecided, not kept, and so is one on an accuracy
whose mean is worse by more than the experiment's margin.
"""

from typing import Any

import pandas as pd

from refblend.study.design.measures import MEASURES, label
from refblend.study.report.m1.study import REPORT, M1Study
from refblend.study.report.readable import cell, number
from refblend.study.report.registry import Tables
from refblend.study.report.shared import arm_counts, arm_row, headline
from refblend.study.runs.incidents import facts, incident_counts

FALL = "val_drawdown"
"""The largest fall of the validation accuracy: a share like the endpoint, with the same margin."""
INCIDENTS = ("overlength", "oom", "nonfinite")
"""Incidents that no run may have; invalid scores of the judge are counted elsewhere."""
DIFFERENCES = {
    "loss_spikes": ("spikes of the loss are not more frequent", -1),
    "grad_spikes": ("spikes of the gradient norm are not more frequent", -1),
    FALL: ("validation accuracy does not fall deeper", -1),
}
"""Measure → rule, and the sign of a difference that is good; the endpoint's rule comes last."""
OPPOSITES = {
    " is not ": " is ",
    " are not ": " are ",
    " does not fall ": " falls ",
    "no run is ": "a run is ",
    " never collapses": " collapses",
}
"""How the rules read that may be broken."""


@REPORT.text
def text(study: M1Study, tables: Tables) -> dict[str, Any]:
    """The variables of the template."""
    summary = tables["arm_summary"]
    endpoint = study.experiment.endpoint
    return facts(study.collected) | {
        "experiment": study.experiment,
        "answers": answers(tables["verdict"]),
        "unclear": bool((tables["verdict"].holds == "undecided").any()),
        "rows": summary[(summary.measure == endpoint) & (summary.n > 0)].to_dict("records"),
        "reached": "greedy test accuracy" if endpoint == "test_greedy" else label(endpoint),
        "warm_start": study.warm_start,
        "warm_start_on": study.warm_start_on,
        "arms": [
            arm_row(study.collected, *arm) for arm in study.experiment.arms_of(study.scale).items()
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


@REPORT.table("verdict", shown=True)
def verdict(study: M1Study, tables: Tables) -> pd.DataFrame:
    """One row per rule and arm: the numbers it uses, and whether it holds."""
    rows: list[dict[str, Any]] = []
    for arm in study.treated:
        rows += [_finished(study, arm), _no_incidents(study, arm), _no_collapse(study, arm)]
        rows += [
            _difference(study, tables["arm_summary"], arm, name)
            for name in dict.fromkeys((*DIFFERENCES, study.experiment.endpoint))
        ]
    return pd.DataFrame(rows, columns=["arm", "rule", "value", "baseline", "difference", "holds"])


def answers(table: pd.DataFrame) -> list[str]:
    """One sentence per arm: yes, no, or undecided, with the rules that decide."""
    sentences = []
    for arm, part in table.groupby("arm", sort=False):
        broken = part.rule[part.holds == "no"]
        unclear = part.rule[part.holds == "undecided"]
        if len(broken):
            rules = "rule" if len(broken) == 1 else "rules"
            answer = f"**No**: `{arm}` breaks the {rules} that {'; that '.join(broken)}."
        elif len(unclear):
            open_ = ", or that ".join(map(opposite, unclear))
            answer = f"**Undecided**: the runs of `{arm}` cannot rule out that {open_}."
        else:
            answer = f"**Yes**, `{arm}` keeps all {len(part)} rules."
        sentences.append(answer)
    return sentences


def opposite(rule: str) -> str:
    """A rule turned round: that it is broken."""
    for kept, broken in OPPOSITES.items():
        if kept in rule:
            return rule.replace(kept, broken)
    return f"it does not hold that {rule}"


def _finished(study: M1Study, arm: str) -> dict[str, Any]:
    runs = study.collected.runs
    whole = bool((runs[runs.arm == arm].status == "finished").all())
    value, base = (arm_counts(study.collected, name) for name in (arm, study.baseline))
    return _row(arm, "every run finishes", value, base, whole)


def _no_incidents(study: M1Study, arm: str) -> dict[str, Any]:
    counts = incident_counts(study.collected.metrics, study.collected.runs)
    counts = counts.set_index("arm")[list(INCIDENTS)]
    totals = [
        counts.loc[[name]].sum(min_count=1).sum(min_count=1) for name in (arm, study.baseline)
    ]
    value, other = ("–" if pd.isna(count) else str(int(count)) for count in totals)
    holds = None if pd.isna(totals[0]) else bool(totals[0] == 0)
    return _row(arm, "no run is overlength, out of memory or non-finite", value, other, holds)


def _no_collapse(study: M1Study, arm: str) -> dict[str, Any]:
    table = study.wide("entropy_collapse")
    mine, base = table[arm].dropna(), table[study.baseline].dropna()
    value, other = (f"{int(part.sum())} of {len(part)}" for part in (mine, base))
    holds = bool(mine.sum() == 0) if len(mine) else None
    return _row(arm, "the entropy never collapses", value, other, holds)


def _endpoint_rule(measure: str) -> tuple[str, int]:
    if measure == "test_greedy":
        return "greedy test accuracy is not lower", 1
    if MEASURES[measure].higher_is_better is False:
        return f"{label(measure)} is not higher", -1
    return f"{label(measure)} is not lower", 1


def _difference(study: M1Study, summary: pd.DataFrame, arm: str, measure: str) -> dict[str, Any]:
    """A rule on a paired difference to the baseline."""
    rule, good = DIFFERENCES.get(measure) or _endpoint_rule(measure)
    rows = summary[summary.measure == measure].set_index("arm")
    if arm not in rows.index or pd.isna(rows.loc[arm, "diff"]):
        return _row(arm, rule, "–", "–", None)
    row = rows.loc[arm]
    excludes = row["interval_excludes_0"]  # missing: one pair, or all differences are equal
    worse = -good * row["diff"]
    holds = True if worse <= 0 else None if pd.isna(excludes) else not excludes
    if holds and measure in (study.experiment.endpoint, FALL) and worse > study.experiment.margin:
        holds = None
    value, base = number(row["mean"]), number(rows.loc[study.baseline, "mean"])
    shown = cell(row.to_dict(), "diff", "diff_family_", signed=True)
    return _row(arm, rule, value, base, holds) | {"difference": shown}


def _row(arm: str, rule: str, value: str, baseline: str, holds: bool | None) -> dict[str, Any]:
    said = "undecided" if holds is None else "yes" if holds else "no"
    return {"arm": arm, "rule": rule, "value": value, "baseline": baseline, "holds": said}
