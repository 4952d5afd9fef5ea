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
        settings=judge_settings,
        rows=scoring_size("pairs"),
    message:
        "Measure the {wildcards.scale} {wildcards.strength} judge"
    shell:
        "refblend judge quality --judge {params.model:q} --corpus {input.pairs:q}"
        " --rows {params.rows} --kind {params.engine} --threads {threads} {params.settings:q}"
        " --report {output:q} --provenance {params.beside:q} > {log:q} 2>&1"


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
        numerics=numerics("judge.measure", "judge.parse", "judge.prompt"),
        beside="runs/{scale}/_collected/scoring/circumstances/robustness.json",
        model=subpath(input.model, parent=True),
        engine=scoring_size("engine"),
        settings=judge_settings,
        rows=scoring_size("robustness_problems"),
    message:
        "Experiment D at scale {wildcards.scale}"
    shell:
        "refblend judge robustness --judge {params.model:q} --data {input.data:q}"
        " --rows {params.rows} --kind {params.engine} --threads {threads} {params.settings:q}"
        " --report {output:q} --provenance {params.beside:q} 2>&1 | tee -ip {log:q}"


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
        numerics=numerics("judge.measure", "judge.parse", "judge.prompt"),
        beside="runs/{scale}/_collected/scoring/circumstances/attacks.json",
        model=subpath(input.model, parent=True),
        engine=scoring_size("engine"),
        settings=judge_settings,
        rows=scoring_size("attacked_answers"),
    message:
        "Attack a judge at scale {wildcards.scale}"
    shell:
        "refblend judge attacks --judge {params.model:q} --data {input.data:q}"
        " --rows {params.rows} --kind {params.engine} --threads {threads} {params.settings:q}"
        " --report {output:q} --provenance {params.beside:q} 2>&1 | tee -ip {log:q}"
