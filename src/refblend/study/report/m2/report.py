"""Milestone M2 written out: tables, figures, report, numbers and plot data for DVC."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd

from refblend.files import atomic_path, write_json, write_text
from refblend.study.report.formats import to_markdown, write_table
from refblend.study.report.m2.best import BEST_MEASURES
from refblend.study.report.m2.costs import label
from refblend.study.report.m2.figures import write_m2_figures
from refblend.study.report.m2.levels import SCORE
from refblend.study.report.m2.runs import learning_runs, used_in
from refblend.study.report.m2.study import LEARNING, M2Study
from refblend.study.report.m2.surprises import surprises
from refblend.study.report.m2.tables import m2_tables
from refblend.study.report.m2.text import (
    abstract,
    contrast_paragraph,
    costs_paragraph,
    learning_paragraph,
    level_paragraph,
    overlap_paragraph,
    own,
    placement_paragraph,
    scoring_paragraph,
)
from refblend.study.report.readable import HEADLINE
from refblend.study.report.shared import plot_data
from refblend.study.runs.incidents import incident_totals
from refblend.study.runs.origin import commit_text
from refblend.study.stats.significance import smallest_p

Tables = Mapping[str, pd.DataFrame]


@dataclass(frozen=True)
class Section:
    """One experiment of the report."""

    name: str
    title: str
    question: str
    baseline: str
    arms: int
    seeds: str
    table: str
    """Name of the table that is shown."""
    paragraphs: tuple[str, ...]
    figures: tuple[str, ...]


def write_m2(study: M2Study, out: str | Path) -> None:
    """Write ``tables/``, ``figures/``, ``report.md``, ``metrics.json`` and ``plots/`` below out."""
    out = Path(out)
    tables = m2_tables(study)
    for name, frame in tables.items():
        write_table(frame, name, out / "tables")
    captions = write_m2_figures(study, tables, out / "figures")
    write_text(out / "report.md", render(study, tables, captions))
    write_json(out / "metrics.json", headline_numbers(study, tables))
    for name, frame in plot_data_of(study, tables).items():
        with atomic_path(out / "plots" / f"{name}.csv") as temporary:
            frame.to_csv(temporary, index=False, float_format="%.6g")


def render(study: M2Study, tables: Tables, captions: Mapping[str, str]) -> str:
    """The Markdown text of the report.

    Args:
        study: the runs.
        tables: as :func:`refblend.study.report.m2.tables.m2_tables` gives them.
        captions: figure → caption; every figure is shown once.
    """
    template = resources.files("refblend.study.report").joinpath("templates", "m2.md.j2")
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
    sections = sections_of(study, tables, captions)
    weights = [name for name in captions if section_of(name) == "weight"]
    placed = {name for section in sections for name in section.figures} | set(weights)
    runs, finished = study.collected.runs, len(study.collected.finished)
    counts = sorted({len(study.seeds(name)) for name in study.experiments})
    rules = surprises(study, tables)
    return environment.from_string(template.read_text(encoding="utf-8")).render(
        scale=study.scale,
        abstract=abstract(study, tables),
        runs=len(runs),
        finished=finished,
        learning=learning_runs(study),
        reachable=[(count, f"{smallest_p(count):.4g}") for count in counts],
        sections=sections,
        best=best_rows(tables),
        found=[rule for rule in rules if rule.found],
        silent=[rule.rule for rule in rules if not rule.found],
        weight_figures=weights,
        other_figures=[name for name in captions if name not in placed],
        arms=arm_rows(study),
        incidents=incident_totals(study.collected),
        totals={
            "hours": f"{runs.wall_time_s.sum() / 3600:.2f}",
            "kwh": f"{runs.energy_kwh.sum():.4f}",
            "kg": f"{runs.kg_co2e.sum():.4f}",
        },
        tables={name: to_markdown(frame) for name, frame in tables.items()},
        contrasts=contrast_tables(tables),
        figure=lambda name: (
            f"![{name.replace('_', ' ')}](figures/{name}.png)\n\n*{captions[name]}*\n"
        ),
        commit=commit_text(study.collected),
        hardware="; ".join(sorted({name for name in runs.hardware.dropna() if name})) or "unknown",
    )


def sections_of(study: M2Study, tables: Tables, captions: Mapping[str, str]) -> list[Section]:
    """The experiments that the study has, in order, each with its table and paragraphs."""
    sections = []
    for name in ("A", "B", "C", "D", "E", "F", "G", "H"):
        figures = tuple(figure for figure in captions if section_of(figure) == name)
        if name == "D":
            sections.append(
                Section(
                    name,
                    "Robustness of prompt and scoring",
                    "Few-shot or compact prompt, how many new tokens, with or without hard"
                    " clipping: what happens to coverage, overlength and the judge's AUC?",
                    "",
                    0,
                    "",
                    "D_scoring",
                    (scoring_paragraph(tables),),
                    figures,
                )
            )
        elif name in study.experiments:
            spec = study.experiments[name]
            sections.append(
                Section(
                    name,
                    spec.title,
                    spec.question.strip(),
                    spec.baseline,
                    len(study.arms(name)),
                    ", ".join(map(str, study.seeds(name))),
                    f"{name}_main",
                    paragraphs(tables, name),
                    figures,
                )
            )
    return sections


def contrast_tables(tables: Tables) -> dict[str, str]:
    """Experiment → its contrasts as Markdown; only of those that have some."""
    table = tables["contrasts_main"]
    return {
        str(name): to_markdown(part.drop(columns="experiment"))
        for name, part in table.groupby("experiment")
    }


def section_of(figure: str) -> str:
    """The section that shows a figure: ``weight``, or its name's first experiment.

    A figure of several experiments, ``BCGH_forest``, stands with the first; empty for others.
    """
    first, _, rest = figure.partition("_")
    if rest.startswith("weight"):
        return "weight"
    return first[0] if first and set(first) <= set("ABCDEFGH") else ""


def paragraphs(tables: Tables, name: str) -> tuple[str, ...]:
    """What came out of an experiment."""
    if name == "E":
        return (costs_paragraph(tables),)
    if name == "F":
        return (costs_paragraph(tables, "F_overlap"), overlap_paragraph(tables))
    parts = [learning_paragraph(tables, name)]
    if name in ("B", "C"):
        parts.append(level_paragraph(tables, name))
    if name == "G":
        parts.append(placement_paragraph(tables))
    parts.append(contrast_paragraph(tables, name))
    return tuple(part for part in parts if part)


def best_rows(tables: Tables) -> list[dict[str, Any]]:
    """The best arm of every scope and measure, as texts."""
    scopes = {"A": "arms of A", "all": "all arms that learn", "E": "E", "F": "F"}
    return [
        {
            "scope": scopes[row["scope"]],
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
    runs = study.collected.runs
    rows = []
    for arm, experiments in used_in(study).items():
        spec = study.experiments[experiments.split()[0]]
        overrides = {**spec.arms_of(study.scale)[arm]}
        text = ", ".join(
            f"`{key.removeprefix(f'{SCORE}.')}={value}`"
            for key, value in overrides.items()
            if key not in spec.common
        )
        mine = runs[runs.arm == arm]
        done = int((mine.status == "finished").sum())
        rows.append(
            {
                "arm": arm,
                "experiments": experiments,
                "overrides": text or "none",
                "finished": f"{done} of {len(mine)}",
            }
        )
    return rows


def headline_numbers(study: M2Study, tables: Tables) -> dict[str, Any]:
    """Nested numbers for ``dvc metrics``."""
    arms: dict[str, Any] = {}
    for name in LEARNING:
        table = tables[f"{name}_summary"]
        for row in table[table.measure == HEADLINE].to_dict("records"):
            kept = {key: row[key] for key in ("mean", "low", "high", "diff") if pd.notna(row[key])}
            if kept:
                numbers = {key: round(float(value), 6) for key, value in kept.items()}
                arms.setdefault(name, {})[row["arm"]] = numbers
    levels = {
        f"{row['experiment']}_{row['rule']}": float(row["chosen"]) if row["identifiable"] else None
        for row in tables["BC_knee_pivot"].to_dict("records")
        if row["measure"] == HEADLINE
    }
    best = tables["best_per_metric"]
    hidden = tables["F_hidden"].dropna(subset="hidden").groupby("pool")["hidden"].mean()
    return {
        HEADLINE: arms,
        "levels": levels,
        "best": {
            f"{row['scope']}_{row['measure']}": row["best"]
            for row in best.to_dict("records")
            if row["measure"] in (HEADLINE, *BEST_MEASURES[2:4])
        },
        "judge_time_hidden": {str(pool): round(float(share), 6) for pool, share in hidden.items()},
        "incidents": incident_totals(study.collected),
        "runs": {
            "planned": len(study.collected.runs),
            "finished": len(study.collected.finished),
        },
    }


def plot_data_of(study: M2Study, tables: Tables) -> dict[str, pd.DataFrame]:
    """Small frames for ``dvc plots``: curves of the arms that learn, and the sweeps' levels."""
    arms = study.all_arms()
    frames = study.collected
    learning = replace(
        frames,
        runs=frames.runs[frames.runs.arm.isin(arms)],
        metrics=frames.metrics[frames.metrics.arm.isin(arms)],
    )
    levels = tables["BC_levels"]
    return plot_data(learning) | {"levels": levels[levels.measure == HEADLINE]}
