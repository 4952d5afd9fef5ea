# From runs to a milestone's record: grid, collected frames, tables, figures, report, checks.


# All milestones' experiments in one table; each milestone selects its rows.
rule grid:
    input:
        sources("study", "config"),
        lambda wildcards: study_grid.config_files(wildcards.scale),
        experiments=[f"params/study/{name}.yaml" for name in EXPERIMENTS],
    output:
        "results/{scale}/grid.tsv",
    log:
        "logs/{scale}/grid.log",
    benchmark:
        "logs/{scale}/grid.benchmark.tsv"
    conda:
        "../envs/refblend.yaml"
    params:
        names=EXPERIMENTS,
    message:
        "Derive the grid of scale {wildcards.scale}"
    shell:
        "refblend study grid {params.names:q} --scale {wildcards.scale:q} --out {output:q}"
        " > {log:q} 2>&1"


rule collect:
    input:
        sources("study"),
        milestone_markers("trained"),
        milestone_markers("tested"),
        grid="results/{scale}/grid.tsv",
    output:
        expand("runs/{{scale}}/_collected/{{milestone}}/{name}", name=layout.COLLECTED),
    log:
        "logs/{scale}/{milestone}/collect.log",
    benchmark:
        "logs/{scale}/{milestone}/collect.benchmark.tsv"
    conda:
        "../envs/refblend.yaml"
    params:
        names=lambda wildcards: config["studies"][wildcards.milestone],
        out=subpath(output[0], parent=True),
    message:
        "Collect the runs of {wildcards.milestone}"
    shell:
        "refblend study collect --grid {input.grid:q} --scale {wildcards.scale:q}"
        " --out {params.out:q} {params.names:q} > {log:q} 2>&1"


rule m1_tables:
    input:
        sources("study"),
        collected=expand("runs/{{scale}}/_collected/m1/{name}", name=layout.COLLECTED),
        quality=lambda wildcards: quality_files(wildcards.scale),
        experiment="params/study/M1.yaml",
    output:
        report(
            expand("results/{{scale}}/m1/tables/{name}.csv", name=layout.M1_TABLES),
            caption="../report/table.rst",
            category="M1 stability",
            subcategory="tables",
        ),
        markdown=expand("results/{{scale}}/m1/tables/{name}.md", name=layout.M1_TABLES),
    log:
        "logs/{scale}/m1/tables.log",
    benchmark:
        "logs/{scale}/m1/tables.benchmark.tsv"
    conda:
        "../envs/refblend.yaml"
    params:
        collected=lambda wildcards, input: Path(input.collected[0]).parent,
        out=subpath(output[0], parent=True),
    message:
        "Tables of M1"
    shell:
        "refblend study tables --collected {params.collected:q} --experiment {input.experiment:q}"
        " --out {params.out:q} {input.quality:q} > {log:q} 2>&1"


rule m1_figures:
    input:
        sources("study"),
        collected=expand("runs/{{scale}}/_collected/m1/{name}", name=layout.COLLECTED),
        quality=lambda wildcards: quality_files(wildcards.scale),
        experiment="params/study/M1.yaml",
    output:
        *[
            report(
                f"results/{{scale}}/m1/figures/{name}.svg",
                caption=f"../report/{name}.rst",
                category="M1 stability",
                subcategory="figures",
                labels={"figure": name.replace("_", " ")},
            )
            for name in layout.M1_FIGURES
        ],
        png=expand("results/{{scale}}/m1/figures/{name}.png", name=layout.M1_FIGURES),
        captions="results/{scale}/m1/figures/captions.json",
    log:
        "logs/{scale}/m1/figures.log",
    benchmark:
        "logs/{scale}/m1/figures.benchmark.tsv"
    conda:
        "../envs/refblend.yaml"
    params:
        collected=lambda wildcards, input: Path(input.collected[0]).parent,
        out=subpath(output.captions, parent=True),
    message:
        "Figures of M1"
    shell:
        "refblend study figures --collected {params.collected:q} --experiment {input.experiment:q}"
        " --out {params.out:q} {input.quality:q} > {log:q} 2>&1"


rule m1_report:
    input:
        sources("study"),
        collected=expand("runs/{{scale}}/_collected/m1/{name}", name=layout.COLLECTED),
        tables=expand("results/{{scale}}/m1/tables/{name}.md", name=layout.M1_TABLES),
        captions="results/{scale}/m1/figures/captions.json",
        template="src/refblend/study/templates/m1.md.j2",
        experiment="params/study/M1.yaml",
        grid="results/{scale}/grid.tsv",
    output:
        markdown=report(
            "results/{scale}/m1/report.md",
            caption="../report/report.rst",
            category="M1 stability",
            subcategory="report",
        ),
        metrics="results/{scale}/m1/metrics.json",
        plots=expand("results/{{scale}}/m1/plots/{name}.csv", name=layout.PLOT_DATA),
    log:
        "logs/{scale}/m1/report.log",
    benchmark:
        "logs/{scale}/m1/report.benchmark.tsv"
    conda:
        "../envs/refblend.yaml"
    params:
        collected=lambda wildcards, input: Path(input.collected[0]).parent,
        out=subpath(output.markdown, parent=True),
    message:
        "Report of M1: results/{wildcards.scale}/m1/report.md"
    shell:
        "refblend study report --collected {params.collected:q} --experiment {input.experiment:q}"
        " --scale {wildcards.scale:q} --grid {input.grid:q} --out {params.out:q} > {log:q} 2>&1"


# Last and after the report: the target fails when a run failed or incidents exceed what
# params/workflow.yaml tolerates, and the report that says so is there.
rule checks:
    input:
        sources("study"),
        collected=expand(
            "runs/{{scale}}/_collected/{{milestone}}/{name}", name=layout.COLLECTED
        ),
        report="results/{scale}/{milestone}/report.md",
    output:
        "results/{scale}/{milestone}/checks.json",
    log:
        "logs/{scale}/{milestone}/checks.log",
    benchmark:
        "logs/{scale}/{milestone}/checks.benchmark.tsv"
    conda:
        "../envs/refblend.yaml"
    params:
        collected=lambda wildcards, input: Path(input.collected[0]).parent,
        tolerated=lambda wildcards: [
            f"{name}={count}" for name, count in sorted(config["checks"].items())
        ],
    message:
        "Check runs and incidents of {wildcards.milestone}"
    shell:
        "refblend study check --collected {params.collected:q} --out {output:q}"
        " {params.tolerated:q} 2>&1 | tee {log:q}"
