"""One process of a training group: its passes over micro-batches, its updates, its saves.

A rank is given all sequences and its micro-batches, and answers for its rows; an empty micro-batch
keeps it in step with the others, because FSDP's collectives need every rank.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from refblend import runtime
from refblend.config import RefblendConfig
from refblend.config.actor_rollout_ref import OptimConfig, TrainWorkerConfig
from refblend.lifecycle.faults import is_out_of_memory
from refblend.workers import distributed
from refblend.workers.batching import halve_micro_batches
from refblend.workers.distributed import Address
from refblend.workers.layout import PaddedBatch, pad_batch
from refblend.workers.networks import LmNetwork
from refblend.workers.roles import value_of
from refblend.workers.types import COUNTS, MiniBatch, Sequences, Shard, TokenTensors


def learning_rate(config: OptimConfig, step: int, total_steps: int) -> float:
    """Learning rate of step ``step`` (from 1): linear warm-up, then constant or a cosine."""
    if step <= config.lr_warmup_steps:
        return config.lr * step / config.lr_warmup_steps
    if config.lr_scheduler_type == "constant":
        return config.lr
    after = max(1, total_steps - config.lr_warmup_steps)
    progress = min(1.0, (step - 1 - config.lr_warmup_steps) / after)
    return config.lr * 0.5 * (1 + math.cos(math.pi * progress))


class Trainable:
    """A network with AdamW, stepped once per mini-batch."""

    def __init__(self, network: LmNetwork, config: TrainWorkerConfig, total_steps: int) -> None:
        self.network = network
        self.config = config
        self.total_steps = total_steps
        self.halvings = 0
        """How often the token budget was halved, for want of memory: later updates begin there."""
        optim = config.optim
        self.optimizer = torch.optim.AdamW(
            [p for p in network.parameters() if p.requires_grad],
            lr=optim.lr,
            betas=optim.betas,
            weight_decay=optim.weight_decay,
            fused=True,
        )

    def step(
        self,
        micro_batches: Sequence[list[int]],
        loss_of: Callable[[list[int]], tuple[Tensor, dict[str, float]]],
        training_step: int,
        lengths: Sequence[int],
    ) -> dict[str, float]:
        """Accumulate the gradients of all micro-batches and update once.

        ``loss_of`` gives, for rows, their additive share of the loss, and additive metrics. Returns
        their sums over micro-batches and ranks, with ``grad_norm``, ``lr``, ``oom`` (halvings) and
        ``nonfinite`` (1 where the update was skipped). ``lengths`` are tokens by row.
        """
        halvings = self.halvings
        for _ in range(halvings):
            micro_batches = halve_micro_batches(micro_batches, lengths)
        while (totals := self._accumulate(micro_batches, loss_of)) is None:
            self.halvings += 1
            micro_batches = halve_micro_batches(micro_batches, lengths)
        totals = distributed.sum_over_ranks(totals)
        norm = distributed.clip_gradients(self.network, self.config.grad_clip)
        rate = learning_rate(self.config.optim, training_step, self.total_steps)
        finite = math.isfinite(norm)
        if finite:
            for group in self.optimizer.param_groups:
                group["lr"] = rate
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        counts = {"oom": float(self.halvings - halvings), "nonfinite": float(not finite)}
        return totals | {"grad_norm": norm, "lr": rate} | counts

    def _accumulate(
        self,
        micro_batches: Sequence[list[int]],
        loss_of: Callable[[list[int]], tuple[Tensor, dict[str, float]]],
    ) -> dict[str, float] | None:
        """Sum gradients and metrics; None when memory ran out and smaller pieces may fit."""
        world_size = self.config.fsdp_config.world_size
        totals: dict[str, float] = {}
        try:
            for rows in micro_batches:
                with distributed.precision(self.config.fsdp_config):
                    loss, metrics = loss_of(rows or [0])
                # FSDP averages gradients over ranks; the loss is a sum over them.
                (loss * (world_size if rows else 0.0)).backward()
                for name, value in metrics.items():
                    totals[name] = totals.get(name, 0.0) + (value if rows else 0.0)
        except (RuntimeError, MemoryError) as error:
            # Ranks that still have memory wait in a collective, so only one process can retry.
            alone = world_size == 1 and any(len(rows) > 1 for rows in micro_batches)
            if not (is_out_of_memory(error) and alone):
                raise
            distributed.forget_pass(self.network)
            self.optimizer.zero_grad(set_to_none=True)
            return None
        return totals


def mean_over_steps(steps: Sequence[dict[str, float]]) -> dict[str, float]:
    """Means over the updates that were made (all, if none was); :data:`COUNTS` are summed."""
    if not steps:
        return {}
    made = [s for s in steps if not s["nonfinite"]] or steps
    means = {k: sum(s[k] for s in made) / len(made) for k in steps[0]}
    return means | {k: sum(s[k] for s in steps) for k in COUNTS}


Targets = TypeVar("Targets", bound=TokenTensors)


class Rank(ABC):
    """A process that answers for its rows of a batch; ``address`` is where its group meets."""

    section: str
    """The role's part of the configuration, as a dotted key."""
    network: LmNetwork

    def __init__(
        self, run: RefblendConfig, total_steps: int, rank: int = 0, address: Address | None = None
    ) -> None:
        self.run, self.config, self.total_steps = run, value_of(run, self.section), total_steps
        self.fsdp, self.model = self.config.fsdp_config, run.actor_rollout_ref.model
        runtime.prepare_process(self.fsdp.num_threads)
        runtime.keep_freed_memory()
        distributed.init_process_group(rank, self.fsdp, address, run)
        self.model_path = self.model.path
        self.seed = run.trainer.seed
        self.temperature = run.actor_rollout_ref.rollout.temperature
        self.loading = {
            "trust_remote_code": self.model.trust_remote_code,
            "shared_prefix": self.model.use_shared_prefix,
            # Rank 0 reads the model, and the others receive it. Code of a model's own may need
            # real tensors, so that every rank reads it.
            "empty": not (distributed.is_main() or self.model.trust_remote_code),
        }
        self.device = distributed.pick_device(self.fsdp)
        self.build(self.model_path)

    @abstractmethod
    def build(self, path: str) -> None:
        """Load the network of a model directory and shard it."""

    def _lend(self) -> None:
        """Return torch's cached memory to the device if engines wake up on it."""
        scoring = self.run.algorithm.ref_quality_score.scoring
        sleeps = self.run.actor_rollout_ref.rollout.sleep or scoring.sleep
        if sleeps and self.device.type == "cuda":
            torch.cuda.empty_cache()

    @torch.no_grad()
    def each_micro_batch(
        self,
        sequences: Sequences,
        plan: Sequence[list[int]],
        compute: Callable[[PaddedBatch, int], Sequence[Tensor]],
    ) -> Shard:
        """Matrices for this rank's rows, which ``compute`` makes of a micro-batch and its size."""
        parts: list[list[Tensor]] = []
        for rows in plan:
            batch = pad_batch(sequences, rows or [0], self.device)
            with distributed.precision(self.fsdp):
                matrices = compute(batch, max(1, len(rows)))
            parts.append([matrix[: len(rows)].cpu() for matrix in matrices])
        self._lend()
        order = [row for rows in plan for row in rows]
        return order, tuple(torch.cat(column) for column in zip(*parts, strict=True))


