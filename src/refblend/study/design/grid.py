"""From experiments to runs: the grid of arms and seeds, derived and never written by hand.

A run is one (arm, seed). Experiments that name the same arm share its runs. Two arms with equal
resolved configurations would be trained twice under two names, so they are refused, and so is one
name with two meanings. (Experiments that measure resources may each measure the same
configuration.)
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from refblend.config.loading import load_config
from refblend.config.root import RefblendConfig
from refblend.documents import parse_yaml, shorten
from refblend.errors import ConfigError, Problems, StudyError
from refblend.files import atomic_path
from refblend.study.design.spec import OVERLAY, ExperimentSpec, load_experiment

GRID_COLUMNS = ["experiment", "arm", "seed", "overrides"]
"""All text; ``overrides`` is a JSON object of the dotted overrides, keys sorted."""


def config_files(scale: str, params: str | Path = "params") -> list[str]:
    """The configuration files of a scale; each overrides the ones before."""
    root = Path(params)
    return [str(root / "ppo.yaml"), str(root / "scale" / f"{scale}.yaml")]


def override_arguments(overrides: Mapping[str, Any]) -> list[str]:
    """Dotted overrides as ``key=value`` arguments that :func:`parse_override` reads back equal.

    An ``overlay`` is a file, not an override, and is left out.

    >>> override_arguments({"a.b": True, "a.c": "per_token", "a.d": "1"})
    ['a.b=true', 'a.c=per_token', 'a.d="1"']
    """
    return [f"{key}={_yaml_scalar(overrides[key])}" for key in sorted(overrides) if key != OVERLAY]


def _yaml_scalar(value: Any) -> str:
    """The shortest text that YAML reads back as ``value``: bare words stay bare."""
    bare = isinstance(value, str) and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_./-]*", value)
    if bare and parse_yaml(value) == value:
        return str(value)
    # JSON writes characters beyond 16 bits as two escapes, which YAML reads as two characters.
    text = json.dumps(value, ensure_ascii=False)
    return re.sub(r"[^ -~]", lambda found: f"\\U{ord(found[0]):08x}", text)


def resolve_arm(
    overrides: Mapping[str, Any], scale: str, params: str | Path = "params"
) -> RefblendConfig:
    """The full, checked configuration of an arm at a scale, or ConfigError.

    Its ``overlay`` is left out while that file does not exist: what a result is to choose.
    """
    overlay = str(overrides.get(OVERLAY, ""))
    chosen = [overlay] if Path(overlay).is_file() else []
    return load_config([*config_files(scale, params), *chosen], override_arguments(overrides))


def configuration_digest(config: RefblendConfig) -> str:
    """Short hash of a resolved configuration; comments and key order do not change it.

    Seed and run directory are excluded: all runs of an arm have the same digest.
    """
    tree = config.resolved()
    for key in ("seed", "default_local_dir"):
        del tree["trainer"][key]
    return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()[:16]


def build_grid(
    experiments: Sequence[str], scale: str, params: str | Path = "params"
) -> pd.DataFrame:
    """Derive the grid of several experiments (names of ``<params>/study/<name>.yaml``) at a scale.

    One row of :data:`GRID_COLUMNS` per (experiment, arm, seed), all text. StudyError if an arm
    clashes with another or the scale has no seeds, ConfigError for an arm's configuration,
    ProblemsError for several of these.
    """
    rows: list[tuple[str, ...]] = []
    problems = Problems()
    meanings: dict[str, tuple[str, Path]] = {}
    digests: dict[tuple[str, ...], str] = {}
    for experiment in dict.fromkeys(experiments):
        with problems.noted():
            path = Path(params) / "study" / f"{experiment}.yaml"
            spec = load_experiment(path)
            if scale not in spec.seeds:
                raise StudyError(f"{path}: no seeds for scale {scale}", f"Add seeds.{scale}.")
            seeds = spec.seeds_by_arm(scale)
            for arm, overrides in spec.arms_of(scale).items():
                text = json.dumps(overrides, sort_keys=True)
                rows += [(experiment, arm, str(seed), text) for seed in seeds[arm]]
                meaning, elsewhere = meanings.setdefault(arm, (text, path))
                with problems.noted():
                    if meaning != text:
                        raise StudyError(
                            f"{path}: arm {arm} has other overrides than in {elsewhere}",
                            "Write the same in both, or give it another name.",
                        )
                    try:
                        config = resolve_arm(overrides, scale, params)
                    except ConfigError as error:
                        where = f"{path}, arm {arm}: {error.reason}"
                        raise ConfigError(where, error.remedy) from None
                    check_endpoints(spec, arm, config, path)
                    if elsewhere != path:
                        continue
                    digest = (configuration_digest(config), str(overrides.get(OVERLAY, "")))
                    # Experiments on resources measure separately, alone on the machine; a
                    # milestone may confirm what another one found, with runs of its own.
                    key = (*digest, experiment if spec.exclusive else spec.milestone)
                    if (twin := digests.setdefault(key, arm)) != arm:
                        raise StudyError(
                            f"{path}: arms {twin} and {arm} are the same configuration",
                            "Use one name for both.",
                        )
    problems.settle()
    return pd.DataFrame(rows, columns=GRID_COLUMNS, dtype=str)


def check_endpoints(spec: ExperimentSpec, arm: str, config: RefblendConfig, path: Path) -> None:
    """Refuse (StudyError), before any training, an arm without a measure that it is compared by.

    ``config`` is that of ``arm``, one of the experiment's; ``path`` names its file in messages.
    """
    if spec.exclusive:  # it tests no actor
        return
    own = [spec.endpoint_of(contrast) for contrast in spec.contrasts if arm in contrast.arms]
    for endpoint in dict.fromkeys([spec.endpoint, *own]):
        if lacking := _lacking(endpoint, config):
            raise StudyError(
                f"{path}: endpoint: no run of arm {arm} would have {endpoint}: {lacking}",
                "Change that setting, or the experiment's endpoint.",
            )


def _lacking(endpoint: str, config: RefblendConfig) -> str:
    """Why runs of a configuration lack a measure; empty where they have it."""
    trainer, sampled = config.trainer, config.actor_rollout_ref.rollout.val_kwargs
    if endpoint.startswith("test_") and trainer.save_freq == 0:
        return "trainer.save_freq=0 leaves no actor to test"
    if endpoint == "test_sampled" and not sampled.n:
        return "rollout.val_kwargs samples no answers"
    if endpoint == "val_gain" and not trainer.val_before_train:
        return "trainer.val_before_train=false"
    of_the_judge = ("judge_auc", "nonzero_rate", "valid_rate", "judge_seconds")
    if endpoint in of_the_judge and not config.use_judge:
        return "it has no judge"
    return ""


def select(grid: pd.DataFrame, experiments: Sequence[str]) -> pd.DataFrame:
    """The rows of some experiments, e.g. of a milestone's; StudyError if one has no row."""
    absent = sorted(set(experiments) - set(grid.experiment))
    if absent:
        raise StudyError(
            f"the grid has no experiment {', '.join(absent)}",
            "Add its file to params/study and derive the grid again.",
        )
    return grid[grid.experiment.isin(experiments)].reset_index(drop=True)


