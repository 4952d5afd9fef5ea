"""KL between the actor and the reference policy: estimators, the penalty, and its coefficient.

Δ = log π − log π_ref of the sampled token. Sources: joschu.net, "Approximating KL divergence", for
the estimators; arXiv 1909.08593, section 2.2, for the adaptive coefficient.
"""

import math

from torch import Tensor

from refblend.ppo.masking import masked_fill, masked_mean, upcast

MAX_EXPONENT = 20.0
MAX_K3 = 10.0


def kl_penalty(logprob: Tensor, ref_logprob: Tensor, kl_penalty: str = "kl") -> Tensor:
    """A per-token estimate of KL(π ‖ π_ref); the shape of the inputs.

    ``kl``/``k1``: Δ, unbiased and of either sign; ``abs``: |Δ|; ``mse``/``k2``: Δ²/2;
    ``low_var_kl``/``k3``: e^(−Δ) + Δ − 1, never negative, Δ clamped to ±20 and the result to ±10.
    """
    delta = upcast(logprob) - upcast(ref_logprob)
    if kl_penalty in ("kl", "k1"):
        return delta
    if kl_penalty == "abs":
        return delta.abs()
    if kl_penalty in ("mse", "k2"):
        return 0.5 * delta.square()
    if kl_penalty in ("low_var_kl", "k3"):
        delta = delta.clamp(-MAX_EXPONENT, MAX_EXPONENT)
        # expm1 keeps the digits that e^(−Δ) − 1 loses for small Δ
        return ((-delta).expm1() + delta).clamp(-MAX_K3, MAX_K3)
    raise ValueError(
        f"kl_penalty={kl_penalty!r} is unknown: use kl, k1, abs, mse, k2, low_var_kl or k3"
    )


def apply_kl_penalty(
    token_level_rewards: Tensor, kl: Tensor, response_mask: Tensor, kl_coef: float
) -> Tensor:
    """R'' = R' − β·KL on response tokens, 0 elsewhere; (B, T)."""
    rewards = masked_fill(token_level_rewards, response_mask)
    return rewards - kl_coef * masked_fill(kl, response_mask)


def mean_sequence_kl(kl: Tensor, response_mask: Tensor) -> float:
    """mean_b of the mean over each response: ``actor/reward_kl_penalty``, the controller's input.

    Empty responses count as 0; a batch without sequences gives 0.
    """
    return float(masked_mean(kl, response_mask, dim=-1).mean()) if kl.shape[0] else 0.0


class KLController:
    """β of the KL penalty, ``value``: constant without a target, else adaptive.

    β ← β·(1 + clip(KL/target − 1, ±0.2)·n/horizon): ``target_kl`` is the KL to maintain, in nats,
    ``horizon`` the time constant in samples, > 0.
    """

    MAX_ERROR = 0.2

    def __init__(
        self, kl_coef: float, target_kl: float | None = None, horizon: float = math.inf
    ) -> None:
        if not 0.0 <= kl_coef < math.inf:
            raise ValueError(f"kl_coef={kl_coef} must be finite and not negative")
        if target_kl is not None and not (target_kl > 0 and horizon > 0):
            raise ValueError(f"target_kl={target_kl} and horizon={horizon} must be positive")
        self.value = float(kl_coef)
        self.target_kl, self.horizon = target_kl, horizon

    def update(self, current_kl: float, n_steps: int) -> None:
        """Adapt β to the KL of ``n_steps`` samples.

        A non-finite KL leaves β unchanged (a NaN would never leave it), and β is never negative,
        even when ``n_steps`` exceeds five horizons.
        """
        if self.target_kl is None or not math.isfinite(current_kl):
            return
        error = min(max(current_kl / self.target_kl - 1.0, -self.MAX_ERROR), self.MAX_ERROR)
        self.value *= max(0.0, 1.0 + error * n_steps / self.horizon)

    def state_dict(self) -> dict[str, float]:
        """What a checkpoint must hold."""
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Continue with the checkpoint's β; a constant one is as configured."""
        if self.target_kl is not None:
            self.value = KLController(state["value"]).value
