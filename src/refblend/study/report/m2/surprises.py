"""Surprises in M2: fixed rules that look for what the method's rationale would not predict."""

from collections.abc import Callable, Iterator
from itertools import permutations
from typing import Any

from refblend.ppo.weights import STRATEGIES, Strategy, WeightParams, weight_for
from refblend.study.design.arms import SCORE, Arm
from refblend.study.design.measures import label
from refblend.study.report.m2.levels import at_endpoint, scope_endpoints
from refblend.study.report.m2.runs import endpoint_rows, summary_rows
from refblend.study.report.m2.study import M2Study, varies_judge, varies_overlap
from refblend.study.report.readable import Row, difference, number
from refblend.study.report.registry import Tables

SMALL_WEIGHT = 0.1
"""Share of ``max_weight`` below which the mean weight hardly blends anything."""

RULES: dict[str, Callable[[M2Study, Tables], Iterator[str]]] = {}


def surprises(study: M2Study, tables: Tables) -> dict[str, list[str]]:
    """Every rule with its findings, each once; nothing found is a result too."""
    return {rule: list(dict.fromkeys(find(study, tables))) for rule, find in RULES.items()}


def rule(text: str) -> Callable[[Any], Any]:
    """Register a rule under what it says."""

    def decorate(find: Any) -> Any:
        RULES[text] = find
        return find

    return decorate


def contrasted(study: M2Study, tables: Tables) -> Iterator[tuple[Arm, Arm, str]]:
    """Both arms of every declared contrast whose mean is not above 0, and its numbers."""
    for row in at_endpoint(study, tables["contrasts"]).to_dict("records"):
        if row["diff"] <= 0:
            text = f"`{row['arm']}` − `{row['against']}` ({row['experiment']}): {difference(row)}"
            yield study.resolved[row["arm"]], study.resolved[row["against"]], text


def compared(study: M2Study, tables: Tables, measure: str = "") -> Iterator[tuple[str, Row]]:
    """Rows of all experiments that learn, of their endpoints unless a measure is named."""
    for name in study.learning:
        named = summary_rows(tables, name, measure) if measure else None
        for row in endpoint_rows(study, tables, name) if named is None else named:
            yield name, row


def slope(strategy: Strategy) -> float:
    """How much the weight rises over the entropies from 0 to the threshold."""
    if not strategy.reads_entropy:
        return 0.0
    low, high = (weight_for(strategy.name, h, 1, 1, WeightParams()) for h in (0.0, 1.0))
    return high - low


@rule("A control (shuffled or random scores) has at least the mean of the judge")
def _controls(study: M2Study, tables: Tables) -> Iterator[str]:
    for judged, other, text in contrasted(study, tables):
        if judged.control == "none" and other.control in ("shuffled", "random"):
            yield text


@rule("A weight that follows the entropy has at most the mean of one that does not")
def _constant(study: M2Study, tables: Tables) -> Iterator[str]:
    for aware, other, text in contrasted(study, tables):
        if slope(STRATEGIES[aware.strategy]) and not slope(STRATEGIES[other.strategy]):
            yield text


@rule("A weight that rises with the entropy has at least the mean of one that falls")
def _rising(study: M2Study, tables: Tables) -> Iterator[str]:
    rows = list(compared(study, tables))
    for experiment, one in rows:
        for name, other in rows:
            rising, falling = study.resolved[one["arm"]], study.resolved[other["arm"]]
            if name != experiment or one["mean"] < other["mean"]:
                continue
            slopes = [slope(STRATEGIES[arm.strategy]) for arm in (rising, falling)]
            if slopes[0] > 0 > slopes[1] and rising.differs_only_in(falling, f"{SCORE}.strategy"):
                yield f"`{one['arm']}` has {one['mean']:.3f}, `{other['arm']}` {other['mean']:.3f}"


