# The study as a workflow: configuration, rules, targets.
from pathlib import Path

from snakemake.utils import min_version

min_version("9.27")
# A folder that snakedeploy made has the parameters beside its configuration.
if not Path("params").exists() and Path("config/params").is_dir():
    Path("params").symlink_to("config/params")


configfile: "params/workflow.yaml"


include: "workflow/rules/common.smk"
include: "workflow/rules/stopping.smk"
include: "workflow/rules/data.smk"
include: "workflow/rules/models.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/evaluate.smk"
include: "workflow/rules/scoring.smk"
include: "workflow/rules/grid.smk"
include: "workflow/rules/report.smk"
include: "workflow/rules/archive.smk"


# On a cluster these run where Snakemake does: they take seconds.
localrules:
    grid,
    checks,
    block,


rule all:
    default_target: True
    input:
        study_targets(config["scale"]),


# Data, models and their quality, for any later milestone.
rule prepare:
    input:
        study_jobs.prepare_targets(config["scale"]),


# The judges and the scoring path: quality, experiment D, attacks.
rule scoring:
    input:
        lambda wildcards: targets(study_jobs.scoring_targets, config["scale"]),


# M1: stability of linear blending against the baseline without blending.
rule m1:
    input:
        lambda wildcards: milestone_targets("m1", config["scale"]),


# M2: the ablations, experiments A to N (D is measured by the target `scoring`).
rule m2:
    input:
        lambda wildcards: milestone_targets("m2", config["scale"]),


# M3: what earlier runs suggested, confirmed on fresh seeds.
rule m3:
    input:
        lambda wildcards: milestone_targets("m3", config["scale"]),


# R: the main contrasts with a real pretrained model (scale smollm).
rule r:
    input:
        lambda wildcards: milestone_targets("r", config["scale"]),
