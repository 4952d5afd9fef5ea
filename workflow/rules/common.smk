# Helpers of the workflow: the grid, package sources as inputs, paths and the environment.
import functools
import json
import os
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.utils import validate

from refblend.errors import RefblendError
from refblend.study import grid as study_grid
from refblend.study import layout

validate(config, "../schemas/config.schema.json")

SCALES = ("smoke", "cpu", "gpu")
# Data and models that the workflow makes itself; the gpu scale takes models that exist already.
EMBEDDED = ("smoke", "cpu")


wildcard_constraints:
    scale="|".join(SCALES),
    arm=r"[a-z][a-z0-9_]*",
    seed=r"[0-9]+",
    strength="|".join(layout.JUDGES),
    milestone="m[123]",


# `refblend` and `python` of the environment that runs Snakemake, activated or not. OpenMP threads
# that wait must sleep: two busy jobs would otherwise slow each other tenfold.
shell.prefix(
    f'set -euo pipefail; export PATH="{Path(sys.executable).parent}:$PATH" '
    "OMP_WAIT_POLICY=PASSIVE PYTHONUNBUFFERED=1; "
)


# Argument parsing and progress lines change no result.
NO_EFFECT = ("cli.py", "progress.py")


def sources(*parts):
    """Python files of the named packages or files of refblend: a change re-runs what it affects.

    Snakemake compares small files by content, so a mere touch or checkout changes nothing.
    """
    root = Path("src/refblend")
    found = []
    for part in ("errors.py", "files.py", "seeding.py", "runtime.py", *parts):
        path = root / part
        found += [path] if path.suffix == ".py" else path.rglob("*.py")
    return sorted({str(path) for path in found if path.name not in NO_EFFECT})


# What the warm start and its evaluation depend on; a change to the judges re-trains no actor.
ACTOR_SOURCES = tuple(
    f"models/{name}.py"
    for name in (
        "actor",
        "architecture",
        "corpus",
        "demonstrations",
        "fingerprint",
        "generation",
        "quality",
        "recipe",
        "sft",
    )
)
# The scoring path; what only measures judges re-trains neither judges nor actors.
SCORING_PATH = tuple(
    f"scoring/{name}.py"
    for name in (
        "clipping",
        "expected",
        "judge",
        "parsing",
        "prompts",
        "quote",
        "result",
        "score",
        "templates",
    )
)
TRAINER_SOURCES = (
    "config",
    "data",
    "ppo",
    "rewards",
    "rollout",
    *SCORING_PATH,
    "trainer",
    "workers",
)
JUDGE_SOURCES = (
    *ACTOR_SOURCES,
    "models/judge.py",
    "models/judge_data.py",
    "models/judge_format.py",
)
# Measuring a judge: the path, the engines, and the modules that count.
MEASURING_SOURCES = ("data", "rollout", "scoring", "models/judge_format.py")


@functools.cache
def grid(milestone, scale):
    """The grid of a milestone at a scale: derived from params/study, checked, all text."""
    try:
        return study_grid.build_grid(config["studies"][milestone], scale)
    except RefblendError as error:
        raise WorkflowError(str(error)) from None


# Before any work: an unknown key or a value out of range in any arm stops here.
for milestone in config["studies"]:
    validate(grid(milestone, config["scale"]), "../schemas/grid.schema.json")


def scale_runs(scale):
    """Unique (arm, seed, overrides) of all milestones at a scale; a shared arm appears once."""
    frames = [grid(milestone, scale) for milestone in config["studies"]]
    return study_grid.unique_runs(study_grid.pd.concat(frames, ignore_index=True))


def run_overrides(wildcards):
    """The dotted overrides of an arm as a mapping."""
    runs = scale_runs(wildcards.scale)
    match = runs[(runs.arm == wildcards.arm) & (runs.seed == wildcards.seed)]
    if match.empty:
        raise WorkflowError(
            f"arm {wildcards.arm}, seed {wildcards.seed} is not in the grid of scale "
            f"{wildcards.scale}; add it to a file of params/study"
        )
    return json.loads(match.iloc[0].overrides)


@functools.cache
def _resolved(overrides_text, scale):
    return study_grid.resolve_arm(json.loads(overrides_text), scale)


def resolved(wildcards):
    """The checked configuration of an arm."""
    return _resolved(
        json.dumps(run_overrides(wildcards), sort_keys=True), wildcards.scale
    )


def model_files(folder):
    """Files that stand for a model folder (folders themselves are never outputs)."""
    return [f"{folder}/config.json", f"{folder}/model.safetensors"]


def judge_start(wildcards):
    """The weights that a judge starts from: the next weaker judge's, or the clean warm start's."""
    position = layout.JUDGES.index(wildcards.strength)
    name = f"judge_{layout.JUDGES[position - 1]}" if position else "actor_clean"
    return f"models/{wildcards.scale}/{name}/model.safetensors"


def run_inputs(wildcards):
    """Data files and models that an arm reads; an arm without blending waits for no judge.

    Models of other scales are the user's: the trainer checks that they are there.
    """
    files = []
    for path in study_grid.local_inputs(resolved(wildcards)):
        if not path.startswith("models/"):
            files.append(path)
        elif wildcards.scale in EMBEDDED:
            files += model_files(path)
    if resolved(wildcards).use_judge:
        files.append(resolved(wildcards).algorithm.ref_quality_score.scoring.templates)
    return files


def failed_attempts(wildcards):
    """How often a run has failed so far: a changed parameter, so the next call tries it again."""
    run_dir = layout.run_dir(wildcards.scale, wildcards.arm, wildcards.seed)
    record = run_dir / "failures.jsonl"
    return len(record.read_text().splitlines()) if record.exists() else 0


def milestone_run_files(name):
    """Input function: the file `name` of every run of the milestone."""

    def files(wildcards):
        if name == "test.json" and wildcards.scale not in EMBEDDED:
            return []
        runs = study_grid.unique_runs(grid(wildcards.milestone, wildcards.scale))
        return [
            str(layout.run_dir(wildcards.scale, row.arm, row.seed) / name)
            for row in runs.itertuples()
        ]

    return files


def quality_files(scale):
    """Quality reports of the embedded models, for the table and the reliability figure."""
    if scale not in EMBEDDED:
        return []
    names = ["actor", *(f"judge_{strength}" for strength in layout.JUDGES)]
    return [f"models/{scale}/quality/{name}.json" for name in names]


def scoring_size(name):
    """Params function: the size of that name at the scale."""
    return lambda wildcards: config["scoring"]["sizes"][wildcards.scale][name]


def measured_judge(wildcards):
    """The weights of the judge of experiment D and the attacks."""
    judge = config["scoring"]["judge"]
    return f"models/{wildcards.scale}/judge_{judge}/model.safetensors"


def scoring_targets(scale):
    """What the target `scoring` asks for; users' judges are measured by hand."""
    if scale not in EMBEDDED:
        raise WorkflowError(
            f"scoring: scale {scale} has no judges of ours; measure yours with"
            " `refblend judge quality`, `robustness` and `attacks` (docs/scoring.md)"
        )
    return [f"results/{scale}/scoring/report.md"]


def prepare_targets(scale):
    """Data and models of a scale, with their quality."""
    names = (
        ("train", "validation", "test", "sanity")
        if scale in EMBEDDED
        else ("train", "test")
    )
    return [f"data/{scale}/{name}.parquet" for name in names] + quality_files(scale)


def milestone_targets(milestone, scale):
    """What a milestone's target asks for; the checks come last, after the report is written."""
    root = f"results/{scale}/{milestone}"
    return [f"{root}/report.md", f"{root}/checks.json"]
