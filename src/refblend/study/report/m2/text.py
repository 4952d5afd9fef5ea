"""The facts of M2's report: the page that answers its question, then a section per experiment."""

from collections import Counter
from typing import Any

import pandas as pd

from refblend.study.design.arms import SCORE
from refblend.study.design.measures import label
from refblend.study.design.spec import ExperimentSpec
from refblend.study.report.m2.answers import best_row
from refblend.study.report.m2.answers import facts as facts_of
from refblend.study.report.m2.levels import EVERYWHERE, at_endpoint, scope_endpoints
from refblend.study.report.m2.runs import endpoint_rows, never_counted
from refblend.study.report.m2.study import REPORT, M2Study, varies_judge
from refblend.study.report.m2.surprises import surprises
from refblend.study.report.questions import by_question
from refblend.study.report.readable import seed_text, to_markdown, words
from refblend.study.report.registry import Tables
from refblend.study.report.shared import arm_row, headline, val_accuracy, weight_entropy
from refblend.study.report.verdicts import by_verdict, decided, declared, readable_of_one
from refblend.study.runs.incidents import facts
from refblend.study.stats.exact import least_p


@REPORT.text
def text(study: M2Study, tables: Tables) -> dict[str, Any]:
    """The variables of the template."""
    found = surprises(study, tables)
    answered = {name: facts_of(study, tables, name) for name in study.experiments}
    decisions = decided(tables["verdicts"])
    measures = Counter(row["label"] for row in decisions["rows"])
    return facts(study.collected) | {
        "verdicts": decisions,
        "questions": by_question(decisions["rows"], study.resolved),
        "usual": max(measures, key=lambda name: measures[name], default=""),
        "leading": study.leading,
        "scopes": [best_of(study, tables, *scope) for scope in scope_endpoints(study).items()],
        "answered": answered,
        "ended": any(endpoint_rows(study, tables, name) for name in study.learning),
        "learning": (len(study.curves.finished), len(study.curves.runs)),
        "starts": start_rows(study),
        "never_counted": [words(name) for name in never_counted(tables)],
        "entropies": entropy_range(tables),
        "endpoints": sorted({label(study.experiments[name].endpoint) for name in study.learning}),
        "reachable": reachable(study),
        "margins": listed_margins(study),
        "sections": sections(study, tables, answered, decisions["rows"]),
        "best": best_rows(tables),
        "found": {rule: hits for rule, hits in found.items() if hits},
        "silent": [rule for rule, hits in found.items() if not hits],
        "arms": arm_rows(study),
    }


def listed_margins(study: M2Study) -> str:
    """The margins of the experiments that learn, e.g. ``±0.02``."""
    margins = {study.experiments[name].margin for name in study.learning}
    return " or ".join(f"±{margin:g}" for margin in sorted(margins))


def reachable(study: M2Study) -> list[tuple[int, str]]:
    """Numbers of pairs in the comparisons with a baseline, each with the smallest p it can give."""
    counts = set()
    for name in study.learning:
        seeds = study.seeds(name)
        for arm, baseline in study.family(name).pairs:
            counts.add(len(set(seeds[arm]) & set(seeds[baseline])))
    pairs = sorted(counts - {0, 1}) or [1]
    return [(count, f"{least_p(count, count, paired=True):.4g}") for count in pairs]


def best_of(study: M2Study, tables: Tables, scope: str, endpoint: str) -> dict[str, Any]:
    """The best arm of a scope by its endpoint, as far as there is one.

    ``shared``: whether a seed is planned for all arms of the scope, which a common rank needs.
    """
    rows = tables["best_per_metric"].query("scope == @scope and measure == @endpoint")
    everywhere = scope == EVERYWHERE
    among = "all arms that learn" if everywhere else f"the arms of {scope}"
    ranked = study.all_ranked() if everywhere else study.ranked(scope)
    planned: dict[str, set[int]] = {}
    for name in study.learning if everywhere else [scope]:
        for arm, seeds in study.seeds(name).items():
            planned.setdefault(arm, set()).update(seeds)
    shared = bool(ranked) and bool(set.intersection(*(planned[arm] for arm in ranked)))
    found = {"among": among, "endpoint": label(endpoint), "rows": rows.to_dict("records")}
    return found | {"everywhere": everywhere, "shared": shared}


def start_rows(study: M2Study) -> list[dict[str, Any]]:
    """The warm starts of runs that learn, each with its number of runs and its seeds."""
    seeds: dict[str, list[int]] = {}
    for arm in study.all_arms():
        for start, own in study.starts.get(arm, {}).items():
            seeds.setdefault(start, []).extend(own)
    return [
        {"name": start, "runs": len(own), "first": min(own), "last": max(own)}
        for start, own in seeds.items()
    ]


