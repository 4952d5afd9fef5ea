# Tokenizer, warm-started actor, and the judges: each strength continues the weaker one, so an arm
# with the medium judge never waits for the strong one. Training resumes after a kill: only final
# files are outputs, since Snakemake deletes outputs before it runs a rule again.


rule tokenizer:
    input:
        sources("data"),
        recipe="params/embedded/{scale}.yaml",
        train="data/{scale}/train.parquet",
    output:
        "models/{scale}/tokenizer/tokenizer.json",
        "models/{scale}/tokenizer/tokenizer_config.json",
    log:
        "logs/{scale}/tokenizer.log",
    benchmark:
        "logs/{scale}/tokenizer.benchmark.tsv"
    conda:
        config["conda_env"]
    params:
        out=subpath(output[0], parent=True),
    shell:
        "refblend models tokenizer --recipe {input.recipe:q} --train {input.train:q}"
        " --out {params.out:q} > {log:q} 2>&1"


rule actor:
    input:
        sources("data", "models"),
        recipe="params/embedded/{scale}.yaml",
        train="data/{scale}/train.parquet",
        tokenizer="models/{scale}/tokenizer/tokenizer.json",
    output:
        "models/{scale}/actor/config.json",
        "models/{scale}/actor/model.safetensors",
    log:
        "logs/{scale}/actor.log",
    benchmark:
        "logs/{scale}/actor.benchmark.tsv"
    priority: 20
    conda:
        config["conda_env"]
    threads: config["threads"]["models"]
    params:
        tokenizer=subpath(input.tokenizer, parent=True),
        out=subpath(output[0], parent=True),
    shell:
        "refblend models actor --recipe {input.recipe:q} --train {input.train:q}"
        " --tokenizer {params.tokenizer:q} --out {params.out:q} 2>&1 | tee {log:q}"


rule judge:
    input:
        sources("data", "models", "scoring"),
        recipe="params/embedded/{scale}.yaml",
        train="data/{scale}/train.parquet",
        start=judge_start,
    output:
        "models/{scale}/judge_{strength}/config.json",
        "models/{scale}/judge_{strength}/model.safetensors",
    log:
        "logs/{scale}/judge_{strength}.log",
    benchmark:
        "logs/{scale}/judge_{strength}.benchmark.tsv"
    # The strong judge is wanted for a table only: runs go before it.
    priority: lambda wildcards: 0 if wildcards.strength == "strong" else 20
    conda:
        config["conda_env"]
    threads: config["threads"]["models"]
    params:
        start=subpath(input.start, parent=True),
        out=subpath(output[0], parent=True),
    shell:
        "refblend models judge --recipe {input.recipe:q} --strength {wildcards.strength:q}"
        " --train {input.train:q} --start {params.start:q} --out {params.out:q} 2>&1 | tee {log:q}"
