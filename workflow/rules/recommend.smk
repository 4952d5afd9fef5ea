# What M2 recommends, and whether it is safe to use.


# What M2's runs recommend, by the rule that its header and its record state, and the blend that M3
# tests: where the rule reward is exact ("recommended"), and in each regime in which it is another.
rule recommend:
    input:
        collected=expand("runs/{{scale}}/_collected/m2/{name}", name=layout.COLLECTED),
        scoring=lambda wildcards: scoring_report(wildcards.scale),
        params=lambda wildcards: study_grid.config_files(wildcards.scale),
        experiments=[f"params/study/{name}.yaml" for name in STUDIES["m2"]],
    output:
        overlay="results/{scale}/m3/{choice}.yaml",
        record="results/{scale}/m3/{choice}.json",
        challenger="results/{scale}/m3/{choice}.challenger.yaml",
    log:
        "logs/{scale}/m3/{choice}.log",
    benchmark:
        "logs/{scale}/m3/{choice}.benchmark.tsv"
    wildcard_constraints:
        choice="recommended|regimes/[a-z0-9_]+",
    conda:
        "../envs/refblend.yaml"
    params:
        numerics=numerics("report"),
        collected=lambda wildcards, input: Path(input.collected[0]).parent,
        attacks=lambda wildcards, input: [
            f"--attacks={Path(report).parent}/tables/attacks.csv"
            for report in input.scoring
        ],
        regime=lambda wildcards: (
            ["--regime", Path(wildcards.choice).name]
            if "/" in wildcards.choice
            else []
        ),
    message:
        "Recommend a configuration: {output.overlay}"
    shell:
        "refblend study recommend --collected {params.collected:q} --scale {wildcards.scale:q}"
        " --params params {params.attacks:q} {params.regime:q} --out {output.overlay:q} > {log:q} 2>&1"


# Last, as `checks`: fails when the recommended configuration is no longer safe to use.
rule guards:
    input:
        collected=expand("runs/{{scale}}/_collected/m3/{name}", name=layout.COLLECTED),
        recommended="results/{scale}/m3/recommended.yaml",
        regimes=lambda wildcards: regime_files(wildcards.scale),
        report="results/{scale}/m3/report.md",
    output:
        "results/{scale}/m3/guards.json",
    log:
        "logs/{scale}/m3/guards.log",
    benchmark:
        "logs/{scale}/m3/guards.benchmark.tsv"
    conda:
        "../envs/refblend.yaml"
    params:
        numerics=numerics("report"),
        collected=lambda wildcards, input: Path(input.collected[0]).parent,
        tolerated=lambda wildcards: tolerated(),
    message:
        "Guards of M3"
    shell:
        "refblend study guard --collected {params.collected:q} --scale {wildcards.scale:q}"
        " --recommended {input.recommended:q} --out {output:q} {params.tolerated:q}"
        " 2>&1 | tee -ip {log:q}"