def entropy_range(tables: Tables) -> dict[str, Any] | None:
    """Of entropy against validation accuracy: the lowest and the highest mean among arms that have
    a judge; null without any."""
    table = tables["correlations"]
    judged = set(table[table.x == "weight"].arm)
    rows = table[(table.x == "avg_entropy") & table.arm.isin(judged) & table["mean"].notna()]
    if rows.empty:
        return None
    ordered = rows.sort_values("mean").to_dict("records")
    return {"low": ordered[0], "high": ordered[-1]}


def sections(
    study: M2Study,
    tables: Tables,
    answered: dict[str, dict[str, Any]],
    primary: list[dict[Any, Any]],
) -> list[dict[str, Any]]:
    """The experiments by name, and the one of the target ``scoring``, named as its tables do."""
    verdicts, levels, made = tables["verdicts"], tables["knee_pivot"], []
    for name, spec in study.experiments.items():
        own = verdicts[verdicts.experiment == name]
        contrasts = readable_of_one(own)
        rules = levels[levels.experiment == name].to_dict("records")
        made.append(
            {
                "name": name,
                "facts": answered[name],
                "primary": [row for row in primary if row["experiment"] == name],
                "exploratory": by_verdict(declared(own[~own.primary & (own.added == 0)])),
                "added": by_verdict(declared(own[own.added > 0])),
                "absent": study.absent(name),
                "arms": len(study.arms(name)),
                "seeds": seed_text(study.seeds(name)),
                "factors": words(", ".join(spec.factors)),
                "tables": tables_of(name, spec),
                "contrasts": to_markdown(contrasts) if len(contrasts) else "",
                "measured": not spec.exclusive and endpoint_rows(study, tables, name),
                "levels": [row | {"label": label(row["measure"])} for row in rules],
            }
        )
    rows = tables["scoring_path"].drop_duplicates("arm").to_dict("records")
    letter = "".join(sorted({row["experiment"].rstrip("0123456789") for row in rows}))
    made.append({"name": letter, "facts": None, "scored": rows})
    return sorted(made, key=lambda part: str(part["name"] or "~"))


def tables_of(name: str, spec: ExperimentSpec) -> list[str]:
    """The tables that a section shows of every experiment of its kind."""
    more = {"choice": bool(spec.choice), "judge_quality": varies_judge(spec)}
    return [f"{name}_main", *(f"{name}_{table}" for table, has in more.items() if has)]


def best_rows(tables: Tables) -> list[dict[str, Any]]:
    """The best arm of every scope and measure, in words."""
    rows = tables["best_per_metric"].to_dict("records")
    for row in rows:
        row["scope"] = "all arms that learn" if row["scope"] == EVERYWHERE else row["scope"]
        row["label"] = f"{label(row['measure'])}, {row['direction']}"
        row["open"] = open_text(row)
    return rows


def open_text(row: dict[str, Any]) -> str:
    """The arms that the best cannot be told from: named where they are few, else counted."""
    count, others = row["n_not_distinguishable"], row["arms"] - 1
    if count == 0:
        return "none"
    if count == others:
        return f"all {others} others" + (f" ({row['tied']} equal)" if row["tied"] else "")
    return str(row["not_distinguishable_from"]) if count <= 4 else f"{count} of {others} others"


def arm_rows(study: M2Study) -> list[dict[str, str]]:
    """Every arm with its experiments, overrides and finished runs."""
    rows = []
    for arm, experiments in study.used_in().items():
        spec = study.experiments[experiments.split()[0]]
        own_keys = spec.arms_of(study.scale)[arm].items()
        overrides = {
            key.removeprefix(f"{SCORE}."): value
            for key, value in own_keys
            if key not in spec.common
        }
        rows.append(arm_row(study.collected, arm, overrides) | {"experiments": experiments})
    return rows


@REPORT.metrics
def metrics(study: M2Study, tables: Tables) -> dict[str, Any]:
    """Headline numbers for ``dvc metrics``: the best treated arm of what M2 leads with."""
    best = [row for name in study.leading if (row := best_row(study, tables, name))]
    return headline(study.collected, max(best, key=lambda row: float(row["mean"]), default=None))


REPORT.plot("val_accuracy")(val_accuracy)
REPORT.plot("weight_entropy")(weight_entropy)


@REPORT.plot("levels")
def levels(study: M2Study, tables: Tables) -> pd.DataFrame:
    """The sweeps' levels at each experiment's endpoint."""
    return at_endpoint(study, tables["levels"])
