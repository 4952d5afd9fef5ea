"""From a configuration to a finished run directory: preflight, cluster, recovery, records."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from refblend import runtime
from refblend.config import RefblendConfig
from refblend.energy import EnergyMeter
from refblend.errors import ConfigError, RefblendError, ResourceError
from refblend.files import write_json
from refblend.identity import RunIdentity
from refblend.lifecycle.devices import visible_devices
from refblend.lifecycle.faults import explained
from refblend.lifecycle.stopping import StopRequest, Terminated, terminate_cleanly
from refblend.numerics import training_purposes, versions
from refblend.provenance import InputHashes, collect_provenance, finish, hash_inputs, read_previous
from refblend.rewards.rule import reward_purposes
from refblend.trainer.checkpoint import CheckpointManager, named_checkpoint
from refblend.trainer.datasets import RunData
from refblend.trainer.preflight import inputs_of, notices, planned_steps, preflight
from refblend.trainer.replay import replay_of_seed, replayed_weights_of, with_replay
from refblend.trainer.run_directory import Prepared, check_run_dir, open_run, record_start
from refblend.trainer.tracking import MetricsLog, read_metrics
from refblend.workers.placement import processes_of, totals

if TYPE_CHECKING:
    from refblend.trainer.recovery import WorkerPool


def train(config: RefblendConfig, overwrite: bool = False) -> dict[str, Any]:
    """Train one run to its end, resuming what an earlier call left; returns its ``summary.json``.

    Terminated if a signal stopped it after a step; RefblendError for what the user can fix.
    """
    (run,) = _checked(configs_of(config, None), overwrite)
    with _worker_pool() as workers, terminate_cleanly(config.trainer.stop_grace_s) as stop:
        return run.train(workers, stop)


def train_seeds(
    config: RefblendConfig, seeds: Sequence[int], overwrite: bool = False
) -> Iterator[tuple[RefblendConfig, dict[str, Any]]]:
    """Train one run per seed on the same processes; yields each configuration and ``summary.json``.

    If a run ends with an error, its summary records it and the next run begins. Problems with
    data, models or directories are raised before any run begins.
    """
    runs = _checked(configs_of(config, seeds), overwrite)
    with _worker_pool() as workers, terminate_cleanly(config.trainer.stop_grace_s) as stop:
        for run in runs:
            try:
                summary = run.train(workers, stop)
            except RefblendError as error:
                summary = {"status": "failed", "reason": str(error)}
            yield run.config, summary


def _worker_pool() -> "WorkerPool":
    """An empty pool. Only now are torch and Ray imported: no refusal waits for them."""
    with runtime.importing():
        from refblend.trainer.recovery import WorkerPool
    return WorkerPool()


def check_runs(
    configs: Sequence[RefblendConfig],
    data: RunData,
    inputs: InputHashes | None = None,
    overwrite: bool = False,
) -> None:
    """Check what the first run's :func:`preflight` does not: other runs, all directories."""
    for config in configs:
        replayed_weights_of(config, planned_steps(config, len(data.train)))
        if not overwrite and Path(config.trainer.default_local_dir).is_dir():
            inputs = inputs or hash_inputs(*inputs_of(config))
            run = _Run(config, data, with_replay(inputs, config))
            check_run_dir(run.directory, run.wanted(), config.trainer)


def _checked(configs: Sequence[RefblendConfig], overwrite: bool) -> list["_Run"]:
    """The first stage of a call: its runs, after :func:`preflight`."""
    begin, config = time.monotonic(), configs[0]
    data = preflight(config)
    inputs = hash_inputs(*inputs_of(config))  # once: those of a large model take minutes
    check_runs(configs, data, inputs, overwrite)
    if "console" in config.trainer.logger:
        _tell(f"data and models are checked ({time.monotonic() - begin:.1f} s)")
        for sentence in notices(config, data):
            _tell(sentence)
    return [_Run(each, data, with_replay(inputs, each), overwrite) for each in configs]


def configs_of(config: RefblendConfig, seeds: Sequence[int] | None) -> list[RefblendConfig]:
    """The configuration of each run of a call; ConfigError if a directory does not fit them."""
    folder, runs = config.trainer.default_local_dir, []
    if seeds is None and "{seed}" in folder:
        raise ConfigError(
            f"trainer.default_local_dir={folder} names a seed",
            "Give --seeds, or write the directory out.",
        )
    if seeds is None:
        return [config]
    if "{seed}" not in folder:
        raise ConfigError(
            f"trainer.default_local_dir={folder} is the same for every seed",
            "Put {seed} where the seed belongs, as in runs/three/seed_{seed}.",
        )
    for seed in seeds:
        changes = {"seed": seed, "default_local_dir": folder.replace("{seed}", str(seed))}
        trainer = config.trainer.model_copy(update=changes)
        runs.append(replay_of_seed(config.model_copy(update={"trainer": trainer}), seed))
    return runs


