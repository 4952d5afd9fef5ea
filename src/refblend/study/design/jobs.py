"""The workflow's training jobs at a scale, and the files that its rules pass on to one another.

The rules of Snakemake ask here; nothing here knows Snakemake. Paths are relative to the checkout.

A job trains one arm with a block of seeds, one after another in the same workers. Which seeds form
a block depends on the whole study, not on what is requested, so that a milestone never retrains
what another one has. Seeds that a later milestone adds form separate blocks: requesting M1 trains
none of M2's, and requesting M2 none of the fresh seeds of M3.
"""

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from refblend.config import RefblendConfig
from refblend.data.splits import SPLITS
from refblend.embedded.recipe import STRENGTHS
from refblend.errors import StudyError
from refblend.lookup import user_files
from refblend.numerics import training_purposes
from refblend.scoring.templates import templates_file
from refblend.study.design import grid
from refblend.study.design.names import COLLECTED, SERIES, run_dir
from refblend.study.design.spec import ExperimentSpec, load_experiments
from refblend.trainer.replay import partner_seed

EMBEDDED = ("smoke", "cpu", "smollm")
"""Scales whose data and models the workflow makes; on GPUs the models exist already."""
PRETRAINED = ("smollm",)
"""Those whose models start from a pretrained one, and whose problems are reasoning-gym's."""
COMPARED = tuple(scale for scale in EMBEDDED if scale not in PRETRAINED)
"""Those with judges of three strengths, which the target ``scoring`` compares."""


def model_files(folder: str) -> list[str]:
    """Files that stand for a model's folder (folders themselves are never outputs)."""
    return [f"{folder}/config.json", f"{folder}/model.safetensors"]


def tokenizer_files(folder: str) -> list[str]:
    """Files that stand for a tokenizer's folder."""
    return [f"{folder}/tokenizer.json", f"{folder}/tokenizer_config.json"]


def judge_files(folder: str) -> list[str]:
    """Files that stand for a judge's folder."""
    return [*model_files(folder), f"{folder}/scoring_templates.yaml"]


def judge_start(scale: str, strength: str) -> str:
    """The weights that a judge starts from: the next weaker judge's, or the clean warm start's."""
    position = STRENGTHS.index(strength)
    name = f"judge_{STRENGTHS[position - 1]}" if position else "actor_clean"
    return f"models/{scale}/{name}/model.safetensors"


def tools(scale: str) -> list[str]:
    """What the problems of a scale need besides our environment: reasoning-gym, in its own."""
    return [".tools/reasoning-gym.made"] if scale in PRETRAINED else []


def quality_files(scale: str) -> list[str]:
    """Quality reports of the embedded models."""
    if scale not in EMBEDDED:
        return []
    judges = ["medium"] if scale in PRETRAINED else STRENGTHS
    return [
        f"models/{scale}/quality/{name}.json"
        for name in ["actor", *(f"judge_{strength}" for strength in judges)]
    ]


def prepare_targets(scale: str) -> list[str]:
    """Data and models of a scale, with their quality."""
    return [f"data/{scale}/{name}.parquet" for name in SPLITS] + quality_files(scale)


def report_files(scale: str, report: str) -> list[str]:
    """A report's page, and the folders of its tables and figures."""
    return [f"results/{scale}/{report}/{name}" for name in ("report.md", "tables", "figures")]


def archive_files(scale: str) -> list[str]:
    """The numbers of all runs of a scale, and all verdicts."""
    return [f"results/{scale}/{name}" for name in ("grid.tsv", *COLLECTED, "verdicts.csv")]


def scoring_targets(scale: str) -> list[str]:
    """Experiment D's report; StudyError at a scale without the three judges to compare."""
    if scale not in COMPARED:
        raise StudyError(
            f"scoring: scale {scale} has no embedded judges to compare",
            "Measure yours with `refblend judge quality`, `robustness` and `attacks` "
            "(docs/explanation/scoring.md).",
        )
    return report_files(scale, "scoring")


def reward_rules(scale: str) -> list[str]:
    """The purposes of the rules that may score the rows of a scale's data."""
    if scale in PRETRAINED:
        return ["reward.reasoning_gym"]
    return ["reward.gsm8k"] if scale in EMBEDDED else ["reward.gsm8k", "reward.math"]


def milestone_targets(
    studies: Mapping[str, Sequence[str]], milestone: str, scale: str
) -> list[str]:
    """What a milestone's target asks for.

    ``studies`` has the experiments of each milestone; M2 has experiment D, too. StudyError if it
    has none at this scale.
    """
    reported = [name for name, found in studies.items() if found]
    if milestone not in reported:
        there = f"There, {' and '.join(reported)} can be called. Or name" if reported else "Name"
        raise StudyError(
            f"{milestone}: no experiment has seeds at scale {scale}",
            f"{there} another scale: --config scale=NAME.",
        )
    files = [*report_files(scale, milestone), f"results/{scale}/{milestone}/checks.json"]
    if milestone == "m2" and scale in COMPARED:
        files += scoring_targets(scale)
    return files


