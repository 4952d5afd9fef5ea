"""From a configuration to a finished run directory: preflight, cluster, recovery, records."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from refblend.config import RefblendConfig
from refblend.energy import EnergyMeter
from refblend.errors import ConfigError, RefblendError
from refblend.files import write_json
from refblend.identity import RunIdentity
from refblend.inputs import InputHashes, hash_inputs
from refblend.lifecycle.faults import explained
from refblend.lifecycle.stopping import StopRequest, Terminated, terminate_cleanly
from refblend.provenance import collect_provenance, finish, read_previous
from refblend.trainer.checkpoint import CheckpointManager
from refblend.trainer.datasets import RunData
from refblend.trainer.preflight import inputs_of, planned_steps, preflight
from refblend.trainer.recovery import train_with_recovery
from refblend.trainer.run_directory import (
    Prepared,
    StartOptions,
    check_run_dir,
    open_run,
    record_start,
)
from refblend.trainer.summary import failure, finished_summary, summarise_run
from refblend.trainer.tracking import MetricsLog
from refblend.trainer.worker_pool import WorkerPool


def train(config: RefblendConfig, overwrite: bool = False) -> dict[str, Any]:
    """Train one run to its end, resuming what an earlier call of the same run left.

    Args:
        config: ``trainer.default_local_dir`` is the run's directory.
        overwrite: move another run that lies there aside.

    Returns:
        The content of ``summary.json``.

    Raises:
        Terminated: SIGTERM or Ctrl-C came; the run stopped after its step, with a checkpoint.
        RefblendError: something that the user can fix; the run directory holds the last valid
            checkpoint and all metrics up to it.
    """
    data, inputs = _checked(config)
    with WorkerPool() as workers, terminate_cleanly(config.trainer.stop_grace_s) as stop:
        return _train(config, data, inputs, workers, stop, overwrite)


def train_seeds(
    config: RefblendConfig, seeds: Sequence[int], overwrite: bool = False
) -> Iterator[tuple[RefblendConfig, dict[str, Any]]]:
    """Train one run after another, each with a seed of its own, on the same processes.

    The numbers of a run are those that it would have alone. A run that ends with an error leaves
    that in its summary, and the next one begins.

    Args:
        config: ``trainer.default_local_dir`` names the run's directory with ``{seed}``.
        seeds: one per run.
        overwrite: move other runs that lie there aside.

    Yields:
        The configuration of each run and the content of its ``summary.json``.

    Raises:
        ConfigError: the directory does not name the seed.
        CheckpointError: a directory holds another run.
        RefblendError: data or models cannot be used; no run was begun.
    """
    configs = [of_seed(config, seed) for seed in seeds]
    data, inputs = _checked(configs[0])
    if not overwrite:
        for run in configs:
            check_directory(run, data, inputs)
    with WorkerPool() as workers, terminate_cleanly(config.trainer.stop_grace_s) as stop:
        for run in configs:
            try:
                summary = _train(run, data, inputs, workers, stop, overwrite)
            except RefblendError as error:
                summary = failure(error)
            yield run, summary


def _checked(config: RefblendConfig) -> tuple[RunData, InputHashes]:
    """The first stage of a call: what a run reads, after :func:`preflight`."""
    begin = time.monotonic()
    data, inputs = preflight(config), hash_inputs(*inputs_of(config))
    if "console" in config.trainer.logger:
        told = f"data and models are checked ({time.monotonic() - begin:.1f} s)"
        print(told, file=sys.stderr, flush=True)
    return data, inputs


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
    overwrite: bool,
) -> dict[str, Any]:
    """One run on the pool's workers; a run that is finished already is left as it is."""
    run_dir = Path(config.trainer.default_local_dir)
    wanted, options = _wanted(config, data, inputs, overwrite)
    with explained(run_dir), open_run(run_dir, wanted, options) as prepared:
        if prepared.start == "resume" and config.trainer.resume_mode == "auto":
            finished = finished_summary(run_dir, wanted.total_steps)
            if finished is not None:
                return finished
        record_start(run_dir, wanted, prepared)
        try:
            with explained(run_dir):
                return _train_and_record(config, data, inputs, prepared, workers, stop)
        except Terminated:
            _tell_stop(run_dir)
            raise
        except RefblendError as error:
            # What stopped the run may be that nothing can be written there.
            with suppress(OSError):
                write_json(run_dir / "summary.json", failure(error))
            raise


def _tell_stop(run_dir: Path) -> None:
    """Say what a run that was asked to stop leaves, and how it goes on."""
    steps = CheckpointManager(run_dir / "checkpoints").steps()
    reached = f"after step {steps[-1]}" if steps else "before a step was saved"
    print(f"{run_dir}: stopped {reached}; the same command continues", file=sys.stderr, flush=True)


def _train_and_record(
    config: RefblendConfig,
    data: RunData,
    inputs: InputHashes,
    prepared: Prepared,
    workers: WorkerPool,
    stop: StopRequest,
) -> dict[str, Any]:
    run_dir = Path(config.trainer.default_local_dir)
    total_steps = planned_steps(config, len(data.train))
    write_json(run_dir / "config.json", config.resolved())
    record = _open_record(config, run_dir, inputs, prepared)
    start = time.monotonic()
    with _energy(config, run_dir) as meter:
        log = MetricsLog(run_dir / "metrics.jsonl")
        train_with_recovery(config, data, log, total_steps, stop, workers)
    energy = meter.stop().as_dict() if meter else None
    write_json(run_dir / "provenance.json", finish(record, time.monotonic() - start, energy))
    summary = summarise_run(run_dir, total_steps)
    write_json(run_dir / "summary.json", summary)
    return summary


@contextmanager
def _energy(config: RefblendConfig, run_dir: Path) -> Iterator[EnergyMeter | None]:
    if not config.trainer.energy:
        yield None
        return
    with EnergyMeter(config.trainer.country_iso_code, run_dir) as meter:
        yield meter


def check_directory(
    config: RefblendConfig, data: RunData, inputs: InputHashes | None = None
) -> None:
    """Check that the run's directory is free, or holds this run.

    Args:
        config: the configuration of the run.
        data: its prompts.
        inputs: hashes of what it reads; null: computed when the directory is there.

    Raises:
        CheckpointError: the directory holds another run.
    """
    run_dir = Path(config.trainer.default_local_dir)
    if run_dir.is_dir():
        found = inputs or hash_inputs(*inputs_of(config))
        check_run_dir(run_dir, *_wanted(config, data, found, overwrite=False))


def _wanted(
    config: RefblendConfig, data: RunData, inputs: InputHashes, overwrite: bool
) -> tuple[RunIdentity, StartOptions]:
    identity = RunIdentity.of(config, inputs, planned_steps(config, len(data.train)))
    return identity, StartOptions.of(config.trainer, overwrite)


def _open_record(
    config: RefblendConfig, run_dir: Path, inputs: InputHashes, prepared: Prepared
) -> dict[str, Any]:
    path = run_dir / "provenance.json"
    previous = read_previous(path) if path.exists() else None
    changes = list(map(str, prepared.changes))
    record = collect_provenance(config.resolved(), inputs, config.trainer.seed, previous, changes)
    write_json(path, record)
    return record
