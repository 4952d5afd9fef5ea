"""The answer of each experiment: one row of the first page's table, and the facts of its text."""

from typing import Any

import pandas as pd

from refblend.study.design.measures import label
from refblend.study.design.spec import ExperimentSpec
from refblend.study.report.m2.costs import COSTS
from refblend.study.report.m2.exploratory import doses
from refblend.study.report.m2.levels import assuming, at_endpoint
from refblend.study.report.m2.runs import declares, endpoint_rows
from refblend.study.report.m2.study import REPORT, M2Study, varies_overlap
from refblend.study.report.readable import Row, difference, own
from refblend.study.report.registry import Tables
from refblend.study.report.speed import speed_labels
from refblend.study.stats.statistics import student_interval
from refblend.study.stats.verdicts import VERDICTS

READABLE = {
    "best arm": "best arm (exploratory)",
    "difference": "difference to its baseline",
    "decides": "rule (exploratory)",
}
"""Columns of the table of answers, and how readers see those whose names do not say enough."""


@REPORT.table("answers")
def answers(study: M2Study, tables: Tables) -> pd.DataFrame:
    """One row per experiment: its verdicts, the best arm where it asks for one, and its rule."""
    rows: list[dict[str, Any]] = []
    for name, spec in study.experiments.items():
        row: dict[str, Any] = {"experiment": name, "about": spec.title}
        verdicts = tables["verdicts"].query("experiment == @name")
        row["primary contrasts"] = tally(verdicts[verdicts.primary].verdict)
        row["other contrasts"] = tally(verdicts[~verdicts.primary].verdict)
        if spec.exclusive:
            best = tables["best_per_metric"].query("scope == @name and measure == 'step_seconds'")
            for found in best.to_dict("records"):
                row |= {"best arm": found["best"], "by": label("step_seconds"), "mean": own(found)}
        elif asks_best(spec) and (found := best_row(study, tables, name)):
            row |= {"best arm": found["arm"], "by": label(spec.endpoint), "mean": own(found)}
            row |= {"against": found["baseline"], "difference": difference(found)}
        rows.append(row | {"decides": decision(study, tables, name)})
    columns = ["experiment", "about", "primary contrasts", "other contrasts", "best arm", "by"]
    table = pd.DataFrame(rows, columns=[*columns, "mean", "difference", "against", "decides"])
    return table.astype("object").where(table.notna() & (table != ""), "–")


@REPORT.table("answers_main", shown=True)
def readable_answers(tables: Tables) -> pd.DataFrame:
    """The table of answers for readers."""
    return tables["answers"].drop(columns=["mean", "against"]).rename(columns=READABLE)


def tally(verdicts: pd.Series) -> str:
    """``2 better, 1 undecided``; empty without any."""
    counts = {name: int((verdicts == name).sum()) for name in VERDICTS}
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count)


def asks_best(spec: ExperimentSpec) -> bool:
    """Whether an experiment is about which arm is best: it sweeps, chooses, or leads."""
    return bool(spec.sweep or spec.choice or spec.leads)


def compared(study: M2Study, tables: Tables, experiment: str) -> list[Row]:
    """The arms that have a difference at the endpoint."""
    return [row for row in endpoint_rows(study, tables, experiment) if pd.notna(row["diff"])]


def best_row(study: M2Study, tables: Tables, experiment: str) -> Row | None:
    """The treated arm with the best mean at the endpoint, of those that are ranked; null where none
    has a difference."""
    ranked = study.ranked(experiment)
    rows = [row for row in compared(study, tables, experiment) if row["arm"] in ranked]
    return max(rows, key=lambda row: row["mean"], default=None)


def decision(study: M2Study, tables: Tables, experiment: str) -> str:
    """What the experiment's rule chooses, in a few words; empty without a rule."""
    spec = study.experiments[experiment]
    if spec.sweep:
        row = chosen_level(study, tables, experiment)
        level = f"{row['chosen']:g}" if row and row["identifiable"] else "not identifiable"
        if nothing_gained(study, tables, experiment):
            level += " (no level above its baseline)"
        return f"{spec.sweep.rule} of {spec.sweep.key.rpartition('.')[2]}: {level}"
    if spec.choice:
        best = tables[f"{experiment}_choice"].query("best")
        facet = spec.facet or "facet"
        return "; ".join(f"{row[facet]}: {row[spec.choice]}" for row in best.to_dict("records"))
    if varies_overlap(spec):
        hidden = tables[f"{experiment}_hidden"].groupby("pool", sort=False)["hidden"].mean()
        shares = [f"{pool} {share:.0%}" for pool, share in hidden.dropna().items()]
        return f"judge time hidden: {', '.join(shares)}"
    return ""


