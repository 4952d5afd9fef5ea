# The grid and every number of its runs, kept with the results, so that reports can be made anew
# without any run, and every declared contrast as better, worse, equivalent or undecided. `update`: a job
# that fails keeps the files that are there. Snakemake restores them as new ones, so that only the
# marker, which it deletes, tells the next call to try again.
rule archive:
    input:
        lambda wildcards: [
            f"runs/{wildcards.scale}/_collected/{milestone}/{name}"
            for milestone in reported_milestones(wildcards.scale)
            for name in study_names.COLLECTED
        ],
        lambda wildcards: quality_files(wildcards.scale),
        grid="runs/{scale}/_collected/grid.tsv",
        experiments=lambda wildcards: [
            f"params/study/{name}.yaml" for name in experiments(wildcards.scale)
        ],
    output:
        touch("runs/{scale}/_collected/archive.made"),
        update("results/{scale}/grid.tsv"),
        update("results/{scale}/runs.csv"),
        update("results/{scale}/runs.parquet"),
        update("results/{scale}/responses.parquet"),
        update("results/{scale}/verdicts.csv"),
    log:
        "logs/{scale}/archive.log",
    conda:
        "../envs/refblend.yaml"
    params:
        numerics=numerics("report"),
    shell:
        "refblend study archive --scale {wildcards.scale:q} --grid {input.grid:q} > {log:q} 2>&1"