def unique_runs(grid: pd.DataFrame) -> pd.DataFrame:
    """The runs behind a grid: unique (arm, seed, overrides), in grid order."""
    return grid[["arm", "seed", "overrides"]].drop_duplicates(ignore_index=True)


def configurations(
    grid: pd.DataFrame, scale: str, params: str | Path = "params"
) -> dict[str, RefblendConfig]:
    """The configuration of every arm of a grid; errors of :func:`resolve_arm`."""
    arms = grid.drop_duplicates("arm")
    return {
        arm: resolve_arm(json.loads(overrides), scale, params)
        for arm, overrides in zip(arms.arm, arms.overrides, strict=True)
    }


def write_grid(grid: pd.DataFrame, path: str | Path) -> None:
    """Write ``grid.tsv`` atomically."""
    with atomic_path(path) as temporary:
        grid.to_csv(temporary, sep="\t", index=False)


def read_grid(path: str | Path) -> pd.DataFrame:
    """Read ``grid.tsv``; StudyError if it is missing, empty or another table."""
    try:
        grid = pd.read_csv(path, sep="\t", dtype=str, keep_default_na=False)
        if grid.empty or list(grid.columns) != GRID_COLUMNS:
            raise ValueError(f"it has no rows, or not the columns {', '.join(GRID_COLUMNS)}")
    except (OSError, ValueError) as error:
        raise StudyError(
            f"{path}: cannot be read ({shorten(str(error), 300)})", "Run `refblend study grid`."
        ) from None
    return grid