class TrainableRank(Rank, Generic[Targets]):
    """A rank that also learns; subclasses say what to load and what to minimise."""

    config: TrainWorkerConfig

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
        """One optimiser step a mini-batch; the mean of their metrics, without the role's prefix."""
        steps = []
        for mini in mini_batches:
            loss_of = partial(self.loss, sequences, targets, mini)
            steps.append(
                self.trainable.step(mini.micro_batches, loss_of, training_step, sequences.lengths)
            )
        metrics = mean_over_steps(steps)
        if self.trainable.halvings and self.config.use_dynamic_bsz:
            budget = self.config.ppo_max_token_len_per_gpu
            metrics["token_budget"] = float(budget // 2**self.trainable.halvings)
        if self.device.type == "cuda":
            peak = torch.cuda.max_memory_allocated(self.device) / 2**30
            metrics["perf/max_memory_allocated_gb"] = peak
        self._lend()
        return metrics

    def scale(self, mini: MiniBatch) -> dict[str, Any]:
        """The normalisers of :func:`refblend.ppo.losses.agg_loss` over the whole mini-batch."""
        return {
            "batch_num_tokens": mini.num_tokens,
            "global_batch_size": mini.num_sequences,
            "loss_scale_factor": float(self.run.data.max_response_length),
        }

    def begin_run(self, seed: int) -> None:
        """Go back to the starting weights and a fresh optimiser, for another run."""
        self.seed = seed
        self._rebuild(self.model_path)

    def save(self, directory: str) -> None:
        """Write model and optimiser."""
        remote = Path(self.model_path) if self.model.trust_remote_code else None
        target = Path(directory)
        distributed.save_model(self.network, self.full_weights(), target, remote)
        optimizer = self.trainable.optimizer
        if optimizer.state:  # one that has never stepped (critic warm-up) has none to save
            sharded = self.run.ray.shared_filesystem
            distributed.save_optimizer(self.network, optimizer, target, sharded)

    def full_weights(self, dtype: torch.dtype | None = None) -> dict[str, Tensor]:
        """All weights under Hugging Face names (empty on ranks other than 0); shards are rounded
        to ``dtype`` before they travel."""
        return distributed.full_state(self.network, dtype=dtype)

    def load(self, directory: str) -> None:
        """Continue from what :meth:`save` wrote."""
        self._rebuild(directory)
        distributed.load_optimizer(self.network, self.trainable.optimizer, Path(directory))

    def _rebuild(self, path: str) -> None:
        """Free network and optimiser before loading, so that memory never holds both twice."""
        for name in ("network", "trainable"):
            vars(self).pop(name, None)  # missing after a load that failed
        runtime.return_freed_memory()
        self.build(path)

    def build(self, path: str) -> None:
        """Load and shard the network, and give it a fresh optimiser."""
        self.loading["checkpointing"] = self.model.enable_gradient_checkpointing
        self.network = distributed.shard(self.load_network(path), self.fsdp)
        self.trainable = Trainable(self.network, self.config, self.total_steps)
