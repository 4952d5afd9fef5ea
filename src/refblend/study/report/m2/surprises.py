"""Surprises in M2: fixed rules that look for what the method's rationale would not predict."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import permutations

import pandas as pd

from refblend.ppo.weights import STRATEGIES
from refblend.study.design.arms import SCORE, Arm
from refblend.study.design.measures import label
from refblend.study.layout import JUDGES
from refblend.study.report.m2.best import scope_endpoints
from refblend.study.report.m2.contrasts import at_endpoint
from refblend.study.report.m2.study import SCORING, M2Study, varies_overlap
from refblend.study.report.m2.summaries import endpoint_rows, summary_rows
from refblend.study.report.m2.words import Row, difference, names
from refblend.study.report.readable import number

Tables = Mapping[str, pd.DataFrame]
SMALL_WEIGHT = 0.1
"""Share of ``max_weight`` below which the mean weight hardly blends anything."""


@dataclass(frozen=True)
class Surprise:
    """A rule and what it found; nothing found is a result too."""

    rule: str
    found: tuple[str, ...]


def surprises(study: M2Study, tables: Tables) -> list[Surprise]:
    """Every rule with its findings, in a fixed order."""
    return [Surprise(rule, tuple(find(study, tables))) for rule, find in RULES.items()]


def _controls(study: M2Study, tables: Tables) -> list[str]:
    return _contrasts_not_above(
        study, tables, lambda judged, other: judged.control == "none" != other.control
    )


def _constant(study: M2Study, tables: Tables) -> list[str]:
    return _contrasts_not_above(
        study,
        tables,
        lambda aware, other: (
            STRATEGIES[aware.strategy].reads_entropy
            and aware.strategy != "constant" == other.strategy
        ),
    )


def _contrasts_not_above(
    study: M2Study, tables: Tables, asked: Callable[[Arm, Arm], bool]
) -> list[str]:
    """Contrasts of two kinds of arms whose mean difference at the endpoint is not above 0."""
    return [
        f"`{row['arm']}` − `{row['against']}` ({row['experiment']}): {difference(row)}"
        for row in at_endpoint(study, tables["contrasts"]).to_dict("records")
        if row["diff"] <= 0 and asked(study.resolved[row["arm"]], study.resolved[row["against"]])
    ]


def _pairs(
    study: M2Study, tables: Tables, key: str, asked: Callable[[Arm, Arm], bool]
) -> list[tuple[Row, Row]]:
    """Endpoint rows of arms of one experiment that differ in one key only, of two kinds."""
    found: dict[tuple[str, ...], tuple[Row, Row]] = {}
    for name in study.learning:
        rows = {row["arm"]: row for row in endpoint_rows(study, tables, name)}
        for pair in permutations(rows, 2):
            one, other = (study.resolved[arm] for arm in pair)
            if asked(one, other) and one.differs_only_in(other, key):
                found.setdefault(pair, (rows[pair[0]], rows[pair[1]]))
    return list(found.values())


def _inverse(study: M2Study, tables: Tables) -> list[str]:
    """The opposite map, more judge where the actor is unsure, against the default."""
    pairs = _pairs(
        study,
        tables,
        f"{SCORE}.strategy",
        lambda one, other: (one.strategy, other.strategy) == ("inverse", "linear"),
    )
    return [
        f"`{one['arm']}` has {one['mean']:.3f}, `{other['arm']}` {other['mean']:.3f}"
        for one, other in pairs
        if one["mean"] >= other["mean"]
    ]


def _judges(study: M2Study, tables: Tables) -> list[str]:
    """The strongest judge's arm that is not above the weakest one's."""
    pairs = _pairs(
        study,
        tables,
        f"{SCORING}.model_path",
        lambda one, other: (one.judge, other.judge) == (JUDGES[-1], JUDGES[0]),
    )
    return [
        f"`{strong['arm']}` {strong['mean']:.3f}, `{weak['arm']}` {weak['mean']:.3f}"
        for strong, weak in pairs
        if strong["mean"] <= weak["mean"]
    ]


def _below(study: M2Study, tables: Tables) -> list[str]:
    found: dict[str, str] = {}
    for name in study.learning:
        for row in endpoint_rows(study, tables, name):
            if row["diff"] < 0 and row["diff_high"] < 0:
                found.setdefault(row["arm"], f"`{row['arm']}` ({name}): {difference(row)}")
    return list(found.values())


def _longer(study: M2Study, tables: Tables) -> list[str]:
    found: dict[str, str] = {}
    for name in study.learning:
        for row in summary_rows(tables, name, "length_end"):
            if row["diff_low"] > 0:
                text = f"`{row['arm']}` ({name}): {difference(row)} tokens at the last step"
                found.setdefault(row["arm"], text)
    return list(found.values())


def _small_weight(study: M2Study, tables: Tables) -> list[str]:
    found: dict[str, str] = {}
    for name in study.learning:
        for row in summary_rows(tables, name, "weight_mean"):
            largest = float(study.resolved[row["arm"]].setting(f"{SCORE}.max_weight"))
            if row["mean"] < SMALL_WEIGHT * largest:
                text = f"`{row['arm']}`: mean weight {row['mean']:.4f} of {largest:g}"
                found.setdefault(row["arm"], text)
    return list(found.values())


def _validation(study: M2Study, tables: Tables) -> list[str]:
    best = tables["best_per_metric"]
    found = []
    for scope, part in best.groupby("scope", sort=False):
        arms = part.set_index("measure")["best"]
        endpoint = scope_endpoints(study).get(scope, "")
        if {endpoint, "val_best"} <= set(arms.index) and arms[endpoint] != arms.val_best:
            name = "test" if endpoint.startswith("test_") else label(endpoint)
            found.append(f"{scope}: {name} `{arms[endpoint]}`, validation `{arms.val_best}`")
    return found


def _collapse(study: M2Study, tables: Tables) -> list[str]:
    table = tables["stability"]
    return [
        f"`{row['arm']}`: {row['collapsed_runs']} of {row['finished']} runs"
        for row in table[table.collapsed_runs > 0].to_dict("records")
    ]


def _spikes(study: M2Study, tables: Tables) -> list[str]:
    """Arms with more spikes than the baseline that most experiments share with them."""
    table = tables["stability"].set_index("arm")
    total = table.loss_spikes + table.grad_spikes
    more: dict[str, list[str]] = {}
    for name in study.learning:
        for arm in study.treated(name):
            base = study.baseline(name, arm)
            if base in total.index and total[arm] > total[base] + 1:
                more.setdefault(base, []).append(arm)
    return [
        f"{names(list(dict.fromkeys(arms)))}; `{base}` has {total[base]:.2f}"
        for base, arms in more.items()
    ]


def _overlap(study: M2Study, tables: Tables) -> list[str]:
    return [
        f"`{pool}`: {number(share, signed=True)} of the judge's time"
        for name, spec in study.experiments.items()
        if varies_overlap(spec)
        for pool, share in tables[f"{name}_hidden"]
        .groupby("pool", sort=False)["hidden"]
        .mean()
        .items()
        if share <= 0
    ]


RULES: dict[str, Callable[[M2Study, Tables], list[str]]] = {
    "A control without the judge's judgement (shuffled, random) has at least the mean test"
    " accuracy of the judge": _controls,
    "A weight that follows the entropy has at most the mean test accuracy of a constant"
    " one": _constant,
    "The opposite map (`inverse`) has at least the mean test accuracy of the default": _inverse,
    "An arm lies below its baseline with its whole 95 % Student interval (test accuracy,"
    " unadjusted)": _below,
    "Responses at the end are longer than the baseline's with the whole 95 % Student interval"
    " (unadjusted)": _longer,
    "The mean weight is below a tenth of `max_weight`: hardly anything was blended": _small_weight,
    "The strong judge's arm has at most the mean test accuracy of the weak judge's": _judges,
    "The best arm by validation is not the best on the test set": _validation,
    "The entropy collapsed": _collapse,
    "An arm has over one spike per run (loss and gradient) more than its baseline": _spikes,
    "Scoring beside the log-prob pass does not shorten the step": _overlap,
}
