"""Sentences of M2's report, made from the numbers of its tables."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from refblend.study.report.m2.costs import label
from refblend.study.report.m2.levels import LEVEL_MEASURES
from refblend.study.report.m2.study import LEARNING, M2Study
from refblend.study.report.readable import HEADLINE, interval_text
from refblend.study.stats.statistics import student_interval

Tables = Mapping[str, pd.DataFrame]
Row = dict[str, Any]

NO_DATA = "No run of this experiment has finished, so there is nothing to report."
DETERMINED = 0.05


def headline_rows(tables: Tables, experiment: str, measure: str = HEADLINE) -> list[Row]:
    """Rows of a summary that have values of a measure, in the order of the arms."""
    table = tables[f"{experiment}_summary"]
    return table[(table.measure == measure) & (table.n > 0)].to_dict("records")


def own(row: Row) -> str:
    """The arm's mean with its interval and n."""
    return f"{interval_text(row['mean'], row['low'], row['high'])} (n = {row['n']})"


def difference(row: Row) -> str:
    """The paired difference with its interval and n; says so where there is none."""
    if pd.isna(row["diff"]):
        return "no pair"
    text = interval_text(row["diff"], row["diff_low"], row["diff_high"], signed=True)
    return f"{text} ({row['pairs']} pair{'s' if row['pairs'] != 1 else ''})"


def names(arms: Sequence[str]) -> str:
    """Arms as code, separated by commas; "none" for none."""
    return ", ".join(f"`{arm}`" for arm in arms) or "none"


def learning_paragraph(tables: Tables, experiment: str) -> str:
    """What came out of an experiment against its baseline, by the headline measure."""
    rows = headline_rows(tables, experiment)
    if not rows:
        return NO_DATA
    compared = [row for row in rows if pd.notna(row["diff"])]
    text = ["Greedy accuracy on the test set, seed by seed against the baseline:"]
    if not compared:
        return f"{text[0]} no arm has a seed in common with its baseline."
    compared.sort(key=lambda row: -row["diff"])
    above = sum(row["diff"] > 0 for row in compared)
    below = sum(row["diff"] < 0 for row in compared)
    text.append(f"{above} of {len(compared)} arms have a higher mean, {below} a lower one.")
    best, worst = compared[0], compared[-1]
    text.append(f"The largest is `{best['arm']}` with {difference(best)} against")
    text[-1] += f" `{best['baseline']}`, probability of improvement {probability(best)}"
    text[-1] += (
        f"; the smallest is `{worst['arm']}` with {difference(worst)}."
        if len(compared) > 1
        else "."
    )
    if (default := next((r for r in compared if r["arm"] == "linear"), None)) is not None:
        text.append(f"The spec's default `linear`: {difference(default)}.")
    return " ".join([*text, verdicts(compared)])


def probability(row: Row) -> str:
    """Probability of improvement with its interval."""
    return interval_text(row["prob_improvement"], row["prob_low"], row["prob_high"])


def verdicts(compared: Sequence[Row]) -> str:
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
    """The knee or the pivot of every measure, or why it is not identifiable."""
    table = tables["BC_knee_pivot"]
    rows = table[table.experiment == experiment].to_dict("records")
    if not rows:
        return ""
    rule = rows[0]["rule"]
    order = {name: place for place, name in enumerate(LEVEL_MEASURES)}
    rows.sort(key=lambda row: order[row["measure"]])
    parts = [f"{label(row['measure'])}: {level_text(row)}" for row in rows]
    return f"The {rule} by the stated rule (`docs/statistics.md`). " + "; ".join(parts) + "."


def level_text(row: Row) -> str:
    """A chosen level with its interval over seeds, or that it is not identifiable, and why."""
    if not row["identifiable"]:
        chosen = "" if pd.isna(row["chosen"]) else f" (the rule alone gives {row['chosen']:g})"
        return f"not identifiable, {row['why_not']}{chosen}"
    return (
        f"{row['chosen']:g}, 95 % interval over resampled seeds {row['low']:g} to {row['high']:g},"
        f" chosen in {row['stability']:.0%} of the resamples, n = {row['n']}"
    )


def placement_paragraph(tables: Tables) -> str:
    """Which placement is better by the stated rule, and whether B, C and H ran under it."""
    table = tables["G_placement"]
    if table.empty:
        return NO_DATA
    parts = [
        "Rule: under each estimator the better placement has the best mean test accuracy over the"
        " seeds that all its arms have; it is shown to be better than another where both intervals"
        " of best − other exclude 0."
    ]
    for estimator, rows in table.groupby("estimator", sort=False):
        best = rows[rows.best].to_dict("records")
        if not best:
            parts.append(f"{str(estimator).upper()}: no seed that all placements have.")
            continue
        top = best[0]
        others = rows[~rows.best]
        shown = others[others.distinguishable.fillna(False)]["placement"].tolist()
        open_ = [name for name in others["placement"] if name not in shown]
        text = f"{str(estimator).upper()}: `{top['placement']}` (`{top['arm']}`), {own(top)}"
        text += f"; shown to be better than {names(shown)}; not distinguishable from"
        parts.append(f"{text} {names(open_)}.")
    return " ".join([*parts, swept_sentence(table)])


