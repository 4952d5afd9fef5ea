"""M2's tables of runs and arms: measures, stability, correlations, resources, and accuracy taken
apart by difficulty, by length and by several tries.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from refblend.study.design.measures import MEASURES, with_endpoint
from refblend.study.report.m2.costs import readable_costs
from refblend.study.report.m2.study import REPORT, M2Study, learns
from refblend.study.report.readable import Row, readable_summary
from refblend.study.report.registry import Tables
from refblend.study.report.shared import RUN, incidents_of_runs, resources_of_runs
from refblend.study.report.summary import MAIN_MEASURES, summarise
from refblend.study.runs.curves import stability, validation_frame
from refblend.study.runs.incidents import INCIDENTS, incident_counts
from refblend.study.stats.statistics import student_interval

WEIGHT = "actor/ref_quality/weight"
ENTROPY = "actor/ref_quality/avg_entropy"
ACCURACY = "validation accuracy"
CORRELATED = ((WEIGHT, ENTROPY), (WEIGHT, ACCURACY), (ENTROPY, ACCURACY))
LEAST_POINTS = 4
"""Steps that a correlation over a run needs."""


STABILITY_COLUMNS = [
    "arm", "runs", "finished", "loss_spikes", "loss_spike_runs", "grad_spikes", "grad_spike_runs",
    "grad_norm_max", "collapsed_runs", "entropy_end", "length_end", "val_drawdown_max", *INCIDENTS,
]  # fmt: skip
STEPS = "test/greedy_steps_"
LENGTH_BINS = 4


@REPORT.table("per_seed")
def per_seed(study: M2Study) -> pd.DataFrame:
    """Every run of the grid with all its measures; runs that did not finish keep their row."""
    runs = study.collected.runs[[*RUN, "status", "reason", "steps"]]
    runs = runs.assign(experiments=runs.arm.map(study.used_in()).fillna(""))
    measures = study.values.pivot(index=RUN, columns="measure", values="value")
    measures = measures.reindex(columns=list(MEASURES)).astype("float64").reset_index()
    head = [*RUN, "experiments", "status", "reason", "steps"]
    if measures.empty:
        return runs[head].reindex(columns=[*head, *MEASURES])
    return runs[head].merge(measures, on=RUN, how="left")


@REPORT.table("stability", shown=True)
def stability_by_arm(study: M2Study) -> pd.DataFrame:
    """Every arm that learns: spikes, collapse of the entropy, drawdown, incidents.

    ``loss_spikes`` and ``grad_spikes`` are means over finished runs, ``*_runs`` counts of runs
    with any; ``val_drawdown_max`` and ``grad_norm_max`` are the worst run's. Incidents are sums
    over all runs, failed ones included.
    """
    collected = study.collected
    frame = stability(collected.counted_metrics)
    counted = incident_counts(collected.metrics, collected.runs)
    rows = []
    for arm in study.all_arms():
        runs = collected.runs[collected.runs.arm == arm]
        part = frame[frame.arm == arm]
        counts = counted[counted.arm == arm][list(INCIDENTS)].sum(min_count=1)
        row: dict[str, Any] = {"arm": arm, "runs": len(runs), "finished": len(part)}
        for kind in ("loss", "grad"):
            row[f"{kind}_spikes"] = part[f"{kind}_spikes"].mean()
            row[f"{kind}_spike_runs"] = int((part[f"{kind}_spikes"] > 0).sum())
        row |= {
            "grad_norm_max": part["grad_norm_max"].max(),
            "collapsed_runs": int(part["entropy_collapse"].notna().sum()),
            "entropy_end": part["entropy_end"].mean(),
            "length_end": part["length_end"].mean(),
            "val_drawdown_max": part["val_drawdown"].max(),
        }
        rows.append(row | counts.to_dict())
    table = pd.DataFrame(rows, columns=STABILITY_COLUMNS)
    return table.astype(dict.fromkeys(INCIDENTS, "Int64"))


@REPORT.table("correlations_per_seed")
def run_correlations(study: M2Study) -> pd.DataFrame:
    """Spearman's correlation over the steps of every finished run that learns.

    Weight and entropy are taken at every training step; with the validation accuracy, at the
    steps that were validated. Constant series have no correlation: the row says so.

    Returns:
        Columns arm, seed, x, y, points, rho, reason.
    """
    metrics = study.collected.counted_metrics
    metrics = metrics[metrics.arm.isin(study.all_arms())]
    accuracy = validation_frame(metrics)
    accuracy = accuracy[accuracy.measure == "acc"].assign(metric=ACCURACY)
    names = [*RUN, "step", "metric", "value"]
    rows_of = metrics[metrics.metric.isin([WEIGHT, ENTROPY])]
    table = pd.concat([rows_of[names], accuracy[names]]).pivot_table(
        index=[*RUN, "step"], columns="metric", values="value"
    )
    table = table.reindex(columns=[WEIGHT, ENTROPY, ACCURACY])
    rows = []
    for (arm, seed), part in table.groupby(level=RUN):
        for x, y in CORRELATED:
            if part[x].notna().any():
                pairs = part[[x, y]].dropna()
                short = (name.rpartition("/")[2] for name in (x, y))
                rows.append((arm, seed, *short, len(pairs), *_spearman(pairs[x], pairs[y])))
    return pd.DataFrame(rows, columns=[*RUN, "x", "y", "points", "rho", "reason"])


def _spearman(x: pd.Series, y: pd.Series) -> tuple[float, str]:
    """The correlation, or why there is none."""
    if len(x) < LEAST_POINTS:
        return np.nan, f"fewer than {LEAST_POINTS} steps"
    for series in (x, y):
        if series.nunique() < 2:
            return np.nan, f"{str(series.name).rpartition('/')[2]} is constant"
    return float(stats.spearmanr(x, y).statistic), ""


@REPORT.table("correlations", shown=True)
def correlation_summary(study: M2Study, tables: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """Mean correlation of every arm over its seeds with Student's interval, kept within −1 … 1.

    Returns:
        Columns arm, x, y, runs, n (runs that have one), mean, low, high, note.
    """
    order = {arm: place for place, arm in enumerate(study.all_arms())}
    runs = tables["correlations_per_seed"]
    rows = []
    for (arm, x, y), part in runs.groupby(["arm", "x", "y"], sort=False):
        interval = student_interval(part["rho"].dropna())
        reasons = sorted({reason for reason in part["reason"] if reason})
        row = {"arm": arm, "x": x, "y": y, "runs": len(part), "n": interval.n}
        low, high = np.clip([interval.low, interval.high], -1.0, 1.0)
        row |= {"mean": interval.estimate, "low": low, "high": high}
        rows.append(row | {"note": "; ".join(reasons)})
    rows.sort(key=lambda row: order[row["arm"]])
    columns = ["arm", "x", "y", "runs", "n", "mean", "low", "high", "note"]
    return pd.DataFrame(rows, columns=columns)


@REPORT.table("costs_by_arm", shown=True)
def resources_by_arm(study: M2Study) -> pd.DataFrame:
    """Every arm: runs, hours, energy and emissions (estimates), summed over its runs."""
    runs = study.collected.runs
    totals = runs.groupby("arm", sort=False).agg(
        runs=("seed", "size"),
        finished=("status", lambda status: int((status == "finished").sum())),
        hours=("wall_time_s", lambda seconds: seconds.sum(min_count=1) / 3600),
        energy_kwh=("energy_kwh", lambda energy: energy.sum(min_count=1)),
        kg_co2e=("kg_co2e", lambda mass: mass.sum(min_count=1)),
        resumed=("resumed", lambda count: count.sum(min_count=1)),
    )
    step = study.values[study.values.measure == "step_seconds"].groupby("arm")["value"].mean()
    totals["step_seconds"] = step.reindex(totals.index)
    used_in = study.used_in()
    totals.insert(0, "experiments", [used_in.get(str(arm), "") for arm in totals.index])
    return totals.reset_index()


REPORT.table("incidents")(incidents_of_runs)
REPORT.table("resources")(resources_of_runs)


@REPORT.table("{experiment}_summary", each=learns)
def experiment_summary(
    study: M2Study, experiment: str, measures: Sequence[str] | None = None
) -> pd.DataFrame:
    """One row per measure and arm of an experiment, as :func:`..summary.summarise` gives it.

    Arms whose runs failed have rows too, with n = 0; measures that no run of the experiment has
    are left out. By default the main measures and the experiment's endpoint.
    """
    if measures is None:
        measures = with_endpoint(study.experiments[experiment].endpoint, MAIN_MEASURES)
    family = study.family(experiment)
    return summarise(family, lambda measure: study.wide(experiment, measure), measures)


@REPORT.table("{experiment}_main", shown=True, each=lambda spec: True)
def experiment_main(study: M2Study, tables: Tables, experiment: str) -> pd.DataFrame:
    """The main measures of an experiment, one row per arm, each with its interval in one cell."""
    spec = study.experiments[experiment]
    if spec.exclusive:
        return readable_costs(tables[f"{experiment}_costs"], list(spec.factors))
    return readable_summary(tables[f"{experiment}_summary"], spec.endpoint)


def summary_rows(tables: Tables, experiment: str, measure: str) -> list[Row]:
    """Rows of a summary that have values of a measure, in the order of the arms."""
    table = tables[f"{experiment}_summary"]
    return table[(table.measure == measure) & (table.n > 0)].to_dict("records")


def endpoint_rows(study: M2Study, tables: Tables, experiment: str) -> list[Row]:
    """Those of the measure that the experiment is decided by."""
    return summary_rows(tables, experiment, study.experiments[experiment].endpoint)


@REPORT.table("breakdown", shown=True)
def breakdown(study: M2Study) -> pd.DataFrame:
    """One row per arm, means over its finished runs.

    ``<n> steps``: greedy test accuracy where solutions have n steps; ``truncated``: greedy test
    answers that were cut off; ``pass@n`` of the last recorded training step; ``length-controlled``:
    accuracy of its responses, the lengths weighted as the baseline has them, and its difference.
    """
    levels = difficulties(study)
    frame = study.collected.responses.merge(study.collected.finished[RUN], on=RUN)
    last = frame[frame.step == frame.groupby(RUN).step.transform("max")]
    rows = []
    for arm in study.all_arms():
        base = next(study.baseline(name, arm) for name in study.learning if arm in study.arms(name))
        own, others = (last[last.arm == name] for name in (arm, base))
        controlled = length_controlled(own, others)
        group = study.resolved[arm].config.actor_rollout_ref.rollout.n
        rows.append(
            {"arm": arm}
            | {f"{n} steps": by_difficulty(study, arm, n).mean() for n in levels}
            | {"truncated": _values(study, arm, "test/truncated").mean()}
            | {f"pass@{group}": pass_at_n(own, group)}
            | {"length-controlled": controlled}
            | {"difference": controlled - length_controlled(others, others)}
        )
    return pd.DataFrame(rows)


def difficulties(study: M2Study) -> list[int]:
    """Numbers of steps that test problems have."""
    names = study.metrics["metric"].drop_duplicates()
    return sorted(int(name.removeprefix(STEPS)) for name in names if name.startswith(STEPS))


def by_difficulty(study: M2Study, arm: str, level: int) -> pd.Series:
    """Greedy test accuracy of an arm's runs on problems of so many steps."""
    return _values(study, arm, f"{STEPS}{level}")


