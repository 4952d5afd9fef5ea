# All milestones' experiments in one table; each milestone selects its rows. What the table depends
# on is its rows: a comment in params/ makes nothing again, another number in params/seeds.yaml does.
rule grid:
    output:
        # Not the archive's, which in a fresh clone may be that of an earlier design.
        "runs/{scale}/_collected/grid.tsv",
    log:
        "logs/{scale}/grid.log",
    conda:
        "../envs/refblend.yaml"
    params:
        digest=lambda wildcards: jobs(wildcards.scale).digest(
            experiments(wildcards.scale)
        ),
    shell:
        "refblend study grid --scale {wildcards.scale:q} --out {output:q} > {log:q} 2>&1"
