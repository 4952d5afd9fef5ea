# The scoring path measured: quality of every judge, experiment D and the attacks on one, report.
# Commit, machine and times of a measurement lie beside, outside of what DVC hashes.


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
        numerics=numerics("judge.measure", "judge.parse", "judge.prompt"),
        beside="runs/{scale}/_collected/scoring/circumstances/judge_{strength}.json",
        model=subpath(input.model, parent=True),
        engine=scoring_size("engine"),
        settings=lambda wildcards: jobs(wildcards.scale).judge_settings(),
        rows=scoring_size("pairs"),
    message:
        "Measure the {wildcards.scale} {wildcards.strength} judge"
    shell:
        "refblend judge quality --judge {params.model:q} --corpus {input.pairs:q}"
        " --rows {params.rows} --kind {params.engine} --threads {threads} {params.settings:q}"
        " --report {output:q} --provenance {params.beside:q} > {log:q} 2>&1"


# Experiment D (robustness), and the attacks.
rule measurement:
    input:
        model=f"models/{{scale}}/judge_{config['scoring']['judge']}/model.safetensors",
        data="data/{scale}/test.parquet",
    output:
        "results/{scale}/scoring/measurements/{measurement}.json",
    log:
        "logs/{scale}/scoring/{measurement}.log",
    benchmark:
        "logs/{scale}/scoring/{measurement}.benchmark.tsv"
    wildcard_constraints:
        measurement="robustness|attacks",
    conda:
        "../envs/refblend.yaml"
    threads: config["threads"]["evaluate"]
    params:
        numerics=numerics("judge.measure", "judge.parse", "judge.prompt"),
        beside="runs/{scale}/_collected/scoring/circumstances/{measurement}.json",
        model=subpath(input.model, parent=True),
        engine=scoring_size("engine"),
        settings=lambda wildcards: jobs(wildcards.scale).judge_settings(),
        rows=lambda wildcards: config["scoring"]["sizes"][wildcards.scale][
            {"robustness": "robustness_problems", "attacks": "attacked_answers"}[
                wildcards.measurement
            ]
        ],
    message:
        "Measure {wildcards.measurement} of a judge at scale {wildcards.scale}"
    shell:
        "refblend judge {wildcards.measurement:q} --judge {params.model:q} --data {input.data:q}"
        " --rows {params.rows} --kind {params.engine} --threads {threads} {params.settings:q}"
        " --report {output:q} --provenance {params.beside:q} 2>&1 | tee -ip {log:q}"