def pass_at_n(responses: pd.DataFrame, n: int) -> float:
    """Share of prompts with a right answer among their n responses, which follow one another."""
    hits = []
    for _, part in responses.groupby([*RUN, "step"], sort=False):
        right = part.acc.ge(0.5).to_numpy()
        hits += list(right[: len(right) // n * n].reshape(-1, n).any(axis=1))
    return float(np.mean(hits)) if hits else np.nan


def length_controlled(responses: pd.DataFrame, baseline: pd.DataFrame) -> float:
    """Accuracy if lengths were distributed as the baseline's, in bins of its quantiles.

    Bins without a response of the arm are left out, and the others' weights rise.
    """
    if responses.empty or baseline.empty:
        return np.nan
    inner = np.unique(np.quantile(baseline.length, np.linspace(0, 1, LENGTH_BINS + 1)[1:-1]))
    own, weights = (np.searchsorted(inner, frame.length) for frame in (responses, baseline))
    accuracy = responses.acc.ge(0.5).groupby(own).mean()
    share = pd.Series(weights).value_counts(normalize=True).reindex(accuracy.index).fillna(0)
    return float((accuracy * share).sum() / share.sum()) if share.sum() else np.nan


def _values(study: M2Study, arm: str, metric: str) -> pd.Series:
    metrics = study.metrics
    return metrics[(metrics.arm == arm) & (metrics.metric == metric)]["value"]
