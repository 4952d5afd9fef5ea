"""All tables of milestone M2 by name."""

import pandas as pd

from refblend.study.report.m2.best import best_per_metric
from refblend.study.report.m2.contrasts import contrasts
from refblend.study.report.m2.costs import FACTORS, cost_table, hidden_judge_time, scoring_table
from refblend.study.report.m2.levels import knee_and_pivot, level_means, placement_rule
from refblend.study.report.m2.runs import (
    correlation_summary,
    not_finished,
    per_seed,
    resources_by_arm,
    run_correlations,
    stability_by_arm,
)
from refblend.study.report.m2.study import LEARNING, M2Study, read_m2_study
from refblend.study.report.readable import readable_contrasts, readable_costs, readable_summary
from refblend.study.report.summary import experiment_summary
from refblend.study.runs.incidents import incidents_table, resources

__all__ = ["M2Study", "m2_tables", "read_m2_study"]


def m2_tables(study: M2Study) -> dict[str, pd.DataFrame]:
    """All tables by the names of :data:`refblend.study.layout.M2_TABLES`."""
    tables: dict[str, pd.DataFrame] = {}
    for name in LEARNING:
        tables[f"{name}_summary"] = experiment_summary(study, name)
        tables[f"{name}_main"] = readable_summary(tables[f"{name}_summary"])
    tables["D_scoring"] = scoring_table(study)
    for name, kind in (("E", "lengths"), ("F", "overlap")):
        tables[f"{name}_{kind}"] = cost_table(study, name)
        tables[f"{name}_main"] = readable_costs(tables[f"{name}_{kind}"], list(FACTORS[name]))
    correlations, stated = run_correlations(study), contrasts(study)
    return tables | {
        "F_hidden": hidden_judge_time(study),
        "BC_levels": level_means(study),
        "BC_knee_pivot": knee_and_pivot(study),
        "G_placement": placement_rule(study),
        "contrasts": stated,
        "contrasts_main": readable_contrasts(stated),
        "best_per_metric": best_per_metric(study),
        "stability": stability_by_arm(study),
        "correlations": correlation_summary(study, correlations),
        "correlations_per_seed": correlations,
        "incidents": incidents_table(study.collected),
        "costs_by_arm": resources_by_arm(study),
        "resources": resources(study.collected),
        "per_seed": per_seed(study),
        "not_finished": not_finished(study),
    }
