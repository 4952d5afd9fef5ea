"""The paragraphs below a section's answer: all arms, what the tests can say, every level."""

import pandas as pd

from refblend.study.design.measures import label
from refblend.study.report.m2.study import M2Study
from refblend.study.report.m2.summaries import endpoint_rows
from refblend.study.report.m2.words import (
    DETERMINED,
    Row,
    Tables,
    difference,
    level_text,
    names,
    probability,
)


def learning_paragraph(study: M2Study, tables: Tables, experiment: str) -> str:
    """All arms of an experiment against their baselines, and what the tests can say."""
    rows = endpoint_rows(study, tables, experiment)
    compared = sorted((r for r in rows if pd.notna(r["diff"])), key=lambda row: -row["diff"])
    if not compared:
        return "No arm has a seed in common with its baseline." if rows else ""
    above = sum(row["diff"] > 0 for row in compared)
    below = sum(row["diff"] < 0 for row in compared)
    text = [
        f"Seed by seed against the baseline, {above} of {len(compared)} arms have a higher mean"
        f" {label(study.experiments[experiment].endpoint)}, {below} a lower one.",
        f"The largest difference: `{compared[0]['arm']}` with {difference(compared[0])},"
        f" probability of improvement {probability(compared[0])}.",
    ]
    if len(compared) > 1:
        text.append(f"The smallest: `{compared[-1]['arm']}` with {difference(compared[-1])}.")
    return " ".join([*text, verdicts(compared)])


def verdicts(compared: list[Row]) -> str:
    """How many comparisons the stated rule decides, and which intervals exclude 0."""
    decided = {
        verdict: [row["arm"] for row in compared if row["verdict"] == verdict]
        for verdict in ("higher", "lower")
    }
    reachable = min(row["smallest_p_holm"] for row in compared)
    text = "By the rule (bootstrap interval and Holm-adjusted exact test): higher "
    text += f"{names(decided['higher'])}; lower {names(decided['lower'])}."
    if reachable > DETERMINED:
        text += f" The smallest adjusted p that these seeds can give is {reachable:.3g}, so the "
        text += "test could not have reached 0.05 whatever the effect; read the intervals."
    beyond = [row["arm"] for row in compared if row["interval_excludes_0"] is True]
    undecided = sum(pd.isna(row["interval_excludes_0"]) for row in compared)
    text += f" Student's simultaneous interval (Bonferroni over {len(compared)} comparisons)"
    text += f" excludes 0 for: {names(beyond)}."
    if undecided:
        text += f" {undecided} of them {'have' if undecided > 1 else 'has'} no such interval"
        text += " (one pair, or equal differences)."
    return text


def level_paragraph(tables: Tables, experiment: str) -> str:
    """The knee or the pivot of every measure, or why it is not identifiable; empty elsewhere."""
    table = tables["knee_pivot"]
    rows = table[table.experiment == experiment].to_dict("records")
    if not rows:
        return ""
    parts = [f"{label(row['measure'])}: {level_text(row)}" for row in rows]
    rule = f"The {rows[0]['rule']} of every measure by the stated rule"
    rule += " (`docs/explanation/statistics.md`). "
    return rule + "; ".join(parts) + "."