def blocks_of(
    rows: pd.DataFrame,
    studies: Mapping[str, Sequence[str]],
    seeds_per_job: int,
    seeds_per_block: int,
) -> dict[tuple[str, str], str]:
    """The job of every run of a grid, (arm, seed): its seeds as in file names, e.g. ``1-2-3``.

    Of the milestones in ``studies`` the first that has a run trains it.
    """
    found: dict[tuple[str, str], str] = {}
    for milestone, names in studies.items():
        size = seeds_per_block if milestone == SERIES else seeds_per_job
        for arm, own in grid.select(rows, names).groupby("arm", sort=False):
            added = sorted({int(seed) for seed in own.seed if (arm, seed) not in found})
            # Seeds on the two sides of a gap may have been trained from different models, and a job
            # must not mix them.
            for run in np.split(added, np.flatnonzero(np.diff(added) > 1) + 1):
                for block in _pieces(run.tolist(), size):
                    name = "-".join(map(str, block))
                    found |= {(arm, str(seed)): name for seed in block}
    return found


def _pieces(seeds: list[int], size: int) -> list[list[int]]:
    return [seeds[start : start + size] for start in range(0, len(seeds), size)]


REPLAYED = re.compile(r"runs/[^/]+/(?P<arm>[^/]+)/seed_\{(seed|partner_seed)\}/metrics\.jsonl")
"""Where an arm of a study finds the weights that it replays."""


def replayed_arm(overrides: Mapping[str, Any]) -> str | None:
    """The arm whose recorded weights an arm replays; None where it replays no run of the study."""
    found = REPLAYED.fullmatch(str(overrides.get("algorithm.ref_quality_score.replay_file")))
    return found and found["arm"]


