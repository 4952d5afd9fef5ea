# From runs to a milestone's record: grid, collected frames, tables, figures, report, checks.


# All milestones' experiments in one table; each milestone selects its rows.
rule grid:
    input:
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
        code=code("reports"),
        names=EXPERIMENTS,
    message:
        "Derive the grid of scale {wildcards.scale}"
    shell:
        "refblend study grid {params.names:q} --scale {wildcards.scale:q} --out {output:q}"
        " > {log:q} 2>&1"


rule collect:
    input:
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
        code=code("reports"),
        names=lambda wildcards: config["studies"][wildcards.milestone],
        out=subpath(output[0], parent=True),
    message:
        "Collect the runs of {wildcards.milestone}"
    shell:
        "refblend study collect --grid {input.grid:q} --scale {wildcards.scale:q}"
        " --out {params.out:q} {params.names:q} > {log:q} 2>&1"


for _name, _report in REPORTS.items():

    rule:
        name:
            f"{_name}_tables"
        input:
            report_inputs(_name),
        output:
            *[
                report(
                    f"results/{{scale}}/{_name}/tables/{table.name}.csv",
                    caption="../report/table.rst",
                    category=_report.title,
                    subcategory="tables",
                    labels=artifact_labels(table),
                )
                for table in artifacts(_name, "table")
            ],
            *[
                f"results/{{scale}}/{_name}/tables/{table.name}.tex"
                for table in artifacts(_name, "table")
                if table.shown
            ],
            f"runs/{{scale}}/_collected/{_name}/{PREPARED}",
        log:
            f"logs/{{scale}}/{_name}/tables.log",
        benchmark:
            f"logs/{{scale}}/{_name}/tables.benchmark.tsv"
        conda:
            "../envs/refblend.yaml"
        params:
            code=code("reports"),
            milestone=_name,
            experiments=config["studies"].get(_name, []),
        message:
            f"Tables of {_name}"
        shell:
            "refblend study tables --milestone {params.milestone} --scale {wildcards.scale:q}"
            " {params.experiments:q} > {log:q} 2>&1"

    rule:
        name:
            f"{_name}_report"
        input:
            report_inputs(_name),
            f"runs/{{scale}}/_collected/{_name}/{PREPARED}",
            figure_files(_name),
            template=f"src/refblend/study/report/templates/{_name}.md.j2",
        output:
            markdown=report(
                f"results/{{scale}}/{_name}/report.md",
                caption="../report/report.rst",
                category=_report.title,
                subcategory="report",
                labels={"experiment": "all", "text": "report"},
            ),
            metrics=f"results/{{scale}}/{_name}/metrics.json",
            plots=[
                f"results/{{scale}}/{_name}/plots/{plot.name}.csv"
                for plot in artifacts(_name, "plot")
            ],
        log:
            f"logs/{{scale}}/{_name}/report.log",
        benchmark:
            f"logs/{{scale}}/{_name}/report.benchmark.tsv"
        conda:
            "../envs/refblend.yaml"
        params:
            code=code("reports"),
            milestone=_name,
            experiments=config["studies"].get(_name, []),
        message:
            f"Report of {_name}: results/{{wildcards.scale}}/{_name}/report.md"
        shell:
            "refblend study report --milestone {params.milestone} --scale {wildcards.scale:q}"
            " {params.experiments:q} > {log:q} 2>&1"


# One job per figure, which carries its caption.
rule figure:
    input:
        f"runs/{{scale}}/_collected/{{milestone}}/{PREPARED}",
        collected=lambda wildcards: collected_frames(wildcards.milestone, wildcards.scale),
    output:
        report(
            "results/{scale}/{milestone}/figures/{figure}.svg",
            caption="../report/figure.rst",
            category=lambda wildcards: REPORTS[wildcards.milestone].title,
            subcategory="figures",
            labels=lambda wildcards: figure_labels(wildcards),
        ),
    log:
        "logs/{scale}/{milestone}/figures/{figure}.svg.log",
    conda:
        "../envs/refblend.yaml"
    params:
        code=code("reports"),
        experiments=lambda wildcards: config["studies"].get(wildcards.milestone, []),
    message:
        "Figure {wildcards.figure} of {wildcards.milestone}"
    shell:
        "refblend study figure --milestone {wildcards.milestone} --scale {wildcards.scale:q}"
        " --out {output:q} {params.experiments:q} > {log:q} 2>&1"


# The few figures that README and DVC show.
use rule figure as preview with:
    output:
        "results/{scale}/{milestone}/figures/{figure}.png",
    log:
        "logs/{scale}/{milestone}/figures/{figure}.png.log",