@dataclass(frozen=True)
class _Run:
    """One run: its configuration, its inputs, and whether it replaces another in its directory."""

    config: RefblendConfig
    data: RunData
    inputs: InputHashes
    overwrite: bool = False

    @property
    def directory(self) -> Path:
        """Of the run."""
        return Path(self.config.trainer.default_local_dir)

    def wanted(self) -> RunIdentity:
        """What the directory must hold."""
        steps = planned_steps(self.config, len(self.data.train))
        rewards = reward_purposes(self.config.reward, self.data.data_sources)
        numerics = versions(*training_purposes(self.config, rewards))
        prompts = self.data.prompts_hash
        return RunIdentity.of(self.config, self.inputs, steps, prompts, numerics)

    def train(self, workers: "WorkerPool", stop: StopRequest) -> dict[str, Any]:
        """Train on the pool's workers; a run that is finished already is left as it is."""
        run_dir, wanted, options = self.directory, self.wanted(), self.config.trainer
        with explained(run_dir), open_run(run_dir, wanted, options, self.overwrite) as prepared:
            if prepared.finished is not None:
                return dict(prepared.finished)
            record_start(run_dir, wanted, prepared)
            # How an earlier call ended says nothing of this one, which may be killed.
            (run_dir / "summary.json").unlink(missing_ok=True)
            try:
                with explained(run_dir):
                    return self._train(wanted.total_steps, prepared, workers, stop)
            except Terminated:
                steps = CheckpointManager(run_dir / "checkpoints").steps()
                reached = f"after step {steps[-1]}" if steps else "before a step was saved"
                again = ", with trainer.resume_mode=auto," * (options.resume_mode == "disable")
                _tell(f"{run_dir}: stopped {reached}; the same command{again} continues")
                self._record({"status": "stopped", "reason": f"as asked, {reached}"})
                raise
            except RefblendError as error:
                self._record({"status": "failed", "reason": str(error)})
                raise

    def _record(self, ended: dict[str, Any]) -> None:
        """Write how the run ended, unless that is because nothing can be written there."""
        with suppress(OSError):
            write_json(self.directory / "summary.json", ended)

    def _train(
        self, total_steps: int, prepared: Prepared, workers: "WorkerPool", stop: StopRequest
    ) -> dict[str, Any]:
        """Train, and write the records around it."""
        from refblend.trainer.recovery import train_with_recovery

        config, run_dir, start = self.config, self.directory, time.monotonic()
        path = run_dir / "provenance.json"
        write_json(run_dir / "config.json", config.resolved())
        previous = read_previous(path) if path.exists() else None
        record = collect_provenance(self.inputs, previous, list(map(str, prepared.changes)))
        write_json(path, record)
        energy, named = config.trainer.energy, config.trainer.resume_from_path
        log, begin = MetricsLog(run_dir / "metrics.jsonl"), prepared.checkpoint
        if named and begin is None:
            begin = named_checkpoint(named, total_steps)
        taken = totals(processes_of(config))[1] if config.ray.address is None else 0
        own = visible_devices()[:taken]  # a private cluster takes the first ones
        meter = EnergyMeter(config.trainer.country_iso_code, own) if energy else None
        try:
            with meter or nullcontext():
                train_with_recovery(config, self.data, log, total_steps, stop, workers, begin)
        finally:
            report = meter.report if meter else None
            with suppress(OSError):  # the disk may be full
                write_json(path, finish(record, time.monotonic() - start, report))
        summary = summarise_run(run_dir, total_steps)
        write_json(run_dir / "summary.json", summary)
        return summary


def summarise_run(run_dir: Path, total_steps: int) -> dict[str, Any]:
    """``summary.json`` of a finished run; ResourceError if steps are missing."""
    frame = read_metrics(run_dir / "metrics.jsonl")
    if frame.empty or frame["step"].iloc[-1] != total_steps:
        raise ResourceError(
            f"{run_dir / 'metrics.jsonl'} does not reach step {total_steps}",
            "Call the same command again to resume.",
        )
    seconds = frame.get("timing_s/step", pd.Series(dtype="float64")).dropna()
    return {
        "status": "finished",
        "steps": total_steps,
        "validation": {
            name: {"first": known[0], "best": max(known), "last": known[-1]}
            for name, values in frame.filter(regex="^val-core/").items()
            if (known := values.dropna().tolist())
        },
        "incidents": {
            name.removeprefix("incidents/"): int(count)
            for name, count in frame.filter(regex="^incidents/").sum().items()
        },
        "step_seconds_mean": float(seconds.mean()) if len(seconds) else None,
    }


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
