# Helpers of the workflow: the grid, versions of the numbers, paths and the environment.
import functools
import json
import os
import shlex
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.utils import Paramspace, validate

from refblend.data.splits import SPLITS
from refblend.errors import RefblendError
from refblend.lifecycle.supervision import SUPERVISOR, supervisor_value
from refblend.numerics import training_purposes, versions
from refblend.scoring.templates import templates_file
from refblend.study.design import blocks as study_blocks
from refblend.study.design import grid as study_grid
from refblend.study.design import names as study_names
from refblend.study.design import spec as study_spec
from refblend.study.design import workflow as study_workflow
from refblend.study import layout
from refblend.study.recommend.candidates import regimes_at

try:
    # One line per mistake; Snakemake's own check against ../schemas would print the whole schema.
    config.update(study_workflow.workflow_config(config))
except RefblendError as error:
    raise WorkflowError(str(error)) from None

# Data and models that the workflow makes itself; the gpu scale takes models that exist already.
EMBEDDED = ("smoke", "cpu", "smollm")
# Where our models start from a pretrained one, and the problems are those of reasoning-gym.
PRETRAINED = ("smollm",)
# Where the workflow makes judges of three strengths, which the target `scoring` compares.
COMPARED = [scale for scale in EMBEDDED if scale not in PRETRAINED]
# Models that were kept with the runs that started from them; the others are trained.
KEPT = {scale: file for scale, file in config["models"].items() if file}


wildcard_constraints:
    scale="|".join(study_names.SCALES),
    arm=r"[a-z][a-z0-9_]*",
    seeds=r"[0-9]+(-[0-9]+)*",
    strength="|".join(layout.JUDGES),
    milestone="|".join(study_names.REPORTS),
    figure="[A-Za-z0-9_]+",
    kind="png|pdf",


# `refblend` and `python` of the environment that runs Snakemake, activated or not. OpenMP threads
# that wait must sleep: two busy jobs would otherwise slow each other tenfold. Jobs end with
# Snakemake (stopping.smk).
shell.prefix(
    f'set -euo pipefail; export PATH={shlex.quote(str(Path(sys.executable).parent))}:"$PATH" '
    f"{SUPERVISOR}={shlex.quote(supervisor_value(Path.cwd()))} "
    "OMP_WAIT_POLICY=PASSIVE PYTHONUNBUFFERED=1; "
)


def numerics(*purposes):
    """Versions of the numbers that a rule makes: `params: numerics=numerics("judge.train")`.

    Rules take no source file as input: what changes numbers raises a version in numerics.json.
    """
    return versions(*purposes)


def reward_rules(scale):
    """The rules that may score the rows of a scale's data."""
    if scale in PRETRAINED:
        return ["reward.reasoning_gym"]
    return ["reward.gsm8k"] if scale in EMBEDDED else ["reward.gsm8k", "reward.math"]


def train_numerics(wildcards):
    """Versions of the numbers that an arm's runs depend on."""
    rules = reward_rules(wildcards.scale)
    return numerics(*training_purposes(resolved(wildcards), rules))


# Experiments of each milestone: the files of params/study that name it and have seeds at the scale.
# D is the target `scoring`; M3's fresh seeds are trained in separate jobs.
try:
    STUDIES = {
        milestone: study_spec.experiments_of(milestone, scale=config["scale"])
        for milestone in study_names.MILESTONES
    }
except RefblendError as error:
    raise WorkflowError(str(error)) from None
EXPERIMENTS = [name for names in STUDIES.values() for name in names]
# Declared experiments that no report shows yet; their runs are made block by block (rule block).
SERIES = study_spec.experiments_of(study_names.SERIES, scale=config["scale"])


@functools.cache
def study(scale):
    """The grid of all milestones at a scale: derived from params/study, checked, all text."""
    try:
        return study_grid.build_grid([*EXPERIMENTS, *SERIES], scale)
    except RefblendError as error:
        raise WorkflowError(str(error)) from None


# Before any work: an unknown key or a value out of range in any arm stops here.
validate(study(config["scale"]), "../schemas/grid.schema.json")
EXCLUSIVE = study_blocks.exclusive_arms(EXPERIMENTS)


@functools.cache
def milestone_rows(milestone, scale):
    """The rows of the grid that a milestone reports on."""
    return study_grid.select(study(scale), STUDIES[milestone])


@functools.cache
def blocks(scale):
    """The training jobs of all milestones: an arm and the seeds that one process trains."""
    sizes = config["seeds_per_job"], config["seeds_per_block"]
    return study_blocks.blocks_of(
        study(scale), STUDIES | {study_names.SERIES: SERIES}, *sizes
    )


