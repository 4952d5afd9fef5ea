# M2 and M3 until they use the report engine.

if "m2" not in REPORTS:

    # M2: all experiments together; D is the target `scoring`.
    rule m2_report:
        input:
            collected=expand(
                "runs/{{scale}}/_collected/m2/{name}", name=layout.COLLECTED
            ),
            scoring=lambda wildcards: scoring_report(wildcards.scale),
            params=lambda wildcards: study_grid.config_files(wildcards.scale),
            experiments=[
                f"params/study/{name}.yaml" for name in config["studies"]["m2"]
            ],
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