@rule("An arm lies below its baseline with its whole 95 % Student interval (endpoint, unadjusted)")
def _below(study: M2Study, tables: Tables) -> Iterator[str]:
    for name, row in compared(study, tables):
        if row["diff"] < 0 and row["diff_high"] < 0:
            yield f"`{row['arm']}` ({name}): {difference(row)}"


@rule("Responses at the end are longer than the baseline's with the whole interval (unadjusted)")
def _longer(study: M2Study, tables: Tables) -> Iterator[str]:
    for name, row in compared(study, tables, "length_end"):
        if row["diff_low"] > 0:
            yield f"`{row['arm']}` ({name}): {difference(row)} tokens at the last step"


@rule("The mean weight is below a tenth of `max_weight`: hardly anything was blended")
def _small_weight(study: M2Study, tables: Tables) -> Iterator[str]:
    for _, row in compared(study, tables, "weight_mean"):
        largest = float(study.resolved[row["arm"]].setting(f"{SCORE}.max_weight"))
        if row["mean"] < SMALL_WEIGHT * largest:
            yield f"`{row['arm']}`: mean weight {row['mean']:.4f} of {largest:g}"


@rule("A judge with a higher AUC within a prompt has at most the mean of one with a lower AUC")
def _judges(study: M2Study, tables: Tables) -> Iterator[str]:
    for name in study.learning:
        rows = {row["arm"]: row for row in endpoint_rows(study, tables, name)}
        if not varies_judge(study.experiments[name]):
            continue
        auc = tables[f"{name}_judge_auc"].groupby("arm").within.mean().dropna()
        for one, other in permutations([arm for arm in rows if arm in auc], 2):
            if auc[one] <= auc[other] or rows[one]["mean"] > rows[other]["mean"]:
                continue
            better, worse = study.resolved[one], study.resolved[other]
            if better.differs_only_in(worse, f"{SCORE}.scoring.model_path"):
                yield f"`{one}` {rows[one]['mean']:.3f}, `{other}` {rows[other]['mean']:.3f}"


@rule("The best arm by validation is not the best by the endpoint")
def _validation(study: M2Study, tables: Tables) -> Iterator[str]:
    best = tables["best_per_metric"].set_index(["scope", "measure"])["best"]
    for scope, endpoint in scope_endpoints(study).items():
        arms = best.get((scope, endpoint)), best.get((scope, "val_best"))
        if all(arms) and arms[0] != arms[1]:
            name = "test" if endpoint.startswith("test_") else label(endpoint)
            yield f"{scope}: {name} `{arms[0]}`, validation `{arms[1]}`"


@rule("The entropy collapsed")
def _collapse(study: M2Study, tables: Tables) -> Iterator[str]:
    for row in tables["stability"].query("collapsed_runs > 0").itertuples():
        yield f"`{row.arm}`: {row.collapsed_runs} of {row.finished} runs"


@rule("An arm has over one spike per run (loss and gradient) more than its baseline")
def _spikes(study: M2Study, tables: Tables) -> Iterator[str]:
    for name in study.learning:
        kinds = [summary_rows(tables, name, f"{kind}_spikes") for kind in ("loss", "grad")]
        more: dict[str, float] = {}
        for row in (row for rows in kinds for row in rows):
            more[row["arm"]] = more.get(row["arm"], 0.0) + row["diff"]
        for arm, spikes in more.items():
            if spikes > 1:
                pair = f"`{arm}` − `{study.baseline(name, arm)}`"
                yield f"{pair} ({name}): {spikes:+.2f} spikes a run"


@rule("Scoring beside the log-prob pass does not shorten the step")
def _overlap(study: M2Study, tables: Tables) -> Iterator[str]:
    for name in (name for name, spec in study.experiments.items() if varies_overlap(spec)):
        hidden = tables[f"{name}_hidden"].groupby("pool", sort=False)["hidden"].mean()
        for pool, share in hidden[hidden <= 0].items():
            yield f"`{pool}`: {number(share, signed=True)} of the judge's time"
