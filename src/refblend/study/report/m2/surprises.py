"""What surprised in M2: fixed rules that look for what the method's reasons would not predict."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from refblend.study.report.m2.levels import SCORE
from refblend.study.report.m2.study import LEARNING, M2Study
from refblend.study.report.m2.text import difference, headline_rows, names
from refblend.study.report.readable import HEADLINE, interval_text

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
    return _contrasts_not_above(tables, "control")


def _constant(study: M2Study, tables: Tables) -> list[str]:
    return _contrasts_not_above(tables, "entropy-aware")


def _contrasts_not_above(tables: Tables, word: str) -> list[str]:
    """Contrasts of the headline measure whose mean difference is not above 0."""
    table = tables["contrasts"]
    part = table[(table.measure == HEADLINE) & table.contrast.str.contains(word)]
    return [
        f"`{row['arm']}` − `{row['against']}` ({row['experiment']}): {difference(row)}"
        for row in part.to_dict("records")
        if row["diff"] <= 0
    ]


def _inverse(study: M2Study, tables: Tables) -> list[str]:
    """The opposite map, more judge where the actor is unsure, against the spec's."""
    means = {row["arm"]: row for row in headline_rows(tables, "A")}
    found = []
    for arm, opposite in (("linear", "inverse"), ("linear_terminal", "inverse_terminal")):
        if arm in means and opposite in means and means[opposite]["mean"] >= means[arm]["mean"]:
            found.append(
                f"`{opposite}` has {means[opposite]['mean']:.3f}, `{arm}` {means[arm]['mean']:.3f}"
            )
    return found


def _below(study: M2Study, tables: Tables) -> list[str]:
    found: dict[str, str] = {}
    for experiment in LEARNING:
        for row in headline_rows(tables, experiment):
            if row["diff"] < 0 and row["diff_high"] < 0:
                found.setdefault(row["arm"], f"`{row['arm']}` ({experiment}): {difference(row)}")
    return list(found.values())


def _longer(study: M2Study, tables: Tables) -> list[str]:
    found: dict[str, str] = {}
    for experiment in LEARNING:
        for row in headline_rows(tables, experiment, "length_end"):
            if row["diff_low"] > 0:
                found.setdefault(
                    row["arm"],
                    f"`{row['arm']}` ({experiment}): {difference(row)} tokens at the last step",
                )
    return list(found.values())


def _small_weight(study: M2Study, tables: Tables) -> list[str]:
    found: dict[str, str] = {}
    for experiment in LEARNING:
        for row in headline_rows(tables, experiment, "weight_mean"):
            largest = float(study.setting(row["arm"], f"{SCORE}.max_weight"))
            if row["mean"] < SMALL_WEIGHT * largest:
                found.setdefault(
                    row["arm"], f"`{row['arm']}`: mean weight {row['mean']:.4f} of {largest:g}"
                )
    return list(found.values())


def _judges(study: M2Study, tables: Tables) -> list[str]:
    """A stronger judge whose arm is not above the weak one's."""
    means = {row["arm"]: row["mean"] for row in headline_rows(tables, "H")}
    found = []
    for strategy in ("linear", "constant"):
        weak, strong = f"weak_{strategy}_terminal", f"strong_{strategy}_terminal"
        if weak in means and strong in means and means[strong] <= means[weak]:
            found.append(f"`{strong}` {means[strong]:.3f}, `{weak}` {means[weak]:.3f}")
    return found


def _validation(study: M2Study, tables: Tables) -> list[str]:
    best = tables["best_per_metric"]
    found = []
    for scope in ("A", "all"):
        part = best[best.scope == scope].set_index("measure")["best"]
        if {HEADLINE, "val_best"} <= set(part.index) and part[HEADLINE] != part["val_best"]:
            found.append(f"{scope}: test `{part[HEADLINE]}`, validation `{part['val_best']}`")
    return found


def _collapse(study: M2Study, tables: Tables) -> list[str]:
    table = tables["stability"]
    return [
        f"`{row['arm']}`: {row['collapsed_runs']} of {row['finished']} runs"
        for row in table[table.collapsed_runs > 0].to_dict("records")
    ]


def _spikes(study: M2Study, tables: Tables) -> list[str]:
    table = tables["stability"]
    arms = table[(table.loss_spike_runs > 0) | (table.grad_spike_runs > 0)]["arm"].tolist()
    base = table[table.arm == "off"]
    if not arms or base.empty or pd.isna(base.iloc[0].loss_spikes):
        return []
    limit = float(base.iloc[0].loss_spikes + base.iloc[0].grad_spikes)
    total = table.loss_spikes + table.grad_spikes
    more = table[total > limit + 1]["arm"].tolist()
    return [f"{names(more)}; `off` has {limit:.2f}"] if more else []


def _overlap(study: M2Study, tables: Tables) -> list[str]:
    hidden = tables["F_hidden"].groupby("pool", sort=False)["hidden"].mean()
    return [
        f"`{pool}`: {interval_text(share, np.nan, np.nan, signed=True)} of the judge's time"
        for pool, share in hidden.items()
        if share <= 0
    ]


RULES: dict[str, Callable[[M2Study, Tables], list[str]]] = {
    "A control without the judge's judgement (shuffled, random) has at least the mean test"
    " accuracy of the judge": _controls,
    "A weight that follows the entropy has at most the mean test accuracy of a constant"
    " one": _constant,
    "The opposite map (`inverse`) has at least the mean test accuracy of the spec's": _inverse,
    "An arm lies below its baseline with its whole 95 % Student interval (test accuracy,"
    " unadjusted)": _below,
    "Responses at the end are longer than the baseline's with the whole 95 % Student interval"
    " (unadjusted)": _longer,
    "The mean weight is below a tenth of `max_weight`: hardly anything was blended": _small_weight,
    "The strong judge's arm has at most the mean test accuracy of the weak judge's": _judges,
    "The best arm by validation is not the best on the test set": _validation,
    "The entropy collapsed": _collapse,
    "An arm has over one spike a run (loss and gradient) more than the baseline": _spikes,
    "Scoring beside the log-prob pass does not shorten the step": _overlap,
}
