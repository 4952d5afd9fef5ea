# Accuracy of the actor that a study starts from, and of every trained actor on the test set.


rule actor_quality:
    input:
        model="models/{scale}/actor/model.safetensors",
        recipe="params/embedded/{scale}.yaml",
        test="data/{scale}/test.parquet",
    output:
        "models/{scale}/quality/actor.json",
    log:
        "logs/{scale}/quality/actor.log",
    benchmark:
        "logs/{scale}/quality/actor.benchmark.tsv"
    conda:
        "../envs/refblend.yaml"
    threads: config["threads"]["evaluate"]
    params:
        numerics=numerics("actor.measure"),
        model=subpath(input.model, parent=True),
    message:
        "Measure the {wildcards.scale} warm-started actor"
    shell:
        "refblend models evaluate-actor --model {params.model:q} --recipe {input.recipe:q}"
        " --data {input.test:q} --report {output:q} > {log:q} 2>&1"


# One process for all seeds of a job; every run gets its test.json.
rule test_accuracy:
    input:
        data=lambda wildcards: jobs(wildcards.scale).test_file(wildcards.arm),
        trained="runs/{scale}/{arm}/{seeds}.trained.json",
    output:
        "runs/{scale}/{arm}/{seeds}.tested.json",
    log:
        "logs/{scale}/test/{arm}/{seeds}.log",
    benchmark:
        "logs/{scale}/test/{arm}/{seeds}.benchmark.tsv"
    priority: 10
    conda:
        "../envs/refblend.yaml"
    threads: config["threads"]["evaluate"]
    resources:
        gpu=lambda wildcards: study_workflow.gpus_to_test(
            jobs(wildcards.scale).config(wildcards.arm)
        ),
    params:
        numerics=lambda wildcards: numerics(
            "test", *study_jobs.reward_rules(wildcards.scale)
        ),
        run_dirs=run_dirs,
        leased=leased,
    message:
        "Test set: {wildcards.scale} {wildcards.arm}, seeds {wildcards.seeds}"
    shell:
        "{params.leased} refblend evaluate {params.run_dirs:q} --data {input.data:q} --out {output:q} > {log:q} 2>&1"


# All arms of a block of a series, trained and tested: `snakemake runs/cpu/_blocks/noisy_dose/1.done`.
rule block:
    input:
        lambda wildcards: jobs(wildcards.scale).block_markers(
            wildcards.experiment, int(wildcards.number)
        ),
    output:
        "runs/{scale}/_blocks/{experiment}/{number}.done",
    log:
        "logs/{scale}/blocks/{experiment}/{number}.log",
    wildcard_constraints:
        experiment="|".join(SPECS),
        number="[0-9]+",
    conda:
        "../envs/refblend.yaml"
    shell:
        "if grep -H failed {input:q} > {log:q}; then exit 1; fi; touch {output:q}"
