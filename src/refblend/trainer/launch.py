"""From a configuration to a finished run directory: preflight, cluster, recovery, records."""

import logging
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from refblend.config import RefblendConfig
from refblend.data.dataset import PromptSampler
from refblend.energy import EnergyMeter
from refblend.errors import ConfigError, ModelError, RefblendError, ResourceError
from refblend.files import read_object, write_json
from refblend.identity import InputHashes, hash_inputs, prepare_run_dir, run_identity, run_lock
from refblend.lifecycle.faults import explained
from refblend.lifecycle.stopping import StopRequest, terminate_cleanly
from refblend.lookup import get_advantage
from refblend.provenance import collect_provenance, finish, read_previous
from refblend.rewards.rule import RuleReward
from refblend.rollout.base import check_model_dir, positions_of
from refblend.scoring.templates import load_templates, templates_file
from refblend.trainer.datasets import RunData, load_run_data
from refblend.trainer.recovery import train_with_recovery
from refblend.trainer.tracking import MetricsLog, read_metrics
from refblend.trainer.worker_pool import WorkerPool

logger = logging.getLogger(__name__)

TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")
"""One of these is in every model directory with a tokenizer."""


def train(config: RefblendConfig) -> dict[str, Any]:
    """Train one run to its end, resuming what an earlier call of the same run left.

    Returns:
        The content of ``summary.json``.

    Raises:
        Terminated: SIGTERM came; the run stopped after its step, with a checkpoint.
        RefblendError: something that the user can mend; the run directory holds the last valid
            checkpoint and all metrics up to it.
    """
    data, inputs = preflight(config), hash_inputs(*_inputs(config))
    with WorkerPool() as workers, terminate_cleanly(config.trainer.stop_grace_s) as stop:
        return _train(config, data, inputs, workers, stop)


def train_seeds(
    config: RefblendConfig, seeds: Sequence[int]
) -> Iterator[tuple[RefblendConfig, dict[str, Any]]]:
    """Train one run after another, each with a seed of its own, on the same processes.

    The numbers of a run are those that it would have alone. A run that ends with an error leaves
    that in its summary, and the next one begins.

    Args:
        config: ``trainer.default_local_dir`` names the run's directory with ``{seed}``.
        seeds: one a run.

    Yields:
        The configuration of each run and the content of its ``summary.json``.

    Raises:
        ConfigError: the directory does not name the seed.
        RefblendError: data or models cannot be used; no run was begun.
    """
    configs = [of_seed(config, seed) for seed in seeds]
    data, inputs = preflight(configs[0]), hash_inputs(*_inputs(configs[0]))
    with WorkerPool() as workers, terminate_cleanly(config.trainer.stop_grace_s) as stop:
        for run in configs:
            try:
                summary = _train(run, data, inputs, workers, stop)
            except RefblendError as error:
                summary = _failure(error)
            yield run, summary


def of_seed(config: RefblendConfig, seed: int) -> RefblendConfig:
    """The configuration of a run with another seed.

    Raises:
        ConfigError: all seeds would share one directory.
    """
    folder = config.trainer.default_local_dir
    if "{seed}" not in folder:
        raise ConfigError(
            f"trainer.default_local_dir={folder} is the same for every seed",
            "Put {seed} where the seed belongs, as in runs/mine/seed_{seed}.",
        )
    changes = {"seed": seed, "default_local_dir": folder.replace("{seed}", str(seed))}
    trainer = config.trainer.model_copy(update=changes)
    return config.model_copy(update={"trainer": trainer})


def _train(
    config: RefblendConfig,
    data: RunData,
    inputs: InputHashes,
    workers: WorkerPool,
    stop: StopRequest,
) -> dict[str, Any]:
    """One run on the pool's workers; a run that is finished already is left as it is."""
    run_dir = Path(config.trainer.default_local_dir)
    with explained(run_dir), run_lock(run_dir):
        prepared = prepare_run_dir(run_dir, run_identity(_identifying(config), inputs))
        if prepared == "resume" and config.trainer.resume_mode == "auto":
            finished = _finished_summary(run_dir)
            if finished is not None:
                return finished
        try:
            with explained(run_dir):
                return _train_and_record(config, data, inputs, workers, stop)
        except RefblendError as error:
            # What stopped the run may be that nothing can be written there.
            with suppress(OSError):
                write_json(run_dir / "summary.json", _failure(error))
            raise


def _train_and_record(
    config: RefblendConfig,
    data: RunData,
    inputs: InputHashes,
    workers: WorkerPool,
    stop: StopRequest,
) -> dict[str, Any]:
    run_dir = Path(config.trainer.default_local_dir)
    total_steps = planned_steps(config, len(data.train))
    write_json(run_dir / "config.json", config.resolved())
    record = _open_record(config, run_dir, inputs)
    start = time.monotonic()
    with _energy(config, run_dir) as meter:
        log = MetricsLog(run_dir / "metrics.jsonl")
        train_with_recovery(config, data, log, total_steps, stop, workers)
    energy = meter.stop().as_dict() if meter else None
    write_json(run_dir / "provenance.json", finish(record, time.monotonic() - start, energy))
    summary = summarise_run(run_dir, total_steps)
    write_json(run_dir / "summary.json", summary)
    return summary


def _failure(error: RefblendError) -> dict[str, Any]:
    return {"status": "failed", "reason": str(error)}


