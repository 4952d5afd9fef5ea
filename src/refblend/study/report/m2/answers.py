"""The answer of each experiment: a sentence, and one row of the first page's table."""

from typing import Any

import pandas as pd

from refblend.study.design.measures import MEASURES, label
from refblend.study.report.m2.best import EVERYWHERE, scope_endpoints
from refblend.study.report.m2.contrasts import at_endpoint
from refblend.study.report.m2.costs import COSTS
from refblend.study.report.m2.levels import assuming
from refblend.study.report.m2.study import REPORT, M2Study, varies_overlap
from refblend.study.report.m2.summaries import endpoint_rows
from refblend.study.report.m2.words import (
    NO_DATA,
    Row,
    Tables,
    difference,
    level_text,
    names,
    own,
)
from refblend.study.report.readable import interval_text
from refblend.study.stats.statistics import student_interval


@REPORT.table("answers", shown=True)
def answers(study: M2Study, tables: Tables) -> pd.DataFrame:
    """One row per experiment: its best arm, and what its rule decides."""
    rows: list[dict[str, Any]] = []
    for name, spec in study.experiments.items():
        row: dict[str, Any] = {"experiment": name, "about": spec.title}
        if spec.exclusive:
            best = tables["best_per_metric"].query("scope == @name and measure == 'step_seconds'")
            for found in best.to_dict("records"):
                row |= {"best arm": found["best"], "by": label("step_seconds"), "mean": own(found)}
        elif found := best_row(study, tables, name):
            row |= {"best arm": found["arm"], "by": label(spec.endpoint), "mean": own(found)}
            row |= {"against": found["baseline"], "difference": difference(found)}
            row |= {"verdict": found["verdict"]}
        rows.append(row | {"decides": decision(study, tables, name)})
    columns = ["experiment", "about", "best arm", "by", "mean", "difference", "against"]
    table = pd.DataFrame(rows, columns=[*columns, "verdict", "decides"])
    return table.astype("object").where(table.notna() & (table != ""), "–")


def best_row(study: M2Study, tables: Tables, experiment: str) -> Row | None:
    """The treated arm with the best mean at the endpoint; null where none has a difference."""
    sign = -1.0 if MEASURES[study.experiments[experiment].endpoint].higher_is_better is False else 1
    rows = [row for row in endpoint_rows(study, tables, experiment) if pd.notna(row["diff"])]
    return max(rows, key=lambda row: sign * row["mean"], default=None)


def decision(study: M2Study, tables: Tables, experiment: str) -> str:
    """What the experiment's rule chooses, in a few words; empty without a rule."""
    spec = study.experiments[experiment]
    if spec.sweep:
        row = chosen_level(study, tables, experiment)
        level = f"{row['chosen']:g}" if row and row["identifiable"] else "not identifiable"
        return f"{spec.sweep.rule} of {spec.sweep.key.rpartition('.')[2]}: {level}"
    if spec.choice:
        best = tables[f"{experiment}_choice"].query("best")
        facet = spec.facet or "facet"
        return "; ".join(f"{row[facet]}: {row[spec.choice]}" for row in best.to_dict("records"))
    if varies_overlap(spec):
        hidden = tables[f"{experiment}_hidden"].groupby("pool", sort=False)["hidden"].mean()
        return "judge time hidden: " + ", ".join(
            f"{pool} {share:.0%}" for pool, share in hidden.dropna().items()
        )
    return ""


def chosen_level(study: M2Study, tables: Tables, experiment: str) -> Row | None:
    """What the rule of a sweep says at the experiment's endpoint."""
    table = at_endpoint(study, tables["knee_pivot"])
    rows: list[Row] = table[table.experiment == experiment].to_dict("records")
    return rows[0] if rows else None


def answer(study: M2Study, tables: Tables, experiment: str) -> str:
    """The experiment's question answered from its numbers, in one or two sentences."""
    spec = study.experiments[experiment]
    if spec.exclusive:
        return costs_answer(study, tables, experiment)
    row = best_row(study, tables, experiment)
    if row is None:
        return NO_DATA
    parts = []
    if spec.sweep and (level := chosen_level(study, tables, experiment)):
        name = spec.sweep.key.rpartition(".")[2]
        parts.append(f"{spec.sweep.rule.capitalize()} of `{name}`: {level_text(level)}.")
    if spec.choice:
        parts += choice_sentences(study, tables, experiment)
    parts.append(
        f"`{row['arm']}` has the best mean {label(spec.endpoint)}, {own(row)}: {difference(row)}"
        f" against `{row['baseline']}`, {row['verdict']} by the rule of the tables."
    )
    return " ".join([*parts, contrast_sentence(study, tables, experiment)]).strip()


def contrast_sentence(study: M2Study, tables: Tables, experiment: str) -> str:
    """The declared contrasts of an experiment at its endpoint; empty without any."""
    table = at_endpoint(study, tables["contrasts"])
    part = table[(table.experiment == experiment) & table["diff"].notna()]
    rows = part.to_dict("records")
    if not rows:
        return ""
    found = [
        f"`{row['arm']}` − `{row['against']}` {difference(row)}"
        for row in rows
        if row["interval_excludes_0"] is True
    ]
    above = sum(row["diff"] > 0 for row in rows)
    return (
        f"Of {len(rows)} declared contrasts {above} have a mean above 0; simultaneous intervals"
        f" that exclude 0: {'; '.join(found) or 'none'}."
    )


