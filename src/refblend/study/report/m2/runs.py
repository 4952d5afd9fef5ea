"""M2's tables of runs and arms: measures, stability, correlations, resources."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from refblend.study.design.measures import MEASURES, with_endpoint
from refblend.study.report.m2.costs import readable_costs
from refblend.study.report.m2.study import REPORT, M2Study, learns
from refblend.study.report.readable import DECIDING, Row, cell, readable_summary, words
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
    "runs", "finished", "loss_spikes", "loss_spike_runs", "grad_spikes", "grad_spike_runs",
    "grad_norm_max", "collapsed_runs", "entropy_end", "length_end", "val_drawdown_max", *INCIDENTS,
]  # fmt: skip
COUNTED = ["collapsed_runs", *INCIDENTS]
"""Columns of the table of stability that are mostly 0."""
MONOTONE = 0.995
"""A weight whose correlation with the entropy is beyond ± this merely follows its map."""


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
    """Every arm that learns, by warm start: spikes, collapse, drawdown, incidents.

    ``loss_spikes`` and ``grad_spikes`` are means over finished runs, ``*_runs`` counts of runs
    with any; ``val_drawdown_max`` and ``grad_norm_max`` are the worst run's. Incidents are sums
    over all runs, failed ones included.
    """
    collected = study.collected
    frame = stability(collected.counted_metrics)
    counted = incident_counts(collected.metrics, collected.runs)
    rows = []
    for head, seeds in study.groups():
        runs, part, counts = (
            each[(each.arm == head["arm"]) & each.seed.isin(seeds)]
            for each in (collected.runs, frame, counted)
        )
        row: dict[str, Any] = head | {"runs": len(runs), "finished": len(part)}
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
        rows.append(row | counts[list(INCIDENTS)].sum(min_count=1).to_dict())
    columns = ["arm", *["warm_start"] * study.several_starts, *STABILITY_COLUMNS]
    table = pd.DataFrame(rows, columns=columns)
    return table.astype(dict.fromkeys(INCIDENTS, "Int64"))


@REPORT.table("stability_main", shown=True)
def readable_stability(tables: Tables) -> pd.DataFrame:
    """The table of stability without the counts that are 0 in every row, for readers."""
    return tables["stability"].drop(columns=never_counted(tables))


def never_counted(tables: Tables) -> list[str]:
    """Those of :data:`COUNTED` that nothing was counted of."""
    table = tables["stability"]
    return [name for name in COUNTED if len(table) and (table[name] == 0).all()]


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


@REPORT.table("correlations")
def correlation_summary(study: M2Study, tables: Tables) -> pd.DataFrame:
    """Mean correlation of every arm over its seeds with Student's interval, kept within −1 … 1.

    Returns:
        Columns arm, the warm start where there are several, x, y, runs, n (runs that have one),
        mean, low, high, note.
    """
    runs = tables["correlations_per_seed"]
    rows = []
    for head, seeds in study.groups():
        own = runs[(runs.arm == head["arm"]) & runs.seed.isin(seeds)]
        for (x, y), part in own.groupby(["x", "y"], sort=False):
            interval = student_interval(part["rho"].dropna())
            reasons = sorted({reason for reason in part["reason"] if reason})
            row = head | {"x": x, "y": y, "runs": len(part), "n": interval.n}
            low, high = np.clip([interval.low, interval.high], -1.0, 1.0)
            row |= {"mean": interval.estimate, "low": low, "high": high}
            rows.append(row | {"note": "; ".join(reasons)})
    columns = ["arm", *["warm_start"] * study.several_starts, "x", "y", "runs", "n"]
    return pd.DataFrame(rows, columns=[*columns, "mean", "low", "high", "note"])


@REPORT.table("correlations_main", shown=True)
def readable_correlations(tables: Tables) -> pd.DataFrame:
    """The correlations of arms whose weight varies and is no mere map of the entropy: a row each.

    Weight against entropy of the others is −1, 1 or nothing by construction, and their weight
    against accuracy is what the entropy has, with the map's sign.
    """
    table = tables["correlations"]
    keys = [name for name in ("arm", "warm_start") if name in table]
    rows: dict[tuple[str, ...], dict[str, Any]] = {}
    for row in table.to_dict("records"):
        cells = rows.setdefault(tuple(row[key] for key in keys), {key: row[key] for key in keys})
        cells["n"] = max(row["n"], cells.get("n", 0))
        cells[f"{words(row['x'])} against {words(row['y'])}"] = cell(row, "mean")
        if row["x"] == "weight" and row["y"] != ACCURACY and abs(row["mean"]) < MONOTONE:
            cells["told"] = True
    shown = [cells for cells in rows.values() if cells.pop("told", False)]
    return pd.DataFrame(shown, columns=None if shown else [*keys, "n"])


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
    are left out. By default the main measures, the experiment's endpoint, and the measure of its
    contrasts.
    """
    if measures is None:
        measures = with_endpoint(study.compared_by(experiment), MAIN_MEASURES)
        measures = with_endpoint(study.experiments[experiment].endpoint, measures)
    family = study.family(experiment)
    return summarise(family, lambda measure: study.wide(experiment, measure), measures)


@REPORT.table("{experiment}_main", shown=True, each=lambda spec: True)
def experiment_main(study: M2Study, tables: Tables, experiment: str) -> pd.DataFrame:
    """The main measures of an experiment, one row per arm, each with its interval in one cell."""
    spec = study.experiments[experiment]
    if spec.exclusive:
        return readable_costs(tables[f"{experiment}_costs"], list(spec.factors))
    table = readable_summary(tables[f"{experiment}_summary"], spec.endpoint)
    if not len(table):
        return table
    dropped = [name for name in DECIDING if name in table] if declares(study, experiment) else []
    if len(study.baselines(experiment)) == 1 and "against" in table:
        dropped.append("against")
    return table.drop(columns=dropped)


def declares(study: M2Study, experiment: str) -> bool:
    """Whether an experiment declares contrasts at this scale, which then alone have verdicts."""
    spec = study.experiments[experiment]
    return any(spec.pairs_of(contrast, study.scale) for contrast in spec.contrasts)


def summary_rows(tables: Tables, experiment: str, measure: str) -> list[Row]:
    """Rows of a summary that have values of a measure, in the order of the arms."""
    table = tables[f"{experiment}_summary"]
    return table[(table.measure == measure) & (table.n > 0)].to_dict("records")


def endpoint_rows(study: M2Study, tables: Tables, experiment: str) -> list[Row]:
    """Those of the measure that the experiment is decided by."""
    return summary_rows(tables, experiment, study.experiments[experiment].endpoint)
