# The scoring path measured: quality of every judge, experiment D and the attacks on one, report.


rule judge_quality:
    input:
        model="models/{scale}/judge_{strength}/model.safetensors",
        templates="models/{scale}/judge_{strength}/scoring_templates.yaml",
        pairs="models/{scale}/judge_pairs/test.parquet",
    output:
        "models/{scale}/quality/judge_{strength}.json",
    log:
        "logs/{scale}/quality/judge_{strength}.log",
    benchmark:
        "logs/{scale}/quality/judge_{strength}.benchmark.tsv"
    conda:
        "../envs/refblend.yaml"
    threads: config["threads"]["evaluate"]
    params:
        code=code("measure_judges"),
        model=subpath(input.model, parent=True),
        engine=scoring_size("engine"),
        rows=scoring_size("pairs"),
    message:
        "Measure the {wildcards.scale} {wildcards.strength} judge"
    shell:
        "refblend judge quality --judge {params.model:q} --corpus {input.pairs:q}"
        " --rows {params.rows} --engine {params.engine} --threads {threads}"
        " --report {output:q} > {log:q} 2>&1"


rule robustness:
    input:
        model=measured_judge,
        data="data/{scale}/test.parquet",
    output:
        "results/{scale}/scoring/measurements/robustness.json",
    log:
        "logs/{scale}/scoring/robustness.log",
    benchmark:
        "logs/{scale}/scoring/robustness.benchmark.tsv"
    conda:
        "../envs/refblend.yaml"
    threads: config["threads"]["evaluate"]
    params:
        code=code("measure_judges"),
        model=subpath(input.model, parent=True),
        engine=scoring_size("engine"),
        rows=scoring_size("robustness_problems"),
    message:
        "Experiment D at scale {wildcards.scale}"
    shell:
        "refblend judge robustness --judge {params.model:q} --data {input.data:q}"
        " --rows {params.rows} --engine {params.engine} --threads {threads}"
        " --report {output:q} 2>&1 | tee {log:q}"


rule attacks:
    input:
        model=measured_judge,
        data="data/{scale}/test.parquet",
    output:
        "results/{scale}/scoring/measurements/attacks.json",
    log:
        "logs/{scale}/scoring/attacks.log",
    benchmark:
        "logs/{scale}/scoring/attacks.benchmark.tsv"
    conda:
        "../envs/refblend.yaml"
    threads: config["threads"]["evaluate"]
    params:
        code=code("measure_judges"),
        model=subpath(input.model, parent=True),
        engine=scoring_size("engine"),
        rows=scoring_size("attacked_answers"),
    message:
        "Attack a judge at scale {wildcards.scale}"
    shell:
        "refblend judge attacks --judge {params.model:q} --data {input.data:q}"
        " --rows {params.rows} --engine {params.engine} --threads {threads}"
        " --report {output:q} 2>&1 | tee {log:q}"


rule scoring_report:
    input:
        robustness="results/{scale}/scoring/measurements/robustness.json",
        attacks="results/{scale}/scoring/measurements/attacks.json",
        quality=expand(
            "models/{{scale}}/quality/judge_{strength}.json", strength=layout.JUDGES
        ),
        template="src/refblend/study/report/templates/scoring.md.j2",
    output:
        markdown=report(
            "results/{scale}/scoring/report.md",
            caption="../report/scoring_report.rst",
            category="Reference scoring",
            subcategory="report",
            labels={"experiment": "D", "text": "report"},
        ),
        tables=[
            report(
                f"results/{{scale}}/scoring/tables/{name}.csv",
                caption="../report/scoring_table.rst",
                category="Reference scoring",
                subcategory="tables",
                labels={"experiment": "D", "table": name.replace("_", " ")},
            )
            for name in layout.SCORING_TABLES
        ],
        table_texts=expand(
            "results/{{scale}}/scoring/tables/{name}.md", name=layout.SCORING_TABLES
        ),
        figures=[
            report(
                f"results/{{scale}}/scoring/figures/{name}.svg",
                caption=f"../report/scoring_{name}.rst",
                category="Reference scoring",
                subcategory="figures",
                labels={"experiment": "D", "figure": name.replace("_", " ")},
            )
            for name in layout.SCORING_FIGURES
        ],
        png=expand(
            "results/{{scale}}/scoring/figures/{name}.png", name=layout.SCORING_FIGURES
        ),
        captions="results/{scale}/scoring/figures/captions.json",
        metrics="results/{scale}/scoring/metrics.json",
    log:
        "logs/{scale}/scoring/report.log",
    benchmark:
        "logs/{scale}/scoring/report.benchmark.tsv"
    conda:
        "../envs/refblend.yaml"
    params:
        code=code("reports"),
        out=subpath(output.markdown, parent=True),
    message:
        "Report on the scoring: results/{wildcards.scale}/scoring/report.md"
    shell:
        "refblend study scoring --robustness {input.robustness:q} --attacks {input.attacks:q}"
        " --scale {wildcards.scale:q} --out {params.out:q} {input.quality:q} > {log:q} 2>&1"
