# Helpers of the reports' rules: what each report writes and reads.
from refblend.study.report.beside import beside_files
from refblend.study.report.engine import PREPARED
from refblend.study.report.registry import Inputs, load_report, read_experiments
from refblend.study.report.shared import quality_names

REPORTS = {name: load_report(name) for name in study_names.REPORTS}


@functools.cache
def artifacts(milestone, kind):
    """Tables, figures or plots of a milestone."""
    names = tuple(STUDIES.get(milestone, []))
    experiments = read_experiments(names, Path("params"))
    return REPORTS[milestone].artifacts(experiments, kind)


def labels(artifact):
    """Labels in Snakemake's report."""
    section = artifact.experiment or artifact.section or "all"
    return {"experiment": section, artifact.kind: artifact.name.replace("_", " ")}


def marks(kind):
    """Where Snakemake's report shows a result: its milestone's title, and its kind."""
    title = lambda wildcards: REPORTS[wildcards.milestone].title
    return {"category": title, "subcategory": kind}


def table_files(milestone):
    """Every table as CSV, those that the report shows as LaTeX too, and the plots' data."""
    root = f"build/results/{{scale}}/{milestone}"
    files = [f"{root}/plots/{plot.name}.csv" for plot in artifacts(milestone, "plot")]
    for table in artifacts(milestone, "table"):
        files += [f"{root}/tables/{table.name}.tex"] if table.shown else []
        marks = dict(
            category=REPORTS[milestone].title,
            subcategory="tables",
            labels=labels(table),
        )
        name = f"{root}/tables/{table.name}.csv"
        files += [report(name, caption="../report/table.rst", **marks)]
    return files


def figure_of(wildcards):
    """The figure that a file's name names."""
    figures = {
        figure.name: figure for figure in artifacts(wildcards.milestone, "figure")
    }
    if wildcards.figure not in figures:
        raise WorkflowError(f"{wildcards.milestone} has no figure {wildcards.figure}")
    return figures[wildcards.figure]


def upstream_reports(wildcards):
    """Published reports that a report reads."""
    return [
        f"results/{wildcards.scale}/{name}/report.md"
        for name in study_names.READS[wildcards.milestone]
        if name != "scoring" or scoring_report(wildcards.scale)
    ]


def figure_files(wildcards):
    """Every figure of a milestone as SVG; previews as PNG, those of a LaTeX text as PDF, too."""
    root = f"build/results/{wildcards.scale}/{wildcards.milestone}"
    return [
        f"{root}/{file}"
        for figure in artifacts(wildcards.milestone, "figure")
        for file in figure.files
    ]


def collected_frames(wildcards):
    """The collected frames of a milestone; the scoring study has no runs."""
    names = layout.COLLECTED if wildcards.milestone != "scoring" else []
    return [
        f"runs/{wildcards.scale}/_collected/{wildcards.milestone}/{name}"
        for name in names
    ]


def inputs_of(milestone, scale):
    """A milestone's inputs, as its report has them when it is published."""
    results = Path("results", scale)
    return Inputs(
        scale,
        tuple(STUDIES.get(milestone, [])),
        collected=results,
        models=Path("models", scale),
        results=results,
    )


@functools.cache
def quality_of_arms(milestone, scale):
    """Quality reports of the actor and of the judges that a milestone's arms use."""
    names = quality_names(inputs_of(milestone, scale))
    return [name for name in quality_files(scale) if Path(name).stem in names]


def other_verdicts(milestone, scale):
    """Verdicts of other scales, where they are there, that a milestone's are set beside."""
    return [str(path) for path in beside_files(inputs_of(milestone, scale))]


def recipe(scale):
    """The recipe of a scale's data and models, where the workflow makes them."""
    path = f"params/embedded/{scale}.yaml"
    return [path] if Path(path).exists() else []


def templates(wildcards):
    """The text of a report, and the parts that reports share."""
    folder = Path("src/refblend/study/report/templates")
    return [
        f"{folder}/{wildcards.milestone}.md.j2",
        *map(str, sorted(folder.glob("_*.j2"))),
    ]


def report_inputs(milestone):
    """Input function: what a milestone's tables are made from."""
    experiments = [f"params/study/{name}.yaml" for name in STUDIES.get(milestone, [])]
    results = {
        "scoring": [
            "scoring/measurements/robustness.json",
            "scoring/measurements/attacks.json",
        ],
        "m3": [
            "m1/metrics.json",
            "m2/report.md",
            "m3/recommended.yaml",
            "m3/recommended.json",
            "m3/recommended.challenger.yaml",
        ],
    }

    def files(wildcards):
        scale = wildcards.scale
        found = experiments + study_grid.config_files(scale) + recipe(scale)
        if milestone != "scoring":
            folder = f"runs/{scale}/_collected/{milestone}"
            found += [f"{folder}/{name}" for name in layout.COLLECTED]
        found += [f"results/{scale}/{name}" for name in results.get(milestone, [])]
        if milestone in ("scoring", "r"):
            found += quality_files(scale)
        if milestone == "m3":
            found += regime_files(scale)
        if milestone in ("m3", "r"):
            found += other_verdicts(milestone, scale)
        if milestone == "m1":
            found += quality_of_arms(milestone, scale)
        return found + (scoring_report(scale) if milestone == "m2" else [])

    return files
