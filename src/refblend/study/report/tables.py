"""Tables of runs and arms, and the list of all tables of a report."""

import numpy as np
import pandas as pd

from refblend.study.design.measures import ACCURACIES, with_endpoint
from refblend.study.recommend import recommendations, table
from refblend.study.report.alignment import alignment_by_arm, rank_correlations
from refblend.study.report.study import Study, judged
from refblend.study.report.summary import (
    best_per_metric,
    chosen_levels,
    cost_table,
    experiment_summary,
)
from refblend.study.report.verdicts import verdicts
from refblend.study.runs.collect import RUN, STEP
from refblend.study.runs.incidents import INCIDENTS, incident_counts, incidents_table, resources
from refblend.study.runs.measures import accuracy_by_step, auc_within
from refblend.study.stats.dose import dose_response
from refblend.study.stats.statistics import rank_correlation

WEIGHT = "actor/ref_quality/weight"
ENTROPY = "actor/ref_quality/avg_entropy"
ACCURACY = "validation accuracy"
CORRELATED = ((WEIGHT, ENTROPY), (WEIGHT, ACCURACY), (ENTROPY, ACCURACY))
LEAST_POINTS = 4
"""Steps that a correlation over a run needs."""


def tables_of(study: Study) -> dict[str, pd.DataFrame]:
    """All tables of a report by name, each written as ``tables/<name>.csv``."""
    tables = {"verdicts": verdicts(study.values, study.experiments, study.scale)}
    for name, spec in study.experiments.items():
        if spec.exclusive:
            tables[f"{name}_costs"] = cost_table(study, name)
        else:
            tables[f"{name}_summary"] = experiment_summary(study, name)
        if judged(spec):
            tables[f"{name}_judge_auc"] = judge_auc(study, name)
        if spec.dose:
            tables[f"{name}_dose"] = dose_table(study, name)
    if any(study.levels(name) for name in study.experiments):
        tables["knee_pivot"] = chosen_levels(study)
    tables |= {
        "stability": stability_by_arm(study),
        "incidents": incidents_table(study.collected),
        "per_seed": per_seed(study),
        "best_per_metric": best_per_metric(study),
        "correlations_per_seed": run_correlations(study),
        "resources": resources(study.collected),
        "costs_by_arm": costs_by_arm(study),
    }
    if len(ranks := rank_correlations(study)):
        tables |= {"alignment": alignment_by_arm(study), "alignment_rank": ranks}
    found = recommendations(tables["verdicts"], study.experiments, study.resolved, study.scale)
    if found:
        tables["recommendations"] = table(found)
    return tables


def per_seed(study: Study) -> pd.DataFrame:
    """Every run of the grid with all its measures; runs that did not finish keep their row."""
    runs = study.collected.runs[[*RUN, "status", "reason", "steps"]]
    runs = runs.assign(experiments=runs.arm.map(study.used_in()).fillna(""))
    head = [*RUN, "experiments", "status", "reason", "steps"]
    return runs[head].merge(study.values, on=RUN, how="left")


def stability_by_arm(study: Study) -> pd.DataFrame:
    """Every arm that learns: incidents of all its runs, then what its finished runs were like.

    Spikes are means over the runs; the fall of the validation accuracy is the worst run's.
    """
    runs, incidents = study.collected.runs, incident_counts(study.collected)
    measured = study.values.groupby("arm")
    finished = study.collected.finished.arm.value_counts()
    table = pd.DataFrame({"runs": runs.groupby("arm").size(), "finished": finished})
    table = table.join(incidents.groupby("arm")[list(INCIDENTS)].sum(min_count=1))
    table["collapsed_runs"] = measured.entropy_collapse.sum()
    table["loss_spikes"] = measured.loss_spikes.mean()
    table["grad_spikes"] = measured.grad_spikes.mean()
    table["val_drawdown_max"] = measured.val_drawdown.max()
    table = table.reindex(study.all_arms()).fillna({"finished": 0, "collapsed_runs": 0})
    counts = dict.fromkeys(("runs", "finished", *INCIDENTS, "collapsed_runs"), "Int64")
    return table.astype(counts).rename_axis("arm").reset_index()


