# One job: an arm with a block of seeds, which the trainer takes one after another, reusing its
# workers. The marker is the only output, so that checkpoints and metrics survive a kill and the
# next call resumes; finished seeds are skipped. The workflow owns runs/<scale>: a run whose
# configuration, data, models, numerics or libraries have changed is moved aside, and trained afresh;
# `refblend runs prune` frees the space. A seed that ends with an error is
# recorded as failed and reported; the next call tries it again. A job killed by a signal leaves no
# marker, and is resumed.


rule train:
    input:
        run_inputs,
        replayed_runs,
    output:
        "runs/{scale}/{arm}/{seeds}.trained.json",
    log:
        "logs/{scale}/train/{arm}/{seeds}.log",
    benchmark:
        "logs/{scale}/train/{arm}/{seeds}.benchmark.tsv"
    priority: train_priority
    conda:
        "../envs/refblend.yaml"
    threads: train_threads
    resources:
        gpu=train_gpus,
    params:
        numerics=train_numerics,
        run_dirs=run_dirs,
        leased=leased,
        # The trainer fills in {seed}.
        pattern=lambda wildcards: (
            f"runs/{wildcards.scale}/{wildcards.arm}/{run_space([]).wildcard_pattern}"
        ),
        seeds=lambda wildcards: wildcards.seeds.replace("-", ","),
        files=config_arguments,
        # What a job depends on is its resolved configuration: a comment re-runs nothing.
        digest=lambda wildcards: study_grid.configuration_digest(resolved(wildcards)),
        overrides=lambda wildcards: study_grid.override_arguments(
            run_overrides(wildcards)
        ),
        # Of the wildcards alone: Snakemake ignores changes of parameters that depend on the output.
        attempt=failed_attempts,
    message:
        "PPO: {wildcards.scale} {wildcards.arm}, seeds {wildcards.seeds}, on {threads} cores"
    shell:
        "{{ {params.leased} refblend train {params.files:q} {params.overrides:q} --seeds {params.seeds}"
        " trainer.default_local_dir={params.pattern:q} --overwrite 2>&1 | tee -ip {log:q}"
        " || refblend study fail {params.run_dirs:q} --status $? --log {log:q}; }}"
        " && refblend study mark {params.run_dirs:q} --out {output:q}"