def _finished_summary(run_dir: Path) -> dict[str, Any] | None:
    """The summary of a run that came to its end; a damaged one is warned of and made again."""
    path = run_dir / "summary.json"
    try:
        summary = read_object(path) if path.exists() else {}
    except ValueError as error:
        logger.warning("%s is damaged (%s): the run goes on from its checkpoint", path, error)
        return None
    return summary if summary.get("status") == "finished" else None


def preflight(config: RefblendConfig) -> RunData:
    """Check everything that can be checked before a process is started.

    Raises:
        RefblendError: names the key or file and the remedy.
    """
    models = config.actor_rollout_ref
    _check_model(
        ("actor_rollout_ref.model.path", models.model.path),
        ("actor_rollout_ref.rollout.max_model_len", models.rollout.max_model_len),
    )
    scoring = config.algorithm.ref_quality_score.scoring
    if config.use_judge:
        key = "algorithm.ref_quality_score.scoring"
        _check_model(
            (f"{key}.model_path", scoring.model_path or ""),
            (f"{key}.max_model_len", scoring.max_model_len),
        )
        load_templates(scoring.templates)
    get_advantage(config.algorithm.adv_estimator)
    RuleReward.from_config(config.reward)
    data = load_run_data(config)
    # Refuses a batch larger than the data.
    PromptSampler(len(data.train), config.data.train_batch_size, False, config.trainer.seed)
    return data


def _check_model(path: tuple[str, str], length: tuple[str, int | None]) -> None:
    """Model and tokenizer are there and reach the wanted length; both come with their keys."""
    directory = check_model_dir(path[1], path[0])
    # transformers makes an empty tokenizer where these files are missing.
    if not any((directory / name).is_file() for name in TOKENIZER_FILES):
        raise ModelError(
            f"{path[0]}: {directory} holds no tokenizer", "Add the files of the model's tokenizer."
        )
    positions = positions_of(directory)
    key, wanted = length
    if wanted and positions and wanted > positions:
        raise ModelError(
            f"{key}={wanted} is beyond the {positions} positions of {directory}",
            f"Set it to {positions} or less, or to null for the model's own limit.",
        )


def planned_steps(config: RefblendConfig, num_prompts: int) -> int:
    """Last training step: ``total_training_steps``, or what ``total_epochs`` give."""
    if config.trainer.total_training_steps is not None:
        return config.trainer.total_training_steps
    return config.trainer.total_epochs * (num_prompts // config.data.train_batch_size)


@contextmanager
def _energy(config: RefblendConfig, run_dir: Path) -> Iterator[EnergyMeter | None]:
    if not config.trainer.energy:
        yield None
        return
    with EnergyMeter(config.trainer.country_iso_code, run_dir) as meter:
        yield meter


def _inputs(config: RefblendConfig) -> tuple[list[Path], list[Path]]:
    """Files and model directories that determine a run."""
    scoring = config.algorithm.ref_quality_score.scoring
    files = [*config.data.train_files, *config.data.val_files, *config.data.sanity_files]
    models = [config.actor_rollout_ref.model.path]
    if config.use_judge:
        files.append(str(templates_file(scoring.templates)))
        models.append(scoring.model_path or "")
    return [Path(f) for f in files], [Path(m) for m in models]


def _identifying(config: RefblendConfig) -> dict[str, Any]:
    """The configuration without what cannot change a number."""
    tree = config.resolved()
    for key in (
        "default_local_dir",
        "logger",
        "resume_mode",
        "resume_from_path",
        "max_restarts",
        "profile_steps",
        "stop_grace_s",
        "worker_timeout_s",
        "energy",
        "country_iso_code",
    ):
        del tree["trainer"][key]
    del tree["ray"]
    return tree


def _open_record(config: RefblendConfig, run_dir: Path, inputs: InputHashes) -> dict[str, Any]:
    path = run_dir / "provenance.json"
    previous = read_previous(path) if path.exists() else None
    record = collect_provenance(config.resolved(), inputs, config.trainer.seed, previous)
    write_json(path, record)
    return record


def summarise_run(run_dir: Path, total_steps: int) -> dict[str, Any]:
    """Headline numbers of a finished run: first, best and last validation, and all incidents.

    Raises:
        ResourceError: the metrics do not reach the last step.
    """
    frame = read_metrics(run_dir / "metrics.jsonl")
    if frame.empty or int(frame["step"].iloc[-1]) != total_steps:
        raise ResourceError(
            f"{run_dir / 'metrics.jsonl'} does not reach step {total_steps}",
            "Call the same command again to resume.",
        )
    validation = {}
    for name in frame.columns[frame.columns.str.startswith("val-core/")]:
        values = frame[name].dropna()
        if not values.empty:
            validation[name] = {
                "first": float(values.iloc[0]),
                "best": float(values.max()),
                "last": float(values.iloc[-1]),
            }
    incidents = {
        name.removeprefix("incidents/"): int(frame[name].fillna(0).sum())
        for name in frame.columns[frame.columns.str.startswith("incidents/")]
    }
    seconds = frame.get("timing_s/step")
    mean = float(seconds.mean()) if seconds is not None else math.nan
    return {
        "status": "finished",
        "steps": total_steps,
        "validation": validation,
        "incidents": incidents,
        "step_seconds_mean": mean if math.isfinite(mean) else None,
    }