@dataclass
class Jobs:
    """The training jobs of a scale: an arm with the seeds that one process trains."""

    scale: str
    studies: Mapping[str, Sequence[str]]
    """The experiments of each milestone; those of the series, if any, last."""
    seeds_per_job: int
    """At most as many seeds are in a job."""
    seeds_per_block: int
    """The same for the series."""
    _resolved: dict[str, RefblendConfig] = field(default_factory=dict)

    @cached_property
    def grid(self) -> pd.DataFrame:
        """All runs: derived from params/study, checked, all text."""
        return grid.build_grid(list(self.specs), self.scale)

    @cached_property
    def block_of(self) -> dict[tuple[str, str], str]:
        """The job of every run, (arm, seed): its seeds."""
        return blocks_of(self.grid, self.studies, self.seeds_per_job, self.seeds_per_block)

    @cached_property
    def specs(self) -> dict[str, ExperimentSpec]:
        """The experiments of all milestones."""
        return load_experiments(names=[name for found in self.studies.values() for name in found])

    @cached_property
    def exclusive(self) -> set[str]:
        """Arms that measure resources: each of their jobs runs alone."""
        return {arm for spec in self.specs.values() if spec.exclusive for arm in spec.arms}

    def test_file(self, arm: str) -> str:
        """The prompt file that an arm's actors are tested on; StudyError if it has two, or none."""
        self.overrides(arm)  # refuses an arm that the grid does not have
        named = {
            spec.test.replace("{scale}", self.scale): name
            for name, spec in self.specs.items()
            if arm in spec.arms_of(self.scale)
        }
        if len(named) > 1:
            raise StudyError(
                f"{' and '.join(named.values())} test arm {arm} on {' and '.join(named)}",
                "Give the arm two names, or correct `test` in one of params/study.",
            )
        return next(iter(named))

    def rows(self, report: str) -> pd.DataFrame:
        """The rows of the grid of a milestone or an experiment."""
        return grid.select(self.grid, self.studies.get(report, [report]))

    def digest(self, experiments: Sequence[str]) -> str:
        """Short hash of the rows of some experiments."""
        text = grid.select(self.grid, experiments).to_csv(index=False)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def markers(self, report: str, kind: str) -> list[str]:
        """The markers ``trained`` or ``tested`` of every job of a milestone or an experiment."""
        return [
            self._marker(arm, seeds, kind)
            for arm, seeds in self._jobs(self.rows(report))
            if kind == "trained" or self._saves(arm)
        ]

    def block_markers(self, experiment: str, number: int) -> list[str]:
        """The last markers of all arms of the ``number``-th block, from 1 on, of a series.

        An experiment's seeds, over all arms, are cut into blocks in ascending order. StudyError if
        it has fewer blocks.
        """
        rows = self.rows(experiment)
        seeds = rows.seed.astype("int64")
        blocks = _pieces(sorted(set(seeds)), self.seeds_per_block)
        if not 1 <= number <= len(blocks):
            raise StudyError(
                f"experiment {experiment} has no block {number}",
                f"Name one from 1 to {len(blocks)}.",
            )
        return [
            self._marker(arm, seeds, "tested" if self._saves(arm) else "trained")
            for arm, seeds in self._jobs(rows[seeds.isin(blocks[number - 1])])
        ]

    def _jobs(self, rows: pd.DataFrame) -> list[tuple[str, str]]:
        """Arm and seeds of the jobs that train the runs of these rows, each once."""
        runs = zip(rows.arm, rows.seed, strict=True)
        return list(dict.fromkeys((run[0], self.block_of[run]) for run in runs))

    def _saves(self, arm: str) -> bool:
        """Whether an arm's jobs leave models to test; those that measure resources do not."""
        return self.config(arm).trainer.save_freq != 0

    def _marker(self, arm: str, seeds: str, kind: str) -> str:
        return f"runs/{self.scale}/{arm}/{seeds}.{kind}.json"

    def overrides(self, arm: str) -> dict[str, object]:
        """The dotted overrides of an arm; StudyError if the grid does not have it."""
        found = self.grid.overrides[self.grid.arm == arm]
        if found.empty:
            raise StudyError(
                f"arm {arm} is not in the grid of scale {self.scale}",
                "Add it to a file of params/study.",
            )
        return json.loads(found.iloc[0])

    def config(self, arm: str) -> RefblendConfig:
        """The checked configuration of an arm."""
        if arm not in self._resolved:
            self._resolved[arm] = grid.resolve_arm(self.overrides(arm), self.scale)
        return self._resolved[arm]

    def overlay(self, arm: str) -> list[str]:
        """The configuration file that an arm lays over the scale's, if any."""
        name = self.overrides(arm).get(grid.OVERLAY)
        return [str(name)] if name else []

    def config_arguments(self, arm: str) -> list[str]:
        """``--config FILE`` for every configuration file of an arm; later ones win."""
        files = [*grid.config_files(self.scale), *self.overlay(arm)]
        return [word for name in files for word in ("--config", name)]

    def run_dirs(self, arm: str, seeds: str) -> list[str]:
        """The run directories of a job, whose seeds are written as in ``1-2-3``, ascending."""
        return [str(run_dir(self.scale, arm, seed)) for seed in seeds.split("-")]

    def purposes(self, arm: str) -> list[str]:
        """The purposes of ``numerics.json`` that an arm's runs depend on."""
        return training_purposes(self.config(arm), reward_rules(self.scale))

    def inputs(self, arm: str) -> list[str]:
        """What an arm reads: data, models, and files of the user's functions.

        A model that the workflow does not make is the user's: the trainer checks that it is there.
        """
        config = self.config(arm)
        data, scoring = config.data, config.algorithm.ref_quality_score.scoring
        files = sorted({*data.train_files, *data.val_files, *data.sanity_files})
        judge = scoring.model_path if config.use_judge else None
        for folder in (config.actor_rollout_ref.model.path, judge):
            if folder and self.scale in EMBEDDED and folder.startswith(f"models/{self.scale}/"):
                files += model_files(folder)
            elif folder:
                files += sorted(str(f) for f in Path(folder).glob("[!.]*") if f.is_file())
        if config.use_judge:
            files.append(os.path.relpath(templates_file(scoring.templates)))
        files += map(os.path.relpath, user_files(config))
        return files + self.overlay(arm) + tools(self.scale)

    def replayed(self, arm: str, seeds: str) -> list[str]:
        """The markers of the jobs whose runs a job may replay: those of its seeds and partners.

        StudyError for seeds that are not ascending: another job has these runs.
        """
        own = list(map(int, seeds.split("-")))
        ordered = "-".join(map(str, sorted(set(own))))
        if seeds != ordered:
            raise StudyError(f"{seeds} names no job of arm {arm}", f"Ask for {ordered}.")
        other = replayed_arm(self.overrides(arm))
        if other is None:
            return []
        runs = [(other, str(seed)) for seed in (*own, *map(partner_seed, own))]
        found = dict.fromkeys(self.block_of[run] for run in runs if run in self.block_of)
        return [self._marker(other, block, "trained") for block in found]

    def failed_attempts(self, arm: str, seeds: str) -> int:
        """How often the runs of a job have failed."""
        records = [Path(run) / "failures.jsonl" for run in self.run_dirs(arm, seeds)]
        return sum(len(r.read_text().splitlines()) for r in records if r.exists())

    def priority(self, arm: str) -> int:
        """Of a training job: M1 first, what measures resources last."""
        if arm in self.exclusive:
            return 1
        return 25 if arm in set(self.rows("m1").arm) else 20

    def judge_settings(self) -> list[str]:
        """The scale's own settings of the judge in training, as ``--set`` options."""
        scoring = grid.resolve_arm({}, self.scale).algorithm.ref_quality_score.scoring
        settings = ("decoding", "dtype", "kv_cache_memory_mb", "max_new_tokens")
        return [f"--set={name}={getattr(scoring, name)}" for name in settings]