def block_markers(wildcards):
    """Input function: the markers `tested` of all arms of a block of a series."""
    rows = study_blocks.block_rows(
        study(wildcards.scale),
        wildcards.experiment,
        int(wildcards.number),
        config["seeds_per_block"],
    )
    return [
        f"runs/{wildcards.scale}/{block.arm}/{block.name}.tested.json"
        for block in study_blocks.wanted_blocks(blocks(wildcards.scale), rows)
    ]


def run_overrides(wildcards):
    """The dotted overrides of an arm as a mapping."""
    grid = study(wildcards.scale)
    match = grid[grid.arm == wildcards.arm]
    if match.empty:
        raise WorkflowError(
            f"arm {wildcards.arm} is not in the grid of scale {wildcards.scale}; add it to a"
            " file of params/study"
        )
    return json.loads(match.iloc[0].overrides)


@functools.cache
def _resolved(overrides_text, scale):
    return study_grid.resolve_arm(json.loads(overrides_text), scale)


def resolved(wildcards):
    """The checked configuration of an arm, without its overlay."""
    return _resolved(
        json.dumps(run_overrides(wildcards), sort_keys=True), wildcards.scale
    )


def overlay(wildcards):
    """The configuration file that an arm lays over the scale's, if any."""
    name = run_overrides(wildcards).get(study_grid.OVERLAY)
    return [name] if name else []


def regime_files(scale):
    """What is recommended for the regimes that M2's experiments declare at a scale."""
    folder = f"results/{scale}/m3/regimes"
    return [
        f"{folder}/{name}{suffix}"
        for name in regimes_at(scale)
        for suffix in (".yaml", ".json", ".challenger.yaml")
    ]


def config_arguments(wildcards):
    """`--config FILE` for every configuration file of an arm, later ones win."""
    files = [*study_grid.config_files(wildcards.scale), *overlay(wildcards)]
    return [word for name in files for word in ("--config", name)]


def run_space(seeds):
    """The runs of a job as Snakemake's Paramspace, all text: folders `seed_<k>` of the arm."""
    frame = study_grid.pd.DataFrame({"seed": list(map(str, seeds))}, dtype=str)
    return Paramspace(frame, param_sep="_")


def run_dirs(wildcards):
    """The run directories of a job."""
    root = f"runs/{wildcards.scale}/{wildcards.arm}"
    seeds = wildcards.seeds.split("-")
    return [f"{root}/{name}" for name in run_space(seeds).instance_patterns]


def train_priority(wildcards):
    """M1 first, what measures resources last."""
    if wildcards.arm in EXCLUSIVE:
        return 1
    first = milestone_rows("m1", wildcards.scale).arm
    return 25 if wildcards.arm in set(first) else 20


def train_threads(wildcards):
    """What measures resources, or fills the memory, runs alone: it takes all cores."""
    large = wildcards.scale in PRETRAINED
    alone = (large or wildcards.arm in EXCLUSIVE) and workflow.cores
    return workflow.cores if alone else config["threads"]["train"]


def train_gpus(wildcards):
    """Devices of a training job; `--resources gpu=N` limits how many are in use at once."""
    return study_workflow.gpus_to_train(resolved(wildcards))


def test_gpus(wildcards):
    """Devices of a job that tests actors."""
    return study_workflow.gpus_to_test(resolved(wildcards))


def leased(wildcards, resources):
    """Before a command: it waits for devices of its own, and sees no others."""
    count = resources.gpu
    return f"python -m refblend.lifecycle.devices {count}" if count else ""


def model_threads(wildcards):
    """A large model is worth all cores; small ones are trained side by side."""
    large = wildcards.scale in PRETRAINED and workflow.cores
    return workflow.cores if large else config["threads"]["models"]


def model_files(folder):
    """Files that stand for a model folder (folders themselves are never outputs)."""
    return [f"{folder}/config.json", f"{folder}/model.safetensors"]


def tokenizer_files(folder):
    """Files that stand for a tokenizer's folder."""
    return [f"{folder}/tokenizer.json", f"{folder}/tokenizer_config.json"]


def judge_files(folder):
    """Files that stand for a judge's folder."""
    return [*model_files(folder), f"{folder}/scoring_templates.yaml"]


def tools(wildcards):
    """What the problems of a scale need besides our environment: reasoning-gym, in its own."""
    return [".tools/reasoning-gym.made"] if wildcards.scale in PRETRAINED else []


def pretrained(wildcards):
    """The model that ours start from, if any."""
    return model_files("models/smollm/base") if wildcards.scale in PRETRAINED else []


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
        scoring = resolved(wildcards).algorithm.ref_quality_score.scoring
        files.append(os.path.relpath(templates_file(scoring.templates)))
    return files + overlay(wildcards) + tools(wildcards)


