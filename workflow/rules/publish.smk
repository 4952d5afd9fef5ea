# Reports are built in a folder that git and DVC ignore; published is what says anything new.
# What is published stays when nothing differs but times, commit and machine, hence `update`.
rule publish:
    input:
        collected_frames,
        upstream_reports,
        f"runs/{{scale}}/_collected/{{milestone}}/{PREPARED}",
        figure_files,
        "build/results/{scale}/{milestone}/metrics.json",
        report="build/results/{scale}/{milestone}/report.md",
    output:
        update("results/{scale}/{milestone}/report.md"),
        update("results/{scale}/{milestone}/metrics.json"),
    log:
        "logs/{scale}/{milestone}/publish.log",
    conda:
        "../envs/refblend.yaml"
    params:
        numerics=numerics("report"),
        names=lambda wildcards: STUDIES.get(wildcards.milestone, []),
        built=subpath(input.report, parent=True),
    shell:
        "refblend study publish --milestone {wildcards.milestone:q} --scale {wildcards.scale:q}"
        " --built {params.built:q} {params.names:q} > {log:q} 2>&1"
