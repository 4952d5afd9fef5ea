"""M2's tables of runs: every measure of every run, stability, correlations, resources."""

from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from refblend.study.design.measures import MEASURES
from refblend.study.report.m2.study import REPORT, M2Study
from refblend.study.report.shared import RUN, incidents_of_runs, resources_of_runs
from refblend.study.runs.curves import stability, validation_frame
from refblend.study.runs.incidents import INCIDENTS, incident_counts
from refblend.study.stats.statistics import student_interval

WEIGHT = "actor/ref_quality/weight"
ENTROPY = "actor/ref_quality/avg_entropy"
ACCURACY = "validation accuracy"
CORRELATED = ((WEIGHT, ENTROPY), (WEIGHT, ACCURACY), (ENTROPY, ACCURACY))
LEAST_POINTS = 4
"""Steps that a correlation over a run needs."""


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


STABILITY_COLUMNS = [
    "arm", "runs", "finished", "loss_spikes", "loss_spike_runs", "grad_spikes", "grad_spike_runs",
    "grad_norm_max", "collapsed_runs", "entropy_end", "length_end", "val_drawdown_max", *INCIDENTS,
]  # fmt: skip


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
            if part[x].isna().all():
                continue
            pairs = part[[x, y]].dropna()
            rho, reason = _spearman(pairs[x], pairs[y])
            names_xy = {"x": x.rpartition("/")[2], "y": y.rpartition("/")[2]}
            row = {"arm": arm, "seed": seed, **names_xy, "points": len(pairs)}
            rows.append(row | {"rho": rho, "reason": reason})
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
        row |= {"mean": interval.estimate, "low": low, "high": high, "note": "; ".join(reasons)}
        rows.append(row)
    table = pd.DataFrame(
        rows, columns=["arm", "x", "y", "runs", "n", "mean", "low", "high", "note"]
    )
    table = table.assign(place=table.arm.map(order)).sort_values(["place"], kind="stable")
    return table.drop(columns="place").reset_index(drop=True)


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
