"""``trainer.*`` and ``ray.*``: the run, its files, its resources and its deadlines."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import field_validator

from refblend.config.base import (
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Section,
)

TrackerName = Literal["console", "tensorboard", "wandb", "mlflow", "jsonl"]
"""What ``trainer.logger`` may list; see :mod:`refblend.trainer.trackers`."""


class DriftGuardConfig(Section):
    """Watches the sanity set for drift of the reward function."""

    max_drop: PositiveFloat = 0.2
    """Warn when the sanity accuracy is this far below what it is compared with."""
    reference: Literal["start", "best"] = "start"
    """Compare with the first validation, or with the best one so far: an actor that starts low and
    learns can lose much before it is below its start."""
    stop: bool = False
    """Stop the run instead of warning."""


class TrainerConfig(Section):
    """Length, checkpoints, records and deadlines of a run (verl's names)."""

    seed: NonNegativeInt = 1
    """Every random stream of the run derives from it."""
    total_epochs: PositiveInt = 1
    """Passes over the training prompts, unless ``total_training_steps`` is set."""
    total_training_steps: PositiveInt | None = None
    """Null: as many as ``total_epochs`` give."""
    save_freq: int = 10
    """Steps between checkpoints; -1: only at the end; 0: never."""
    test_freq: int = 5
    """Steps between validations; -1: only at the end."""
    val_before_train: bool = True
    """Validate before the first step as well."""
    critic_warmup: NonNegativeInt = 0
    """Steps in which only the critic is updated."""
    resume_mode: Literal["auto", "disable", "resume_path"] = "auto"
    """``auto``: from the newest checkpoint of the run's directory, if there is one; ``disable``:
    from the start; ``resume_path``: as ``auto``, but it begins at ``resume_from_path``."""
    resume_from_path: str | None = None
    """With ``resume_path``: the ``global_step_N`` to begin at, possibly of another run."""
    strict_code: bool = False
    """Refuse to resume a run if the source of refblend has changed at all; off: record it."""
    accept_changes: bool = False
    """Resume a run although versions of numbers or libraries have changed, and record it."""
    max_ckpt_to_keep: PositiveInt = 2
    """How many of the newest checkpoints are kept."""
    keep_best: bool = False
    """Keep the checkpoint with the best validation accuracy as well; a validation with the best
    accuracy so far is followed by a checkpoint, whatever ``save_freq`` says."""
    default_local_dir: str = "runs/run"
    """The run's directory."""
    rollout_dump_freq: int = 5
    """Steps between dumps of all responses with their scores to ``rollouts/``; 0: never."""
    logger: list[TrackerName] = ["console", "tensorboard"]
    """Where a run is shown. ``jsonl`` is ``metrics.jsonl``, which every run writes; ``wandb``
    and ``mlflow`` need their package and read its own environment variables."""
    project_name: str = "refblend"
    """Project of the run at ``wandb`` and ``mlflow``."""
    experiment_name: str | None = None
    """Name of the run there; null: the last two folders of ``default_local_dir``."""
    max_restarts: NonNegativeInt = 2
    """Times that dead workers are replaced before the run gives up. Judge, rollout engine and
    reference policy are replaced alone and their call repeated; the loss of actor or critic sets
    the run back to its last checkpoint."""
    worker_timeout_s: PositiveFloat = 600.0
    """Deadline of every wait for a worker."""
    stop_grace_s: PositiveFloat = 25.0
    """After SIGTERM: seconds in which the current step may finish and be saved; after that, or at a
    second signal, the run stops at once and resumes from the checkpoint before."""
    energy: bool = True
    """Estimate energy and CO₂ with codecarbon (offline)."""
    country_iso_code: str = "DEU"
    """Grid whose carbon intensity is used for the estimate."""
    drift_guard: DriftGuardConfig = DriftGuardConfig()
    """What happens when the sanity set gets worse."""

    def _misfits(self) -> Iterator[str]:
        if self.keep_best and self.save_freq == 0:
            yield "keep_best is true, but save_freq=0 saves nothing: set save_freq to -1 or more"
        if (self.resume_mode == "resume_path") != bool(self.resume_from_path):
            yield (
                f"resume_mode is {self.resume_mode} and resume_from_path {self.resume_from_path}: "
                "set resume_mode=resume_path and a path global_step_N, or neither"
            )
        branch, own = Path(self.resume_from_path or ""), Path(self.default_local_dir, "checkpoints")
        if self.resume_from_path and branch.resolve().parent == own.resolve():
            yield "resume_from_path lies in default_local_dir: set another one for the branch"


PoolStrategy = Literal["pack", "spread", "strict_pack"]
"""How the processes of a pool are placed on the nodes of a cluster."""


class PoolStrategyConfig(Section):
    """Placement on a cluster of several nodes: ``pack`` fills one node after another, ``spread``
    takes the node with the fewest processes of the pool, ``strict_pack`` wants one node for all.
    Processes that share a GPU stay together."""

    global_pool: PoolStrategy = "pack"
    """Placement of all processes that have no pool of their own."""
    judge_pool: PoolStrategy = "pack"
    """Placement of a judge with ``resource_pool: judge_pool``."""


class RayConfig(Section):
    """The Ray cluster: a private local one, or an existing one when an address is given."""

    address: str | None = None
    """Address of a running cluster, ``HOST:PORT`` or ``auto``; null: a private one on this
    machine."""
    interface: str | None = None
    """Network interface, as in ``eth0``, over which training ranks on several nodes talk (gloo,
    nccl); null: their own choice. Ranks that share a node use loopback."""
    num_cpus: PositiveInt | None = None
    """CPU slots of the private cluster; null: as many as the run asks for."""
    object_store_memory_mb: PositiveInt = 200
    """Shared memory for the batches that processes exchange."""
    start_timeout_s: PositiveFloat = 300.0
    """Deadline for the cluster and for each worker to come up."""
    cpus_per_worker: PositiveFloat = 1.0
    """CPU slots that a worker reserves for its placement; ``num_threads`` limits its threads."""
    pool_strategy: PoolStrategyConfig = PoolStrategyConfig()
    """Which nodes the processes of each resource pool take."""
    wait_for_nodes_s: NonNegativeFloat = 300.0
    """After the loss of a node: how long the run waits until the cluster can hold it again. Then it
    ends with its last checkpoint."""
    shared_filesystem: bool = False
    """Each training rank writes its own shard of the optimiser's state, instead of sending it to
    the first one. Several nodes must share models and run directory in any case."""
    tls: bool = False
    """Refuse a cluster whose nodes do not encrypt Ray's traffic (``RAY_USE_TLS``)."""

    @field_validator("address")
    @classmethod
    def _host_and_port(cls, value: str | None) -> str | None:
        host, _, port = (value or "").removeprefix("ray://").rpartition(":")
        if value in (None, "auto") or (host and port.isdecimal()):
            return value
        raise ValueError(f"{value} is not of the form HOST:PORT: write e.g. 10.0.0.1:6379, or auto")
