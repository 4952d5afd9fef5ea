# Every number of every run, kept with the results: reports can be made anew without any run.
# Runs that differ from those there in times only leave the files as they are, hence `update`.
rule archive:
    input:
        expand(
            "runs/{{scale}}/_collected/{milestone}/{name}",
            milestone=reported_milestones(),
            name=layout.COLLECTED,
        ),
        lambda wildcards: quality_files(wildcards.scale),
        lambda wildcards: (
            scoring_report(wildcards.scale) if config["studies"]["m2"] else []
        ),
        grid="results/{scale}/grid.tsv",
    output:
        update("results/{scale}/runs.csv"),
        update("results/{scale}/runs.parquet"),
        update("results/{scale}/responses.parquet"),
    log:
        "logs/{scale}/archive.log",
    conda:
        "../envs/refblend.yaml"
    params:
        code=code("study.runs.archive"),
    shell:
        "refblend study archive --scale {wildcards.scale:q} > {log:q} 2>&1"
