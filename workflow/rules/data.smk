# Prompt files as parquet in verl's schema: generated problems, or GSM8K at the gpu scale.


rule data:
    input:
        recipe="params/embedded/{scale}.yaml",
    output:
        expand(
            "data/{{scale}}/{name}.parquet",
            name=["train", "validation", "test", "sanity"],
        ),
    log:
        "logs/{scale}/data.log",
    benchmark:
        "logs/{scale}/data.benchmark.tsv"
    wildcard_constraints:
        scale="|".join(EMBEDDED),
    conda:
        "../envs/refblend.yaml"
    params:
        code=code("data"),
        out=subpath(output[0], parent=True),
    message:
        "Generate the {wildcards.scale} problems"
    shell:
        "refblend data prepare --recipe {input.recipe:q} --out {params.out:q} > {log:q} 2>&1"


rule gsm8k:
    output:
        "data/gpu/{split}.parquet",
    log:
        "logs/gpu/gsm8k_{split}.log",
    benchmark:
        "logs/gpu/gsm8k_{split}.benchmark.tsv"
    wildcard_constraints:
        split="train|test",
    conda:
        "../envs/refblend.yaml"
    params:
        code=code("gsm8k"),
    message:
        "Convert GSM8K {wildcards.split}"
    shell:
        "refblend data gsm8k --split {wildcards.split:q} --out {output:q} > {log:q} 2>&1"
