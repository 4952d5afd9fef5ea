# From runs to a milestone's record: collected frames, tables, figures, report, checks.
include: "report_common.smk"


rule collect:
    input:
        milestone_markers("trained"),
        milestone_markers("tested"),
        grid="runs/{scale}/_collected/grid.tsv",
    output:
        expand("runs/{{scale}}/_collected/{{milestone}}/{name}", name=layout.COLLECTED),
    log:
        "logs/{scale}/{milestone}/collect.log",
    conda:
        "../envs/refblend.yaml"
    params:
        numerics=numerics("report"),
        names=lambda wildcards: STUDIES[wildcards.milestone],
        out=subpath(output[0], parent=True),
    shell:
        "refblend study collect --grid {input.grid:q} --scale {wildcards.scale:q}"
        " --out {params.out:q} {params.names:q} > {log:q} 2>&1"


# All tables and plot data of a report, and the tables as later jobs read them.
for _name in REPORTS:

    rule:
        name:
            f"{_name}_tables"
        input:
            report_inputs(_name),
        output:
            table_files(_name),
            f"runs/{{scale}}/_collected/{_name}/{PREPARED}",
        log:
            f"logs/{{scale}}/{_name}/tables.log",
        conda:
            "../envs/refblend.yaml"
        params:
            numerics=numerics("report"),
            milestone=lambda wildcards, name=_name: name,
            out=lambda wildcards, name=_name: f"build/results/{wildcards.scale}/{name}",
            names=STUDIES.get(_name, []),
        shell:
            "refblend study tables --milestone {params.milestone:q} --scale {wildcards.scale:q}"
            " --out {params.out:q} {params.names:q} > {log:q} 2>&1"


# One job per figure, which carries its caption: a changed function redraws its figure alone.
rule figure:
    input:
        f"runs/{{scale}}/_collected/{{milestone}}/{PREPARED}",
        collected_frames,
    output:
        report(
            "build/results/{scale}/{milestone}/figures/{figure}.svg",
            caption="../report/figure.rst",
            labels=lambda wildcards: labels(figure_of(wildcards)),
            **marks("figures"),
        ),
    log:
        "logs/{scale}/{milestone}/figures/{figure}.svg.log",
    conda:
        "../envs/refblend.yaml"
    params:
        numerics=numerics("report"),
        names=lambda wildcards: STUDIES.get(wildcards.milestone, []),
    message:
        "Figure {wildcards.figure} of {wildcards.milestone}"
    shell:
        "refblend study figure --milestone {wildcards.milestone:q} --scale {wildcards.scale:q}"
        " --out {output:q} {params.names:q} > {log:q} 2>&1"


# The few figures that README and DVC show, and those of a text that is also made with LaTeX.
use rule figure as preview with:
    output:
        "build/results/{scale}/{milestone}/figures/{figure}.{kind}",
    log:
        "logs/{scale}/{milestone}/figures/{figure}.{kind}.log",


rule report:
    input:
        f"runs/{{scale}}/_collected/{{milestone}}/{PREPARED}",
        collected_frames,
        figure_files,
        templates,
        lambda wildcards: recipe(wildcards.scale),
        # M3 says which warm starts all runs began from.
        lambda wildcards: (
            f"results/{wildcards.scale}/runs.csv"
            if wildcards.milestone == "m3"
            else []
        ),
    output:
        report(
            "build/results/{scale}/{milestone}/report.md",
            caption="../report/report.rst",
            labels={"experiment": "all", "text": "report"},
            **marks("report"),
        ),
        "build/results/{scale}/{milestone}/metrics.json",
    log:
        "logs/{scale}/{milestone}/report.log",
    conda:
        "../envs/refblend.yaml"
    params:
        numerics=numerics("report"),
        names=lambda wildcards: STUDIES.get(wildcards.milestone, []),
        out=subpath(output[0], parent=True),
    shell:
        "refblend study report --milestone {wildcards.milestone:q} --scale {wildcards.scale:q}"
        " --out {params.out:q} {params.names:q} > {log:q} 2>&1"


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
    conda:
        "../envs/refblend.yaml"
    params:
        numerics=numerics("report"),
        collected=lambda wildcards, input: Path(input.collected[0]).parent,
        tolerated=lambda wildcards: tolerated(),
    shell:
        "refblend study check --collected {params.collected:q} --out {output:q}"
        " {params.tolerated:q} 2>&1 | tee -ip {log:q}"
