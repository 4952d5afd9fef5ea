# One job: an arm with a block of seeds, which the trainer takes one after another, reusing its
# workers. The marker is the only output, so that checkpoints and metrics survive a kill and the
# next call resumes; finished seeds are skipped. The workflow owns runs/<scale>: a run whose
# configuration, data, models, numerics or libraries have changed is moved aside, and trained afresh;
# `refblend runs prune` frees the space. A seed that ends with an error is
# recorded as failed and reported; the next call tries it again. A job killed by a signal leaves no
# marker, and is resumed.


rule train:
    input:
        lambda wildcards: jobs(wildcards.scale).inputs(wildcards.arm),
        lambda wildcards: jobs(wildcards.scale).replayed(*wildcards[1:3]),
    output:
        "runs/{scale}/{arm}/{seeds}.trained.json",
    log:
        "logs/{scale}/train/{arm}/{seeds}.log",
    benchmark:
        "logs/{scale}/train/{arm}/{seeds}.benchmark.tsv"
    priority: lambda wildcards: jobs(wildcards.scale).priority(wildcards.arm)
    conda:
        "../envs/refblend.yaml"
    threads: train_threads
    resources:
        gpu=lambda wildcards: study_workflow.gpus_to_train(
            jobs(wildcards.scale).config(wildcards.arm)
        ),
    params:
        numerics=lambda wildcards: numerics(
            *jobs(wildcards.scale).purposes(wildcards.arm)
        ),
        run_dirs=run_dirs,
        leased=leased,
        # The trainer fills in {seed}.
        pattern=lambda wildcards: study_names.run_dir(*wildcards[:2], "{seed}"),
        seeds=lambda wildcards: wildcards.seeds.replace("-", ","),
        files=lambda wildcards: (jobs(wildcards.scale).config_arguments(wildcards.arm)),
        # What a job depends on is its resolved configuration: a comment re-runs nothing.
        digest=lambda wildcards: study_grid.configuration_digest(
            jobs(wildcards.scale).config(wildcards.arm)
        ),
        overrides=lambda wildcards: study_grid.override_arguments(
            jobs(wildcards.scale).overrides(wildcards.arm)
        ),
        # Of the wildcards alone: Snakemake ignores changes of parameters that depend on the output.
        attempt=lambda wildcards: jobs(wildcards.scale).failed_attempts(*wildcards[1:3]),
    message:
        "PPO: {wildcards.scale} {wildcards.arm}, seeds {wildcards.seeds}, on {threads} cores"
    shell:
        "{{ {params.leased} refblend train {params.files:q} {params.overrides:q} --seeds {params.seeds}"
        " trainer.default_local_dir={params.pattern:q} --overwrite 2>&1 | tee -ip {log:q}"
        " || refblend study fail {params.run_dirs:q} --status $? --log {log:q}; }}"
        " && refblend study mark {params.run_dirs:q} --out {output:q}"
