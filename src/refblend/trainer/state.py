"""The state that a step passes to the next one besides the weights: part of every checkpoint."""

from dataclasses import dataclass, field
from typing import Any

from refblend.config import RefblendConfig
from refblend.data.dataset import PromptSampler
from refblend.ppo.kl import FixedKLController, make_kl_controller
from refblend.scoring.result import InvalidRateGuard
from refblend.trainer.drift import DriftGuard
from refblend.trainer.guards import LostUpdates


@dataclass
class RunState:
    """Everything that changes over a run and is neither a weight nor an optimiser's moment."""

    sampler: PromptSampler
    kl_controller: FixedKLController
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
        data, kl = config.data, config.algorithm.kl_ctrl
        scoring = config.algorithm.ref_quality_score.scoring
        return cls(
            PromptSampler(num_prompts, data.train_batch_size, data.shuffle, config.trainer.seed),
            make_kl_controller(kl.type, kl.kl_coef, kl.target_kl, kl.horizon),
            DriftGuard(config.trainer.drift_guard),
            InvalidRateGuard(scoring.max_invalid_rate, scoring.invalid_window),
        )

    def _parts(self) -> dict[str, Any]:
        return {
            "sampler": self.sampler,
            "kl_controller": self.kl_controller,
            "drift": self.drift,
            "invalid_window": self.invalid_guard,
            "lost_updates": self.lost_updates,
        }

    def state_dict(self) -> dict[str, Any]:
        """JSON values, independent of what happens later."""
        parts = {name: part.state_dict() for name, part in self._parts().items()}
        return {"step": self.step, "initial_entropy": self.initial_entropy} | parts

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore :meth:`state_dict`."""
        self.step = int(state["step"])
        self.initial_entropy = state.get("initial_entropy")
        for name, part in self._parts().items():
            part.load_state_dict(state[name])
