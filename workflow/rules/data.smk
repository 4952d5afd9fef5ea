# Prompt files as parquet in verl's schema: generated problems, or GSM8K for the scales on GPUs.
# `update`: Snakemake deletes none of them. `refblend data` replaces what it has written itself.


rule reasoning_gym:
    input:
        "requirements/reasoning_gym.lock",
    output:
        touch(".tools/reasoning-gym.made"),
    log:
        "logs/reasoning_gym.log",
    conda:
        "../envs/refblend.yaml"
    message:
        "Install reasoning-gym in an environment of its own"
    shell:
        "make PYTHON=python .tools/reasoning-gym > {log:q} 2>&1"


rule data:
    input:
        tools,
        recipe="params/embedded/{scale}.yaml",
    output:
        update(expand("data/{{scale}}/{name}.parquet", name=SPLITS)),
    log:
        "logs/{scale}/data.log",
    benchmark:
        "logs/{scale}/data.benchmark.tsv"
    wildcard_constraints:
        scale="|".join(EMBEDDED),
    conda:
        "../envs/refblend.yaml"
    params:
        numerics=lambda wildcards: numerics(
            "data.reasoning_gym" if wildcards.scale in PRETRAINED else "bed"
        ),
        # Files that Snakemake puts back after a failure look newer than the recipe.
        recipe=lambda wildcards, input: load_recipe(input.recipe).model_dump_json(),
        out=subpath(output[0], parent=True),
    message:
        "Generate the {wildcards.scale} problems"
    shell:
        "refblend data prepare --recipe {input.recipe:q} --out {params.out:q} > {log:q} 2>&1"


# More of the task of params/embedded/smollm.yaml: smollm_noisy is tested on them.
rule more_sums:
    input:
        tools=lambda wildcards: study_jobs.tools("smollm"),
        recipe="params/embedded/smollm.yaml",
        known=expand("data/smollm/{name}.parquet", name=SPLITS),
    output:
        update(expand("data/smollm/more/{name}.parquet", name=SPLITS)),
    log:
        "logs/smollm/more_sums.log",
    conda:
        "../envs/refblend.yaml"
    params:
        numerics=numerics("data.reasoning_gym"),
        out=subpath(output[0], parent=True),
        without=lambda wildcards, input: [f"--without={file}" for file in input.known],
        task=lambda wildcards, input: [
            f"--config={name}={value}"
            for name, value in load_recipe(input.recipe).pretrained.task.items()
        ],
    message:
        "Generate 2,048 more test problems of scale smollm"
    shell:
        "refblend data reasoning-gym --task chain_sum --size 1 --held-out 2048 --seed 2"
        " {params.task:q} {params.without:q} --out {params.out:q} > {log:q} 2>&1"


# The source is a folder or a name of the hub: config["gsm8k"].
rule gsm8k:
    input:
        lambda wildcards: [
            str(file)
            for split in ("train", "test")
            for file in sorted(Path(config["gsm8k"]).glob(f"{split}.*"))
        ],
    output:
        update(expand("data/{{scale}}/{name}.parquet", name=SPLITS)),
    log:
        "logs/{scale}/gsm8k.log",
    benchmark:
        "logs/{scale}/gsm8k.benchmark.tsv"
    wildcard_constraints:
        scale="|".join(sorted({*study_names.SCALES} - {*EMBEDDED})),
    conda:
        "../envs/refblend.yaml"
    params:
        numerics=numerics("data.gsm8k"),
        source=config["gsm8k"],
        out=subpath(output[0], parent=True),
    message:
        "Convert GSM8K"
    shell:
        "refblend data gsm8k --source {params.source:q} --out {params.out:q} > {log:q} 2>&1"
