# What the rules share: configuration, experiments, jobs, and the environment of shell commands.
import functools
import itertools
import os
import re
import shlex
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError

from refblend.data.splits import SPLITS
from refblend.embedded.pack import MODELS, check_place
from refblend.embedded.recipe import STRENGTHS, load_recipe
from refblend.errors import RefblendError
from refblend.lifecycle.supervision import SUPERVISOR, supervisor_value
from refblend.numerics import versions as numerics
from refblend.scoring.templates import SHIPPED
from refblend.study.design import grid as study_grid
from refblend.study.design import jobs as study_jobs
from refblend.study.design import names as study_names
from refblend.study.design import workflow as study_workflow
from refblend.study.design.jobs import (
    EMBEDDED,
    PRETRAINED,
    judge_files,
    model_files,
    quality_files,
    tokenizer_files,
)
from refblend.study.design.spec import load_experiments


def declared(milestone, scale):
    """Experiments that a milestone reports, or the series has, at a scale."""
    return [
        name for name, spec in SPECS.items() if spec.milestone_of(scale) == milestone
    ]


@functools.cache
def studies_of(scale):
    """Experiments of each milestone: the files of params/study that name it and have seeds there.

    D is the target `scoring`; M3's fresh seeds are trained in separate jobs.
    """
    return {name: declared(name, scale) for name in study_names.MILESTONES}


def experiments(scale):
    """The experiments of all milestones."""
    return [name for names in studies_of(scale).values() for name in names]


@functools.cache
def jobs(scale):
    """The training jobs of a scale."""
    # Declared experiments that no report shows yet; their runs are made block by block.
    series = {study_names.SERIES: declared(study_names.SERIES, scale)}
    sizes = config["seeds_per_job"], config["seeds_per_block"]
    return study_jobs.Jobs(scale, studies_of(scale) | series, *sizes)


# Before any work: an unknown key or a value out of range, here or in any arm, stops in one line.
try:
    config.update(study_workflow.workflow_config(config))
    SPECS = load_experiments()
    jobs(config["scale"]).grid  # noqa: B018 - derived here, and all arms checked
    for scale, name in itertools.product(EMBEDDED, (*MODELS, "base")):
        check_place(Path("models", scale, name))  # Snakemake would delete it
except RefblendError as error:
    raise WorkflowError(str(error)) from None
# Part of the package, which lies in src only in a clone.
TEMPLATES = os.path.relpath(SHIPPED["embedded"])


wildcard_constraints:
    scale="|".join(study_names.SCALES),
    arm=r"[a-z][a-z0-9_]*",
    seeds=r"[0-9]+(-[0-9]+)*",
    strength="|".join(STRENGTHS),


# `refblend` and `python` of the environment that runs Snakemake, activated or not. OpenMP threads
# that wait must sleep: two busy jobs would otherwise slow each other tenfold. Jobs end with
# Snakemake (stopping.smk).
shell.prefix(
    f'set -euo pipefail; export PATH={shlex.quote(str(Path(sys.executable).parent))}:"$PATH" '
    f"{SUPERVISOR}={shlex.quote(supervisor_value(Path.cwd()))} "
    "OMP_WAIT_POLICY=PASSIVE PYTHONUNBUFFERED=1; "
)


def run_dirs(wildcards):
    """The run directories of a job."""
    return jobs(wildcards.scale).run_dirs(wildcards.arm, wildcards.seeds)


def train_threads(wildcards):
    """What measures resources, or fills the memory, runs alone: it takes all cores."""
    exclusive = wildcards.arm in jobs(wildcards.scale).exclusive
    alone = (wildcards.scale in PRETRAINED or exclusive) and workflow.cores
    return workflow.cores if alone else config["threads"]["train"]


def model_threads(wildcards):
    """A large model is worth all cores; small ones are trained side by side."""
    large = wildcards.scale in PRETRAINED and workflow.cores
    return workflow.cores if large else config["threads"]["models"]


def leased(wildcards, resources):
    """Before a command: it waits for devices of its own, and sees no others."""
    count = resources.gpu
    return f"python -m refblend.lifecycle.devices {count}" if count else ""


def tools(wildcards):
    """What the problems of a scale need besides our environment."""
    return study_jobs.tools(wildcards.scale)


def pretrained(wildcards):
    """The model that ours start from, if any."""
    return model_files("models/smollm/base") if wildcards.scale in PRETRAINED else []


def scoring_size(name):
    """Params function: the size of that name at the scale."""
    return lambda wildcards: config["scoring"]["sizes"][wildcards.scale][name]


def reported(wildcards):
    """Names of the experiments of a report."""
    return studies_of(wildcards.scale).get(wildcards.report, [wildcards.report])


def reported_milestones(scale):
    """The milestones that have experiments at a scale."""
    return [name for name, found in studies_of(scale).items() if found]


def targets(function, *arguments):
    """What a target asks for; what cannot be asked for is told without a traceback."""
    try:
        return function(*arguments)
    except RefblendError as error:
        raise WorkflowError(str(error)) from None


def milestone_targets(milestone, scale):
    """What a milestone's target asks for."""
    return targets(study_jobs.milestone_targets, studies_of(scale), milestone, scale)


def study_targets(scale):
    """All milestones of a scale, and its archive."""
    return sum(
        (milestone_targets(name, scale) for name in reported_milestones(scale)),
        [*study_jobs.archive_files(scale), f"runs/{scale}/_collected/archive.made"],
    )
