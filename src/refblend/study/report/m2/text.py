"""The text of M2's report: one page that answers its question, then a section per experiment."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from refblend.study.design.arms import SCORE
from refblend.study.design.measures import label
from refblend.study.report.formats import to_markdown
from refblend.study.report.m2.answers import (
    answer,
    first_page,
)
from refblend.study.report.m2.best import EVERYWHERE
from refblend.study.report.m2.contrasts import at_endpoint
from refblend.study.report.m2.paragraphs import learning_paragraph, level_paragraph
from refblend.study.report.m2.study import REPORT, M2Study
from refblend.study.report.m2.summaries import endpoint_rows
from refblend.study.report.m2.surprises import surprises
from refblend.study.report.m2.words import own
from refblend.study.report.shared import (
    arm_counts,
    headline,
    mean_accuracy,
    mean_blend,
    overrides_text,
)
from refblend.study.runs.collect import Collected
from refblend.study.runs.origin import facts
from refblend.study.stats.significance import smallest_p

Tables = Mapping[str, pd.DataFrame]


@dataclass(frozen=True)
class Section:
    """One experiment of the report."""

    name: str
    title: str
    question: str
    answer: str
    setup: str
    """Arms, seeds, baseline and what differs; empty where nothing was trained."""
    paragraphs: tuple[str, ...]
    tables: tuple[str, ...]
    """Names of the tables that are shown."""
    contrasts: str
    """Its contrasts as Markdown; empty without any."""


@REPORT.text
def text(study: M2Study, tables: Tables) -> dict[str, Any]:
    """The variables of the template."""
    counts = sorted({len(study.seeds(name)) for name in study.experiments})
    learning = learning_only(study)
    rules = surprises(study, tables)
    return facts(study.collected) | {
        "questions": [study.experiments[name].question.strip() for name in study.leading],
        "answers": first_page(study, tables),
        "learning": (len(learning.finished), len(learning.runs)),
        "reachable": [(count, f"{smallest_p(count):.4g}") for count in counts],
        "sections": sections(study, tables),
        "best": best_rows(tables),
        "found": [rule for rule in rules if rule.found],
        "silent": [rule.rule for rule in rules if not rule.found],
        "arms": arm_rows(study),
    }


def sections(study: M2Study, tables: Tables) -> list[Section]:
    """The experiments of the study, and D, which the target ``scoring`` measures, by name."""
    made = [section(study, tables, name) for name in study.experiments]
    return sorted([*made, scoring_section(tables)], key=lambda part: part.name)


def section(study: M2Study, tables: Tables, name: str) -> Section:
    """One experiment that trains."""
    spec, factors = study.experiments[name], ", ".join(study.experiments[name].factors)
    contrasts = tables["contrasts_main"]
    mine = contrasts[contrasts.experiment == name].drop(columns="experiment")
    shown = [f"{name}_main"] + ([f"{name}_choice"] if spec.choice else [])
    learns = [] if spec.exclusive else [learning_paragraph(study, tables, name)]
    seeds = ", ".join(map(str, study.seeds(name)))
    setup = f"{len(study.arms(name))} arms, seeds {seeds}; baseline `{spec.baseline}`."
    return Section(
        name,
        spec.title,
        spec.question.strip(),
        answer(study, tables, name),
        f"{setup} The arms differ in {factors.replace('_', ' ') or 'what is listed below'}.",
        tuple(part for part in (*learns, level_paragraph(tables, name)) if part),
        tuple(shown),
        to_markdown(mine) if len(mine) else "",
    )


def scoring_section(tables: Tables) -> Section:
    """Experiment D: coverage, overlength and AUC of each pair of options."""
    parts = []
    for row in tables["D_scoring"].drop_duplicates("arm").to_dict("records"):
        auc = "no AUC" if pd.isna(row["auc"]) else f"AUC {row['auc']:.3f}"
        parts.append(
            f"`{row['arm']}`: {row['nonzero_rate']:.1%} valid, non-zero scores, {auc},"
            f" {row['overlength']} overlength of {row['responses']}"
        )
    absent = "Experiment D was not measured for this report (no folder of the target `scoring`)."
    return Section(
        "D",
        "Robustness of prompt and scoring",
        "Few-shot or compact prompt, how many new tokens, with or without hard clipping: what"
        " happens to coverage, overlength and the judge's AUC?",
        "; ".join(parts) + "." if parts else absent,
        "",
        (),
        ("D_scoring",),
        "",
    )


def best_rows(tables: Tables) -> list[dict[str, Any]]:
    """The best arm of every scope and measure, as texts."""
    return [
        {
            "scope": "all arms that learn" if row["scope"] == EVERYWHERE else row["scope"],
            "measure": f"{label(row['measure'])}, {row['direction']}",
            "best": row["best"],
            "value": own(row),
            "share": "–" if pd.isna(row["share_best"]) else f"{row['share_best']:.0%}",
            "open": open_text(row),
        }
        for row in tables["best_per_metric"].to_dict("records")
    ]


def open_text(row: dict[str, Any]) -> str:
    """The arms that the best cannot be told from: named where they are few, else counted."""
    count, others = row["n_not_distinguishable"], row["arms"] - 1
    if count == 0:
        return "none"
    if count == others:
        return f"all {others} others" + (f" ({row['tied']} equal)" if row["tied"] else "")
    if count <= 4:
        return str(row["not_distinguishable_from"])
    return f"{count} of {others} others"


def arm_rows(study: M2Study) -> list[dict[str, str]]:
    """Every arm with its experiments, overrides and finished runs."""
    rows = []
    for arm, experiments in study.used_in().items():
        spec = study.experiments[experiments.split()[0]]
        overrides = {
            key.removeprefix(f"{SCORE}."): value
            for key, value in spec.arms_of(study.scale)[arm].items()
            if key not in spec.common
        }
        rows.append(
            {
                "name": arm,
                "experiments": experiments,
                "overrides": overrides_text(overrides),
                "finished": arm_counts(study.collected, arm),
            }
        )
    return rows


@REPORT.metrics
def metrics(study: M2Study, tables: Tables) -> dict[str, Any]:
    """Headline numbers for ``dvc metrics``: the best treated arm of what M2 leads with."""
    rows = [row for name in study.leading for row in endpoint_rows(study, tables, name)]
    compared = [row for row in rows if pd.notna(row["diff"])]
    best = max(compared, key=lambda row: float(row["mean"]), default=None)
    return headline(study.collected, best)


def learning_only(study: M2Study) -> Collected:
    """The runs of the experiments that learn."""
    arms, frames = study.all_arms(), study.collected
    return replace(
        frames,
        runs=frames.runs[frames.runs.arm.isin(arms)],
        metrics=frames.metrics[frames.metrics.arm.isin(arms)],
    )


@REPORT.plot("val_accuracy")
def val_accuracy(study: M2Study) -> pd.DataFrame:
    """Validation accuracy of every arm that learns."""
    return mean_accuracy(learning_only(study))


@REPORT.plot("weight_entropy")
def weight_entropy(study: M2Study) -> pd.DataFrame:
    """Weight against entropy of every arm that learns."""
    return mean_blend(learning_only(study))


@REPORT.plot("levels")
def levels(study: M2Study, tables: Tables) -> pd.DataFrame:
    """The sweeps' levels at each experiment's endpoint."""
    return at_endpoint(study, tables["levels"])