def nothing_gained(study: M2Study, tables: Tables, experiment: str) -> bool:
    """Whether no level of a sweep has a mean above its baseline's: the rule of the knee compares
    levels with one another only."""
    gains = at_endpoint(study, tables["levels"]).query("experiment == @experiment")["diff"].dropna()
    return len(gains) > 0 and bool((gains <= 0).all())


def chosen_level(study: M2Study, tables: Tables, experiment: str) -> Row | None:
    """What the rule of a sweep says at the experiment's endpoint."""
    table = at_endpoint(study, tables["knee_pivot"])
    rows: list[Row] = table[table.experiment == experiment].to_dict("records")
    return rows[0] if rows else None


def facts(study: M2Study, tables: Tables, name: str) -> dict[str, Any]:
    """What ``_answers.md.j2`` says of an experiment, in rows of its tables."""
    spec = study.experiments[name]
    chosen = tables[f"{name}_choice"] if spec.choice else None
    rows = [] if spec.exclusive else compared(study, tables, name)
    return {
        "spec": spec,
        "endpoint": label(spec.endpoint),
        "parameter": spec.sweep.key.rpartition(".")[2] if spec.sweep else "",
        "best": best_row(study, tables, name) if asks_best(spec) else None,
        "level": chosen_level(study, tables, name),
        "nothing_gained": bool(spec.sweep) and nothing_gained(study, tables, name),
        "compared": sorted(rows, key=lambda row: -row["diff"]),
        "choices": [] if chosen is None else choices(chosen, spec),
        "assumed": None if chosen is None else assumed(study, chosen, name),
        "costs": extreme_costs(tables[f"{name}_costs"]) if spec.exclusive else [],
        "hidden": overlap(tables[f"{name}_hidden"]) if varies_overlap(spec) else [],
        "decision": decision(study, tables, name),
        "doses": doses(study, tables, name),
        "speed": speed_labels(spec),
        "declares": declares(study, name),
    }


def choices(table: pd.DataFrame, spec: ExperimentSpec) -> list[dict[str, Any]]:
    """For each facet its best arm, the levels shown to be worse, and those that are open."""
    found = []
    for level, rows in table.groupby(spec.facet or "facet", sort=False):
        best, others = rows[rows.best].to_dict("records"), rows[~rows.best]
        worse = others.distinguishable.fillna(False).astype(bool)
        shown, still_open = (others[which][spec.choice].tolist() for which in (worse, ~worse))
        row = {"level": level, "best": best[0] if best else None}
        found.append(row | {"shown": shown, "open": still_open})
    return found


def assumed(study: M2Study, table: pd.DataFrame, experiment: str) -> dict[str, Any] | None:
    """Whether the experiments that assume this choice ran under the level that is better.

    Better within the facet of the experiment's baseline, which those experiments share.
    """
    spec, others = study.experiments[experiment], assuming(study, experiment)
    if not others or spec.choice is None:
        return None
    home = study.level(experiment, spec.facet, spec.baseline) if spec.facet else ""
    return {
        "who": " and ".join(filter(None, (", ".join(others[:-1]), others[-1]))),
        "home": home,
        "swept": sorted(set(table[table.swept][spec.choice])),
        "best": table[(table[spec.facet or "facet"] == home) & table.best][spec.choice].tolist(),
    }


def extreme_costs(table: pd.DataFrame) -> list[dict[str, Any]]:
    """The arms with the smallest and the largest mean of each cost that two arms have."""
    found = []
    for measure in COSTS[:3]:
        rows = table[(table.measure == measure) & (table.n > 0)].sort_values("mean")
        if len(rows) > 1:
            low, *_, high = rows.to_dict("records")
            found.append({"label": label(measure), "low": low, "high": high})
    return found


def overlap(table: pd.DataFrame) -> list[dict[str, Any]]:
    """How much of the judge's time overlapping hides in each pool, and saves of a step."""
    saved = table["step_serial"] - table["step_overlapped"]
    return [
        {"name": pool, "hidden": student_interval(rows["hidden"].dropna())}
        | {"saved": student_interval(saved[rows.index].dropna())}
        for pool, rows in table.groupby("pool", sort=False)
    ]
