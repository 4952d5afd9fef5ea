"""One process of a training group: its passes over micro-batches, its updates, its saves.

What actor, critic and reference policy share. A rank is given all sequences and the plan of its
micro-batches, and answers for its rows; an empty micro-batch keeps it in step with the others,
because FSDP's collectives need every rank.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from refblend import runtime
from refblend.config import RefblendConfig
from refblend.config.actor_rollout_ref import FsdpConfig, TrainWorkerConfig
from refblend.files import atomic_path
from refblend.workers import distributed
from refblend.workers.layout import PaddedBatch, pad_batch
from refblend.workers.networks import LmNetwork
from refblend.workers.optimization import Trainable, mean_over_steps
from refblend.workers.types import MiniBatch, Sequences, Shard, TokenTensors

Targets = TypeVar("Targets", bound=TokenTensors)


class Rank:
    """A process that answers for its rows of a batch.

    ``rank`` is its place in the group that meets at ``address``; a single process needs neither.
    """

    network: LmNetwork

    def __init__(self, run: RefblendConfig, fsdp: FsdpConfig, rank: int, address: str) -> None:
        runtime.prepare_process(fsdp.num_threads)
        distributed.init_process_group(rank, fsdp, address, run)
        model = run.actor_rollout_ref.model
        self.fsdp = fsdp
        self.model_path = model.path
        self.temperature = run.actor_rollout_ref.rollout.temperature
        self.loading = {
            "trust_remote_code": model.trust_remote_code,
            "shared_prefix": model.use_shared_prefix,
        }
        self.device = distributed.pick_device(fsdp)

    def start_profile(self) -> None:
        """Record every operator from now on."""
        activities = [torch.profiler.ProfilerActivity.CPU]
        if self.device.type == "cuda":
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        self._profiler = torch.profiler.profile(activities=activities)
        self._profiler.start()

    def stop_profile(self, path: str) -> list[tuple[str, int, float]]:
        """Write a Chrome trace; the operators by their own time: name, calls, seconds."""
        self._profiler.stop()
        kind = "device" if self.device.type == "cuda" else "cpu"
        if distributed.is_main():
            with atomic_path(path) as temporary:
                self._profiler.export_chrome_trace(str(temporary))
        found = [
            (event.key, event.count, getattr(event, f"self_{kind}_time_total") / 1e6)
            for event in self._profiler.key_averages()
        ]
        return sorted(found, key=lambda row: -row[2])

    @torch.no_grad()
    def each_micro_batch(
        self,
        sequences: Sequences,
        plan: Sequence[list[int]],
        compute: Callable[[PaddedBatch, int], Sequence[Tensor]],
    ) -> Shard:
        """Matrices for this rank's rows, micro-batch by micro-batch of its ``plan``.

        ``compute`` makes, of a micro-batch and its number of rows, matrices with that many rows.
        """
        parts: list[list[Tensor]] = []
        for rows in plan:
            batch = pad_batch(sequences, rows or [0], self.device)
            with distributed.precision(self.fsdp):
                matrices = compute(batch, max(1, len(rows)))
            parts.append([matrix[: len(rows)].cpu() for matrix in matrices])
        order = [row for rows in plan for row in rows]
        return order, tuple(torch.cat(column) for column in zip(*parts, strict=True))


class TrainableRank(Rank, ABC, Generic[Targets]):
    """A rank that also learns; subclasses say what to load and what to minimise."""

    def __init__(
        self,
        run: RefblendConfig,
        config: TrainWorkerConfig,
        total_steps: int,
        rank: int,
        address: str,
    ) -> None:
        super().__init__(run, config.fsdp_config, rank, address)
        self.loading["checkpointing"] = run.actor_rollout_ref.model.enable_gradient_checkpointing
        self.config = config
        self._norm_length = float(run.data.max_response_length)
        self._total_steps = total_steps
        self._sharded = run.ray.shared_filesystem
        self._build(self.model_path)

    @abstractmethod
    def load_network(self, path: str) -> LmNetwork:
        """The network of a model directory, on the CPU and whole."""

    @abstractmethod
    def loss(
        self, sequences: Sequences, targets: Targets, mini: MiniBatch, rows: list[int]
    ) -> tuple[Tensor, dict[str, float]]:
        """The additive share of these rows in the mini-batch's loss, and additive metrics."""

    def update(
        self,
        sequences: Sequences,
        targets: Targets,
        mini_batches: Sequence[MiniBatch],
        training_step: int,
    ) -> dict[str, float]:
        """One optimiser step a mini-batch; the mean of their metrics, without the role's prefix.

        On a GPU the largest memory held by tensors so far is among them.
        """
        steps = []
        for mini in mini_batches:
            loss_of = partial(self.loss, sequences, targets, mini)
            steps.append(
                self.trainable.step(mini.micro_batches, loss_of, training_step, sequences.lengths)
            )
        metrics = mean_over_steps(steps)
        if self.device.type == "cuda":
            peak = torch.cuda.max_memory_allocated(self.device) / 2**30
            metrics["perf/max_memory_allocated_gb"] = peak
        return metrics

    def scale(self, mini: MiniBatch) -> dict[str, Any]:
        """The normalisers of :func:`refblend.ppo.losses.agg_loss` over the whole mini-batch."""
        return {
            "batch_num_tokens": mini.num_tokens,
            "global_batch_size": mini.num_sequences,
            "loss_scale_factor": self._norm_length,
        }

    def begin_run(self) -> None:
        """Go back to the starting weights and a fresh optimiser, for another run."""
        self._build(self.model_path)

    def save(self, directory: str) -> None:
        """Write model and optimiser."""
        self.trainable.save(Path(directory), self._sharded)

    def load(self, directory: str) -> None:
        """Continue from what :meth:`save` wrote."""
        self._build(directory)
        self.trainable.load_optimizer(Path(directory))

    def _build(self, path: str) -> None:
        self.network = distributed.shard(self.load_network(path), self.fsdp)
        self.trainable = Trainable(self.network, self.config, self._total_steps)
