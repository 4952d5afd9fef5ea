"""The registry of advantage estimators: one typed input, so that a trainer can call any of them.

A user's own estimator lives in the user's module and is selected as ``my_module:my_function`` by
``algorithm.adv_estimator``::

    from refblend.ppo.estimators import AdvantageInputs, register_advantage

    @register_advantage("mine", needs_values=False)
    def mine(inputs: AdvantageInputs) -> tuple[Tensor, Tensor]: ...
"""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from refblend.ppo import advantages
from refblend.ppo.advantages import GroupIndex


@dataclass(frozen=True)
class AdvantageInputs:
    """Everything an estimator may use.

    ``values`` and ``reward_baselines`` are set exactly for the estimators that ask for them.
    """

    token_level_rewards: Tensor
    """(B, T) R'', after blending and KL."""
    response_mask: Tensor
    """(B, T)."""
    index: GroupIndex
    """(B,) prompt id of each row."""
    values: Tensor | None = None
    """(B, T) from the critic."""
    reward_baselines: Tensor | None = None
    """(B,) score of the greedy response to each row's prompt."""
    gamma: float = 1.0
    lam: float = 1.0
    norm_adv_by_std_in_grpo: bool = True


AdvantageFunction = Callable[[AdvantageInputs], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class AdvantageEstimator:
    """A named estimator and what the trainer has to prepare for it; call it like a function."""

    name: str
    compute: AdvantageFunction
    needs_values: bool = False
    """A critic's values (``AdvantageInputs.values``)."""
    needs_reward_baselines: bool = False
    """Scores of greedy responses (``AdvantageInputs.reward_baselines``)."""

    def __call__(self, inputs: AdvantageInputs) -> tuple[Tensor, Tensor]:
        """(advantages, returns), each (B, T); ValueError for a missing input or a wrong shape."""
        for wanted, field in (
            (self.needs_values, "values"),
            (self.needs_reward_baselines, "reward_baselines"),
        ):
            if wanted and getattr(inputs, field) is None:
                raise ValueError(f"the estimator {self.name} needs {field}")
        computed, returns = self.compute(inputs)
        if not computed.shape == returns.shape == inputs.response_mask.shape:
            raise ValueError(
                f"the estimator {self.name} gave advantages {tuple(computed.shape)} and returns "
                f"{tuple(returns.shape)} for a mask {tuple(inputs.response_mask.shape)}"
            )
        return computed, returns


ESTIMATORS: dict[str, AdvantageEstimator] = {}
"""Registered estimators by the name used in ``algorithm.adv_estimator``."""


def register_advantage(
    name: str, *, needs_values: bool = False, needs_reward_baselines: bool = False
) -> Callable[[AdvantageFunction], AdvantageFunction]:
    """Register the decorated function, which is returned; ValueError if the name is not free."""

    def decorate(function: AdvantageFunction) -> AdvantageFunction:
        if ":" in name:
            raise ValueError(f"the estimator's name {name!r} must not contain a colon")
        known = ESTIMATORS.get(name)
        # registering the same function again is a reload of its module, not a conflict
        if known is not None and _identity(known.compute) != _identity(function):
            raise ValueError(f"the estimator {name!r} is registered already")
        ESTIMATORS[name] = AdvantageEstimator(name, function, needs_values, needs_reward_baselines)
        return function

    return decorate


def _identity(function: AdvantageFunction) -> tuple[str, str]:
    return function.__module__, getattr(function, "__qualname__", repr(function))


def estimator_of(function: AdvantageFunction, name: str) -> AdvantageEstimator:
    """The estimator for a user's function; ``name`` is for messages.

    A function decorated with :func:`register_advantage` keeps what it declared; a plain one gets
    neither values nor baselines.
    """
    for estimator in ESTIMATORS.values():
        if estimator.compute is function:
            return estimator
    return AdvantageEstimator(name, function)


def _by_name(function: Callable[..., tuple[Tensor, Tensor]]) -> AdvantageFunction:
    """A function whose arguments are named as the fields of :class:`AdvantageInputs`."""
    names = list(inspect.signature(function).parameters)

    @functools.wraps(function)
    def compute(inputs: AdvantageInputs) -> tuple[Tensor, Tensor]:
        return function(**{name: getattr(inputs, name) for name in names})

    return compute


register_advantage("gae", needs_values=True)(_by_name(advantages.compute_gae_advantage_return))
for _name in ("grpo", "rloo", "reinforce_plus_plus", "reinforce_plus_plus_baseline"):
    register_advantage(_name)(_by_name(getattr(advantages, f"compute_{_name}_outcome_advantage")))
register_advantage("remax", needs_reward_baselines=True)(
    _by_name(advantages.compute_remax_outcome_advantage)
)
