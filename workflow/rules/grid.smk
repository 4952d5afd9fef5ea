# All milestones' experiments in one table; each milestone selects its rows.
rule grid:
    input:
        lambda wildcards: study_grid.config_files(wildcards.scale),
        experiments=[f"params/study/{name}.yaml" for name in EXPERIMENTS],
    output:
        grid="results/{scale}/grid.tsv",
        # Not in a fresh clone, where the committed grid may be that of an earlier design.
        derived="runs/{scale}/_collected/grid.tsv",
    log:
        "logs/{scale}/grid.log",
    conda:
        "../envs/refblend.yaml"
    params:
        names=EXPERIMENTS,
    shell:
        "refblend study grid {params.names:q} --scale {wildcards.scale:q}"
        " --out {output.grid:q} > {log:q} 2>&1 && cp {output.grid:q} {output.derived:q}"
