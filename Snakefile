# The study as a workflow: configuration, rules, targets.
from snakemake.utils import min_version

min_version("9.27")


configfile: "params/workflow.yaml"


include: "workflow/rules/common.smk"
include: "workflow/rules/data.smk"
include: "workflow/rules/models.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/evaluate.smk"
include: "workflow/rules/scoring.smk"
include: "workflow/rules/report.smk"


rule all:
    default_target: True
    input:
        milestone_targets("m1", config["scale"]),


# Data, models and their quality, for any later milestone.
rule prepare:
    input:
        prepare_targets(config["scale"]),


# The judges and the scoring path: quality, experiment D, attacks.
rule scoring:
    input:
        lambda wildcards: scoring_targets(config["scale"]),


# M1: stability of linear blending against the baseline without blending.
rule m1:
    input:
        milestone_targets("m1", config["scale"]),


# M2: experiments A to H.
rule m2:
    input:
        milestone_targets("m2", config["scale"]),


# The same chain at its smallest scale, as run in CI.
rule smoke:
    input:
        milestone_targets("m1", "smoke"),
        scoring_targets("smoke"),
