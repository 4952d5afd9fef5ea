# Every number of every run, kept with the results: reports can be made anew without any run.
# Runs that differ from those there in times only leave the files as they are, hence `update`.
rule archive:
    input:
        expand(
            "runs/{{scale}}/_collected/{milestone}/{name}",
            milestone=reported_milestones(),
            name=study_names.COLLECTED,
        ),
        lambda wildcards: quality_files(wildcards.scale),
        grid="runs/{scale}/_collected/grid.tsv",
    output:
        update("results/{scale}/runs.csv"),
        update("results/{scale}/runs.parquet"),
        update("results/{scale}/responses.parquet"),
    log:
        "logs/{scale}/archive.log",
    conda:
        "../envs/refblend.yaml"
    params:
        numerics=numerics("report"),
    shell:
        "refblend study archive --scale {wildcards.scale:q} > {log:q} 2>&1"


# Every declared contrast of all experiments: better, worse, equivalent or undecided.
rule verdicts:
    input:
        "results/{scale}/runs.csv",
        "results/{scale}/runs.parquet",
        "results/{scale}/responses.parquet",
        experiments=[f"params/study/{name}.yaml" for name in EXPERIMENTS],
    output:
        "results/{scale}/verdicts.csv",
    log:
        "logs/{scale}/verdicts.log",
    wildcard_constraints:
        scale=f"{config['scale']}|smoke",  # the target `smoke` is of that scale, whatever is set
    conda:
        "../envs/refblend.yaml"
    params:
        numerics=numerics("report"),
    shell:
        "refblend study verdicts --scale {wildcards.scale:q} > {log:q} 2>&1"
