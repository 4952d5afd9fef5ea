# One PPO run: an arm and a seed. The summary is the only output, so that checkpoints and metrics
# survive a kill and the next call resumes; changed inputs make the trainer start afresh (its run
# identity covers configuration, data, models and code). A run that ends with an error is recorded
# as failed and reported; the next call tries it again. A run killed by a signal just ends, and is
# resumed.


rule train:
    input:
        sources(*TRAINER_SOURCES),
        run_inputs,
    output:
        "runs/{scale}/{arm}/seed_{seed}/summary.json",
    log:
        "logs/{scale}/train/{arm}/seed_{seed}.log",
    benchmark:
        "logs/{scale}/train/{arm}/seed_{seed}.benchmark.tsv"
    priority: 10
    conda:
        "../envs/refblend.yaml"
    threads: config["threads"]["train"]
    params:
        run_dir=subpath(output[0], parent=True),
        files=lambda wildcards: study_grid.config_files(wildcards.scale),
        # What a run depends on is its resolved configuration: a comment re-runs nothing.
        digest=lambda wildcards: study_grid.configuration_digest(resolved(wildcards)),
        overrides=lambda wildcards: study_grid.override_arguments(
            run_overrides(wildcards)
        ),
        # Of the wildcards alone: Snakemake ignores changes of parameters that depend on the output.
        attempt=failed_attempts,
    message:
        "PPO: {wildcards.scale} {wildcards.arm}, seed {wildcards.seed}"
    shell:
        "refblend train --config {params.files[0]:q} --config {params.files[1]:q}"
        " {params.overrides:q} trainer.seed={wildcards.seed}"
        " trainer.default_local_dir={params.run_dir:q} 2>&1 | tee {log:q}"
        " || refblend study fail {params.run_dir:q} --status $? --log {log:q}"
