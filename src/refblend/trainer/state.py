"""The state that a step passes to the next one besides the weights: part of every checkpoint."""

from dataclasses import dataclass, field
from typing import Any

from refblend.config import RefblendConfig
from refblend.data.dataset import PromptSampler
from refblend.ppo.kl import KLController, make_kl_controller
from refblend.scoring.result import InvalidRateGuard
from refblend.trainer.drift import DriftGuard
from refblend.trainer.finite import LostUpdates


@dataclass(frozen=True)
class Snapshot:
    """The contents of a checkpoint besides the weights, taken after a step."""

    state: dict[str, Any]
    """:meth:`RunState.state_dict`, and the step's line of metrics as ``record``."""
    metric: float | None
    """By which the best checkpoint is kept; None when the step was not validated."""


@dataclass
class RunState:
    """Everything that changes over a run and is neither a weight nor an optimiser's moment."""

    sampler: PromptSampler
    kl_controller: KLController
    drift: DriftGuard
    invalid_guard: InvalidRateGuard
    lost_updates: LostUpdates = field(default_factory=LostUpdates)
    step: int = 0
    """The last finished step."""
    initial_entropy: float | None = None
    """Average entropy of the first batch, in nats."""

    @classmethod
    def initial(cls, config: RefblendConfig, num_prompts: int) -> "RunState":
        """The state before the first step.

        Raises:
            DataError: there are fewer prompts than a batch needs.
        """
        kl = config.algorithm.kl_ctrl
        scoring = config.algorithm.ref_quality_score.scoring
        return cls(
            PromptSampler(
                num_prompts,
                config.data.train_batch_size,
                config.data.shuffle,
                config.trainer.seed,
            ),
            make_kl_controller(kl.type, kl.kl_coef, kl.target_kl, kl.horizon),
            DriftGuard(config.trainer.drift_guard),
            InvalidRateGuard(scoring.max_invalid_rate, scoring.invalid_window),
        )

    def state_dict(self) -> dict[str, Any]:
        """JSON values, independent of what happens later."""
        return {
            "step": self.step,
            "sampler": self.sampler.state_dict(),
            "kl_controller": self.kl_controller.state_dict(),
            "drift": self.drift.state_dict(),
            "invalid_window": self.invalid_guard.state_dict(),
            "lost_updates": self.lost_updates.state_dict(),
            "initial_entropy": self.initial_entropy,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore :meth:`state_dict`."""
        self.step = int(state["step"])
        self.sampler.load_state_dict(state["sampler"])
        self.kl_controller.load_state_dict(state["kl_controller"])
        self.drift.load_state_dict(state["drift"])
        self.invalid_guard.load_state_dict(state["invalid_window"])
        self.lost_updates.load_state_dict(state["lost_updates"])
        self.initial_entropy = state.get("initial_entropy")