def replayed_runs(wildcards):
    """The jobs that train the runs whose weights a job's seeds replay."""
    try:
        arm = study_blocks.replayed_arm(run_overrides(wildcards))
    except RefblendError as error:
        raise WorkflowError(str(error)) from None
    if arm is None:
        return []
    seeds = list(map(int, wildcards.seeds.split("-")))
    found = study_blocks.replayed_blocks(blocks(wildcards.scale), arm, seeds)
    return [
        f"runs/{wildcards.scale}/{block.arm}/{block.name}.trained.json"
        for block in found
    ]


def failed_attempts(wildcards):
    """How often the runs of a job have failed: a changed parameter, so the next call tries again."""
    records = [Path(run) / "failures.jsonl" for run in run_dirs(wildcards)]
    return sum(
        len(record.read_text().splitlines()) for record in records if record.exists()
    )


def milestone_markers(kind):
    """Input function: the markers `trained` or `tested` of every job of the milestone."""

    def files(wildcards):
        rows = milestone_rows(wildcards.milestone, wildcards.scale)
        return [
            f"runs/{wildcards.scale}/{block.arm}/{block.name}.{kind}.json"
            for block in study_blocks.wanted_blocks(blocks(wildcards.scale), rows)
            if kind == "trained" or block.arm not in EXCLUSIVE
        ]

    return files


def quality_files(scale):
    """Quality reports of the embedded models, for the table and the reliability figure."""
    if scale not in EMBEDDED:
        return []
    judges = ["medium"] if scale in PRETRAINED else layout.JUDGES
    names = ["actor", *(f"judge_{strength}" for strength in judges)]
    return [f"models/{scale}/quality/{name}.json" for name in names]


def scoring_size(name):
    """Params function: the size of that name at the scale."""
    return lambda wildcards: config["scoring"]["sizes"][wildcards.scale][name]


def judge_settings(wildcards):
    """How training runs the judge: a large one in its precision, cache and decoding."""
    scoring = _resolved("{}", wildcards.scale).algorithm.ref_quality_score.scoring
    names = ("decoding", "dtype", "kv_cache_memory_mb", "max_new_tokens")
    return [f"--set={name}={getattr(scoring, name)}" for name in names]


def measured_judge(wildcards):
    """The weights of the judge of experiment D and the attacks."""
    judge = config["scoring"]["judge"]
    return f"models/{wildcards.scale}/judge_{judge}/model.safetensors"


def scoring_targets(scale):
    """What the target `scoring` asks for; it compares three judges, others are measured by hand."""
    if scale not in COMPARED:
        raise WorkflowError(
            f"scoring: scale {scale} has no embedded judges to compare; measure yours with"
            " `refblend judge quality`, `robustness` and `attacks` (docs/explanation/scoring.md)"
        )
    return [f"results/{scale}/scoring/report.md"]


def prepare_targets(scale):
    """Data and models of a scale, with their quality."""
    return [f"data/{scale}/{name}.parquet" for name in SPLITS] + quality_files(scale)


def scoring_report(scale):
    """Experiment D's report, which M2 reads; a scale without the three judges has none."""
    return scoring_targets(scale) if scale in COMPARED else []


def option(name, reports, file=""):
    """`name FOLDER/file` of a report's folder, or nothing without a report."""
    return [name, str(Path(reports[0]).parent / file)] if reports else []


def tolerated():
    """`--tolerated kind=number` of every incident that a milestone tolerates."""
    limits = sorted(config["checks"].items())
    return [
        word for kind, count in limits for word in ("--tolerated", f"{kind}={count}")
    ]


def milestone_targets(milestone, scale):
    """What a milestone's target asks for; the checks come last, after the report is written."""
    if not STUDIES[milestone]:
        raise WorkflowError(
            f"{milestone}: no experiment has seeds at scale {scale}; there,"
            f" {' and '.join(reported_milestones())} can be called, or name another scale:"
            " --config scale=NAME"
        )
    root = f"results/{scale}/{milestone}"
    guards = [f"{root}/guards.json"] if milestone == "m3" else []
    archive = archive_of(scale) if milestone == reported_milestones()[-1] else []
    return [f"{root}/report.md", f"{root}/checks.json", *guards, *archive]


def reported_milestones():
    """The milestones that have experiments at this scale."""
    return [name for name, found in STUDIES.items() if found]


def archive_of(scale):
    """Every number of every run, from which `make figures` makes all reports anew, and verdicts."""
    return [f"results/{scale}/runs.parquet", f"results/{scale}/verdicts.csv"]


def study_targets(scale):
    """All milestones of a scale, and the scoring where the judges are ours."""
    there = [
        name
        for milestone in study_names.MILESTONES
        for name in study_spec.experiments_of(milestone, scale=scale)
    ]
    if there != EXPERIMENTS:
        raise WorkflowError(
            f"scales {scale} and {config['scale']} have different experiments; call the target"
            f" with --config scale={scale}"
        )
    milestones = [milestone_targets(name, scale) for name in reported_milestones()]
    return sum(milestones, []) + (scoring_report(scale) if STUDIES["m2"] else [])