def run_correlations(study: Study) -> pd.DataFrame:
    """Spearman's correlation over the steps of every finished run that learns.

    Weight and entropy are taken at every training step; with the validation accuracy, at the
    steps that were validated. A constant series has no correlation. All series have a trend, so
    ``rho_of_changes`` correlates the changes from step to step.
    """
    metrics = study.metrics[study.metrics.arm.isin(study.all_arms())]
    accuracy = accuracy_by_step(metrics).rename(columns={"value": ACCURACY})
    table = metrics.reindex(columns=[*STEP, WEIGHT, ENTROPY]).merge(accuracy, on=STEP, how="left")
    rows = []
    for (arm, seed), part in table.sort_values(STEP).groupby(RUN):
        for x, y in CORRELATED:
            if part[x].notna().any():
                short = [name.rpartition("/")[2] for name in (x, y)]
                pairs = part[[x, y]].dropna().to_numpy().T
                points = pairs.shape[1]
                rho = rank_correlation(*pairs) if points >= LEAST_POINTS else np.nan
                changes = rank_correlation(*np.diff(pairs)) if points > LEAST_POINTS else np.nan
                rows.append((arm, seed, *short, points, rho, changes))
    columns = [*RUN, "x", "y", "points", "rho", "rho_of_changes"]
    return pd.DataFrame(rows, columns=columns)


def costs_by_arm(study: Study) -> pd.DataFrame:
    """Every arm: runs, hours, energy and emissions (estimates), summed over its runs."""
    totals = study.collected.runs.groupby("arm", sort=False).agg(
        runs=("seed", "size"),
        finished=("status", lambda status: int((status == "finished").sum())),
        hours=("wall_time_s", lambda seconds: seconds.sum(min_count=1) / 3600),
        energy_kwh=("energy_kwh", lambda energy: energy.sum(min_count=1)),
        kg_co2e=("kg_co2e", lambda mass: mass.sum(min_count=1)),
        resumed=("resumed", lambda count: count.sum(min_count=1)),
    )
    totals["step_seconds"] = study.values.groupby("arm").step_seconds.mean()
    used_in = study.used_in()
    totals.insert(0, "experiments", [used_in.get(str(arm), "") for arm in totals.index])
    return totals.reset_index()


def judge_auc(study: Study, experiment: str) -> pd.DataFrame:
    """Every run with a judge: arm, judge, seed, its AUC ``within`` a prompt and ``pooled``.

    Within a prompt it is that of the kept training responses; pooled over the prompts of a batch
    the mean over all steps. A judge that only tells easy from hard problems is good pooled, and
    of no use to a policy that is trained on differences within a prompt.
    """
    pooled, responses = study.wide(experiment, "judge_auc"), study.of(experiment, study.responses)
    kept = dict(iter(responses.groupby(RUN, sort=False)))
    rows = []
    for arm in study.treated(experiment):
        n = study.resolved[arm].config.actor_rollout_ref.rollout.n
        for seed in study.seeds(experiment)[arm]:
            within = auc_within(kept[arm, seed], n) if (arm, seed) in kept else np.nan
            row = {"arm": arm, "judge": study.resolved[arm].judge, "seed": seed}
            rows.append(row | {"within": within, "pooled": pooled[arm].get(seed, np.nan)})
    return pd.DataFrame(rows, columns=["arm", "judge", "seed", "within", "pooled"])


def dose_table(study: Study, experiment: str) -> pd.DataFrame:
    """Slope on the weight that runs had, and lack of fit, by the endpoint and both accuracies."""
    weights, rows = study.wide(experiment, "weight_mean"), []
    weights[[arm for arm in weights if not study.resolved[arm].score.enable]] = 0.0
    runs = weights.melt(var_name="arm", value_name="dose", ignore_index=False).reset_index()
    for measure in with_endpoint(study.experiments[experiment].endpoint, list(ACCURACIES)):
        outcome = study.wide(experiment, measure).melt()["value"]
        rows.append({"measure": measure} | dose_response(runs.assign(outcome=outcome)))
    return pd.DataFrame(rows)