def swept_sentence(table: pd.DataFrame) -> str:
    """Whether B, C and H ran under the placement that is better under the study's estimator."""
    swept = sorted(set(table[table.swept]["placement"]))
    best = table[(table.estimator == "grpo") & table.best]["placement"].tolist()
    if not swept or not best:
        return "Whether B, C and H ran under it cannot be said."
    if swept == best:
        return f"B, C and H ran under `{best[0]}`, the better one under GRPO."
    return (
        f"B, C and H ran under {names(swept)}, which is NOT the better one under GRPO"
        f" (`{best[0]}`): read them as results under that placement."
    )


def contrast_paragraph(tables: Tables, experiment: str) -> str:
    """The stated contrasts of an experiment on the headline measure."""
    table = tables["contrasts"]
    part = table[(table.experiment == experiment) & (table.measure == HEADLINE)]
    rows = [row for row in part.to_dict("records") if pd.notna(row["diff"])]
    if not rows:
        return ""
    found = [
        f"`{row['arm']}` − `{row['against']}` {difference(row)}"
        for row in rows
        if row["interval_excludes_0"] is True
    ]
    above = sum(row["diff"] > 0 for row in rows)
    return (
        f"Fixed contrasts (test accuracy, one family): {above} of {len(rows)} means are"
        f" above 0. Simultaneous intervals that exclude 0: {'; '.join(found) or 'none'}."
    )


def scoring_paragraph(tables: Tables) -> str:
    """Experiment D: coverage, overlength and AUC of each pair of options."""
    table = tables["D_scoring"]
    if table.empty:
        return "Experiment D was not measured for this report (no folder of the target `scoring`)."
    parts = []
    for row in table.drop_duplicates("arm").to_dict("records"):
        auc = "no AUC" if pd.isna(row["auc"]) else f"AUC {row['auc']:.3f}"
        parts.append(
            f"`{row['arm']}`: {row['nonzero_rate']:.1%} valid, non-zero scores, {auc},"
            f" {row['overlength']} overlength of {row['responses']}"
        )
    return "; ".join(parts) + "."


def costs_paragraph(tables: Tables, name: str = "E_lengths") -> str:
    """Experiment E or F: the arms with the smallest and the largest mean of each cost."""
    table = tables[name]
    parts = []
    for measure in ("memory_gb", "step_seconds", "throughput"):
        rows = table[(table.measure == measure) & (table.n > 0)].sort_values("mean")
        if len(rows) < 2:
            continue
        low, high = rows.iloc[0].to_dict(), rows.iloc[-1].to_dict()
        parts.append(
            f"{label(measure)} from {own(low)} with `{low['arm']}` to {own(high)}"
            f" with `{high['arm']}`"
        )
    return "; ".join(parts) + "." if parts else NO_DATA


def overlap_paragraph(tables: Tables) -> str:
    """Experiment F: how much of the judge's time overlapping hides in each pool."""
    table = tables["F_hidden"]
    parts = []
    for pool, rows in table.groupby("pool", sort=False):
        hidden = student_interval(rows["hidden"].dropna())
        saved = student_interval((rows["step_serial"] - rows["step_overlapped"]).dropna())
        if hidden.n == 0:
            parts.append(f"`{pool}`: no seed with both runs")
            continue
        parts.append(
            f"`{pool}`: overlapping saves"
            f" {interval_text(saved.estimate, saved.low, saved.high, signed=True)} s a step,"
            f" {interval_text(hidden.estimate, hidden.low, hidden.high)} of the judge's time"
            f" (n = {hidden.n})"
        )
    return "; ".join(parts) + "." if parts else NO_DATA


def abstract(study: M2Study, tables: Tables) -> str:
    """The headline numbers of all experiments."""
    finished, planned = len(study.collected.finished), len(study.collected.runs)
    parts = [f"{finished} of {planned} runs finished."]
    best = tables["best_per_metric"]
    for scope, where in (("A", "Among the arms of A"), ("all", "Among all arms that learn")):
        rows = best[(best.scope == scope) & (best.measure == HEADLINE)].to_dict("records")
        for row in rows:
            parts.append(
                f"{where} `{row['best']}` has the best mean test accuracy, {own(row)},"
                f" not distinguishable from {row['n_not_distinguishable']} of the"
                f" {row['arms'] - 1} others."
            )
    for row in headline_rows(tables, "A"):
        if row["arm"] in ("linear", "linear_terminal") and pd.notna(row["diff"]):
            parts.append(f"`{row['arm']}` against `{row['baseline']}`: {difference(row)}.")
    for experiment, rule in (("B", "knee of max_weight"), ("C", "pivot of the entropy threshold")):
        table = tables["BC_knee_pivot"]
        rows = table[(table.experiment == experiment) & (table.measure == HEADLINE)]
        parts += [f"The {rule}: {level_text(row)}." for row in rows.to_dict("records")]
    placement = tables["G_placement"]
    better = placement[(placement.estimator == "grpo") & placement.best].to_dict("records")
    parts += [f"The better placement under GRPO is `{row['placement']}`." for row in better]
    if not any(headline_rows(tables, name) for name in LEARNING):
        parts.append("No run has a test accuracy.")
    return " ".join(parts)
