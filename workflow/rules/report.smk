# From runs to a report: collected frames, the report of a milestone or of one experiment, checks.
# `snakemake results/<scale>/<experiment>/report.md` trains and reports one experiment alone, if it is
# none of a series.
wildcard_constraints:
    report="|".join(
        {*study_names.MILESTONES}.union(*map(experiments, study_names.SCALES))
    ),


rule collect:
    input:
        lambda wildcards: jobs(wildcards.scale).markers(wildcards.report, "trained"),
        lambda wildcards: jobs(wildcards.scale).markers(wildcards.report, "tested"),
        grid="runs/{scale}/_collected/grid.tsv",
    output:
        expand(
            "runs/{{scale}}/_collected/{{report}}/{name}", name=study_names.COLLECTED
        ),
    log:
        "logs/{scale}/{report}/collect.log",
    conda:
        "../envs/refblend.yaml"
    params:
        numerics=numerics("report"),
        names=reported,
        out=subpath(output[0], parent=True),
    shell:
        "refblend study collect --grid {input.grid:q} --scale {wildcards.scale:q}"
        " --out {params.out:q} {params.names:q} > {log:q} 2>&1"


# Tables, figures and the page. A changed figure takes a minute: one job for all of them. The two
# folders are wholly ours, and written anew each time.
rule report:
    input:
        expand(
            "runs/{{scale}}/_collected/{{report}}/{name}", name=study_names.COLLECTED
        ),
        lambda wildcards: [f"params/study/{name}.yaml" for name in reported(wildcards)],
    output:
        "results/{scale}/{report}/report.md",
        directory("results/{scale}/{report}/tables"),
        directory("results/{scale}/{report}/figures"),
    log:
        "logs/{scale}/{report}/report.log",
    conda:
        "../envs/refblend.yaml"
    params:
        numerics=numerics("report"),
    message:
        "Report {output[0]}"
    shell:
        "refblend study report {wildcards.report:q} --scale {wildcards.scale:q} > {log:q} 2>&1"


use rule report as scoring_report_rule with:
    input:
        "results/{scale}/scoring/measurements/robustness.json",
        "results/{scale}/scoring/measurements/attacks.json",
        lambda wildcards: quality_files(wildcards.scale),
    output:
        "results/{scale}/{report}/report.md",
        directory("results/{scale}/{report}/tables"),
        directory("results/{scale}/{report}/figures"),
    wildcard_constraints:
        report="scoring",


# Last and after the report: the target fails when a run failed or incidents exceed what
# params/workflow.yaml tolerates, and the report that says so is there.
rule checks:
    input:
        collected=expand(
            "runs/{{scale}}/_collected/{{report}}/{name}", name=study_names.COLLECTED
        ),
        report="results/{scale}/{report}/report.md",
    output:
        "results/{scale}/{report}/checks.json",
    log:
        "logs/{scale}/{report}/checks.log",
    conda:
        "../envs/refblend.yaml"
    params:
        numerics=numerics("report"),
        collected=lambda wildcards, input: Path(input.collected[0]).parent,
        tolerated=[f"--{kind}={n}" for kind, n in sorted(config["checks"].items())],
    shell:
        "refblend study check --collected {params.collected:q} --out {output:q}"
        " {params.tolerated:q} 2>&1 | tee -ip {log:q}"
