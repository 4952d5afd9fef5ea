# Problems of the embedded scales as parquet in verl's schema.


rule data:
    input:
        sources("data", "models/recipe.py"),
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
        out=subpath(output[0], parent=True),
    shell:
        "refblend data prepare --recipe {input.recipe:q} --out {params.out:q} > {log:q} 2>&1"