# M2: all experiments together; D is the target `scoring`.
rule m2_report:
    input:
        collected=expand("runs/{{scale}}/_collected/m2/{name}", name=layout.COLLECTED),
        scoring=lambda wildcards: scoring_report(wildcards.scale),
        params=lambda wildcards: study_grid.config_files(wildcards.scale),
        experiments=[f"params/study/{name}.yaml" for name in config["studies"]["m2"]],
        template="src/refblend/study/report/templates/m2.md.j2",
    output:
        *[
            report(
                f"results/{{scale}}/m2/tables/{name}.csv",
                caption="../report/m2_table.rst",
                category="M2 ablations",
                subcategory="tables",
                labels=experiment_labels("table", name),
            )
            for name in layout.M2_TABLES
        ],
        expand(
            "results/{{scale}}/m2/tables/{name}.{kind}",
            name=layout.M2_TABLES,
            kind=["md", "tex"],
        ),
        *[
            report(
                f"results/{{scale}}/m2/figures/{name}.svg",
                caption=f"../report/{name}.rst",
                category="M2 ablations",
                subcategory="figures",
                labels=experiment_labels("figure", name),
            )
            for name in layout.M2_FIGURES
        ],
        expand("results/{{scale}}/m2/figures/{name}.png", name=layout.M2_FIGURES),
        "results/{scale}/m2/figures/captions.json",
        expand("results/{{scale}}/m2/plots/{name}.csv", name=layout.M2_PLOT_DATA),
        markdown=report(
            "results/{scale}/m2/report.md",
            caption="../report/m2_report.rst",
            category="M2 ablations",
            subcategory="report",
            labels={"experiment": "all", "text": "report"},
        ),
        metrics="results/{scale}/m2/metrics.json",
    log:
        "logs/{scale}/m2/report.log",
    benchmark:
        "logs/{scale}/m2/report.benchmark.tsv"
    conda:
        "../envs/refblend.yaml"
    params:
        code=code("reports"),
        collected=lambda wildcards, input: Path(input.collected[0]).parent,
        scoring=lambda wildcards, input: option("--scoring", input.scoring),
        out=subpath(output.markdown, parent=True),
    message:
        "Report of M2: results/{wildcards.scale}/m2/report.md"
    shell:
        "refblend study m2 --collected {params.collected:q} --scale {wildcards.scale:q}"
        " --params params {params.scoring:q} --out {params.out:q} > {log:q} 2>&1"


# What M2's runs recommend, by the rule that its header and its record state.
rule recommend:
    input:
        collected=expand("runs/{{scale}}/_collected/m2/{name}", name=layout.COLLECTED),
        scoring=lambda wildcards: scoring_report(wildcards.scale),
        params=lambda wildcards: study_grid.config_files(wildcards.scale),
        experiments=[f"params/study/{name}.yaml" for name in config["studies"]["m2"]],
    output:
        overlay=report(
            "results/{scale}/m3/recommended.yaml",
            caption="../report/recommended.rst",
            category="M3 recommendation",
            subcategory="configuration",
            labels={"experiment": "M3", "file": "recommended configuration"},
        ),
        record="results/{scale}/m3/recommended.json",
    log:
        "logs/{scale}/m3/recommend.log",
    benchmark:
        "logs/{scale}/m3/recommend.benchmark.tsv"
    conda:
        "../envs/refblend.yaml"
    params:
        code=code("reports"),
        collected=lambda wildcards, input: Path(input.collected[0]).parent,
        attacks=lambda wildcards, input: option(
            "--attacks", input.scoring, "tables/attacks.csv"
        ),
    message:
        "Recommend a configuration: {output.overlay}"
    shell:
        "refblend study recommend --collected {params.collected:q} --scale {wildcards.scale:q}"
        " --params params {params.attacks:q} --out {output.overlay:q} > {log:q} 2>&1"


# Last, as `checks`: fails when the recommended configuration is no longer safe to use.
rule guards:
    input:
        collected=expand("runs/{{scale}}/_collected/m3/{name}", name=layout.COLLECTED),
        recommended="results/{scale}/m3/recommended.yaml",
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
        code=code("reports"),
        collected=lambda wildcards, input: Path(input.collected[0]).parent,
        tolerated=lambda wildcards: [
            word for text in tolerated() for word in ("--tolerated", text)
        ],
    message:
        "Guards of M3"
    shell:
        "refblend study guard --collected {params.collected:q}"
        " --recommended {input.recommended:q} --out {output:q} {params.tolerated:q}"
        " 2>&1 | tee {log:q}"


# Last and after the report: the target fails when a run failed or incidents exceed what
# params/workflow.yaml tolerates, and the report that says so is there.
rule checks:
    input:
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
        code=code("reports"),
        collected=lambda wildcards, input: Path(input.collected[0]).parent,
        tolerated=lambda wildcards: tolerated(),
    message:
        "Check runs and incidents of {wildcards.milestone}"
    shell:
        "refblend study check --collected {params.collected:q} --out {output:q}"
        " {params.tolerated:q} 2>&1 | tee {log:q}"