def choice_sentences(study: M2Study, tables: Tables, experiment: str) -> list[str]:
    """Which level is better in each facet, and whether those that assume it ran under it."""
    spec, table = study.experiments[experiment], tables[f"{experiment}_choice"]
    assert spec.choice is not None, "asked of choices only"
    facet, parts = spec.facet or "facet", []
    for level, rows in table.groupby(facet, sort=False):
        best = rows[rows.best].to_dict("records")
        where = f"Under {str(level).upper()}" if level else "Overall"
        if not best:
            parts.append(f"{where} no seed has all levels of {spec.choice}.")
            continue
        others = rows[~rows.best]
        shown = others[others.distinguishable.fillna(False)][spec.choice].tolist()
        open_ = [name for name in others[spec.choice] if name not in shown]
        parts.append(
            f"{where} `{best[0][spec.choice]}` is the better {spec.choice} (`{best[0]['arm']}`,"
            f" {own(best[0])}); shown to be better than {names(shown)}, not distinguishable from"
            f" {names(open_)}."
        )
    return [*parts, assumed_sentence(study, table, experiment)]


def assumed_sentence(study: M2Study, table: pd.DataFrame, experiment: str) -> str:
    """Whether the experiments that assume this choice ran under the level that is better.

    Better within the facet of the experiment's baseline, which those experiments share.
    """
    spec, others = study.experiments[experiment], assuming(study, experiment)
    if not others or spec.choice is None:
        return ""
    who = f"{', '.join(others[:-1])} and {others[-1]}" if len(others) > 1 else others[0]
    facet = spec.facet or "facet"
    home = study.level(experiment, spec.facet, spec.baseline) if spec.facet else ""
    swept = sorted(set(table[table.swept][spec.choice]))
    best = table[(table[facet] == home) & table.best][spec.choice].tolist()
    if not swept or not best:
        return f"Whether {who} ran under it cannot be said."
    under = f" under {home.upper()}" if home else ""
    if swept == best:
        return f"{who} ran under `{best[0]}`, the better one{under}."
    return (
        f"{who} ran under {names(swept)}, which is NOT the better one{under} (`{best[0]}`): read"
        " them as results under that level."
    )


def costs_answer(study: M2Study, tables: Tables, experiment: str) -> str:
    """The arms with the smallest and the largest mean of each cost, and what overlapping hides."""
    table, parts = tables[f"{experiment}_costs"], []
    for measure in COSTS[:3]:
        rows = table[(table.measure == measure) & (table.n > 0)].sort_values("mean")
        if len(rows) > 1:
            low, high = rows.iloc[0].to_dict(), rows.iloc[-1].to_dict()
            parts.append(
                f"{label(measure)} from {own(low)} with `{low['arm']}` to {own(high)}"
                f" with `{high['arm']}`"
            )
    if not parts:
        return NO_DATA
    text = "; ".join(parts) + "."
    hides = varies_overlap(study.experiments[experiment])
    hidden = overlap_sentence(tables[f"{experiment}_hidden"]) if hides else ""
    return f"{hidden} {text[0].upper()}{text[1:]}".strip()


def overlap_sentence(table: pd.DataFrame) -> str:
    """How much of the judge's time overlapping hides in each pool."""
    parts = []
    for pool, rows in table.groupby("pool", sort=False):
        hidden = student_interval(rows["hidden"].dropna())
        saved = student_interval((rows["step_serial"] - rows["step_overlapped"]).dropna())
        if hidden.n == 0:
            parts.append(f"in `{pool}` no seed has both runs")
            continue
        parts.append(
            f"in `{pool}` it saves"
            f" {interval_text(saved.estimate, saved.low, saved.high, signed=True)} s per step,"
            f" {interval_text(hidden.estimate, hidden.low, hidden.high)} of the judge's time"
            f" (n = {hidden.n})"
        )
    return f"Scoring beside the log-prob pass: {'; '.join(parts)}." if parts else ""


def first_page(study: M2Study, tables: Tables) -> list[str]:
    """The milestone's question answered: finished runs, the best arms, and every rule's choice."""
    finished, planned = len(study.collected.finished), len(study.collected.runs)
    parts = [f"{finished} of {planned} runs finished."]
    best = tables["best_per_metric"]
    for scope, endpoint in scope_endpoints(study).items():
        among = "all arms that learn" if scope == EVERYWHERE else f"the arms of {scope}"
        rows = best[(best.scope == scope) & (best.measure == endpoint)].to_dict("records")
        if not rows:
            parts.append(f"Among {among} no seed has finished in all, so none is called the best.")
        for row in rows:
            parts.append(
                f"Among {among} `{row['best']}` has the best mean {label(endpoint)}, {own(row)}; it"
                f" cannot be told from {row['n_not_distinguishable']} of the {row['arms'] - 1}"
                " others."
            )
    parts += [s for name in study.leading if (s := contrast_sentence(study, tables, name))]
    decided = [
        f"{name}, {text}" for name in study.experiments if (text := decision(study, tables, name))
    ]
    if decided:
        parts.append(f"The stated rules give: {'; '.join(decided)}.")
    if not any(endpoint_rows(study, tables, name) for name in study.learning):
        parts.append("No run has reached its endpoint.")
    return parts
