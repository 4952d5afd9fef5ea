"""One optimiser with its schedule: accumulate micro-batch gradients, clip, step."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from refblend.config.actor_rollout_ref import OptimConfig, TrainWorkerConfig
from refblend.lifecycle.faults import is_out_of_memory
from refblend.workers import distributed
from refblend.workers.batching import halve_micro_batches
from refblend.workers.networks import LmNetwork


def learning_rate(config: OptimConfig, step: int, total_steps: int) -> float:
    """Learning rate of step ``step`` (from 1): linear warm-up, then constant or cosine to zero.

    It depends only on the step, so a resumed run needs no scheduler state.
    """
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

        Args:
            micro_batches: row numbers of each micro-batch of this rank; empty ones take part with
                a zero loss, because FSDP's collectives need every rank.
            loss_of: rows → this micro-batch's additive share of the mini-batch's loss, and
                additive metrics. The shares of all ranks sum to the loss.
            training_step: for the learning rate.
            lengths: tokens of every row of the batch, by which micro-batches are halved.

        Returns:
            The metrics summed over micro-batches and ranks, with ``grad_norm``, ``lr`` and
            ``oom`` (how often memory ran out and the token budget was halved). A non-finite
            gradient norm skips the update and is reported unchanged.
        """
        totals, ooms = self._accumulate(micro_batches, loss_of), 0
        while totals is None:
            ooms += 1
            micro_batches = halve_micro_batches(micro_batches, lengths)
            totals = self._accumulate(micro_batches, loss_of)
        totals = distributed.sum_over_ranks(totals)
        norm = distributed.clip_gradients(self.network, self.config.grad_clip)
        rate = learning_rate(self.config.optim, training_step, self.total_steps)
        if math.isfinite(norm):
            for group in self.optimizer.param_groups:
                group["lr"] = rate
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return totals | {"grad_norm": norm, "lr": rate, "oom": float(ooms)}

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
            self.optimizer.zero_grad(set_to_none=True)
            return None
        return totals

    def save(self, directory: Path, sharded: bool = False) -> None:
        """Write the model in Hugging Face format and the optimiser's state, by shards or whole."""
        distributed.save_model(self.network, directory)
        # An optimiser that has never stepped (critic warm-up) has no state to save.
        if self.optimizer.state:
            distributed.save_optimizer(self.network, self.optimizer, directory, sharded)

    def load_optimizer(self, directory: Path) -> None:
        """Restore the optimiser; the model was loaded from the same directory."""
        distributed.load_optimizer(self.network, self.optimizer, directory)


def mean_over_steps(steps: Sequence[dict[str, float]]) -> dict[str, float]:
    """Mean of each metric over the optimiser steps of one training step; ``oom`` is the sum."""
    if not steps:
        return {}
    totals = {k: sum(s[k] for s in steps) for k in steps[0]}
    return {k: v if k == "oom" else v / len(steps) for k, v in totals.items()}
