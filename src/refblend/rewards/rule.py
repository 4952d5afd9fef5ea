"""Which rule scores a response: a registry by data source, and the user's own function.

A user names ``module:function`` in ``reward.custom_reward_function``; it is called as verl calls
its custom rewards, ``f(data_source=…, solution_str=…, ground_truth=…, extra_info=…)``, and gives a
number, a mapping with ``score`` (and optionally ``acc``, ``acc_strict``, ``acc_flexible``), or a
:class:`RewardResult`.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from refblend.errors import ConfigError
from refblend.lookup import load_function
from refblend.rewards.gsm8k import Method, compute_score

CONFIG_KEY = "reward.custom_reward_function"


@dataclass(frozen=True)
class RewardResult:
    """The rule's verdict on one response."""

    score: float
    """The training reward R of the sequence; it stands on the last response token."""
    acc_strict: float
    """1 if the answer in the demanded form is right."""
    acc_flexible: float
    """1 if the answer is right in whatever form."""


RuleFunction = Callable[[str, str, Method], RewardResult]
"""(response, ground truth, method of the training reward) → result."""

RULES: dict[str, RuleFunction] = {}
"""Rules by ``data_source``."""


def register_reward(*data_sources: str) -> Callable[[RuleFunction], RuleFunction]:
    """Register the decorated function for these data sources, replacing what was there."""

    def decorate(function: RuleFunction) -> RuleFunction:
        for data_source in data_sources:
            RULES[data_source] = function
        return function

    return decorate


@register_reward("openai/gsm8k", "refblend/arithmetic", "refblend/sanity")
def numeric_answer(solution_str: str, ground_truth: str, method: Method) -> RewardResult:
    """1 for the right number and 0 otherwise, see :mod:`refblend.rewards.gsm8k`."""
    strict = compute_score(solution_str, ground_truth, "strict")
    flexible = compute_score(solution_str, ground_truth, "flexible")
    return RewardResult(strict if method == "strict" else flexible, strict, flexible)


def _coerce(value: Any, name: str) -> RewardResult:
    """A custom function's result as a RewardResult."""
    if isinstance(value, RewardResult):
        fields = {"score": value.score, "s": value.acc_strict, "f": value.acc_flexible}
    elif isinstance(value, Mapping):
        if "score" not in value:
            raise ConfigError(
                f"{CONFIG_KEY}={name!r} gave a mapping without the key score",
                "Return a number, or a mapping that has score.",
            )
        acc = value.get("acc", value["score"])
        fields = {
            "score": value["score"],
            "s": value.get("acc_strict", acc),
            "f": value.get("acc_flexible", acc),
        }
    else:
        fields = {"score": value, "s": value, "f": value}
    try:
        score, strict, flexible = (float(v) for v in fields.values())
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"{CONFIG_KEY}={name!r} gave {value!r}, which is not a number",
            "Return a number, a mapping with score, or a RewardResult.",
        ) from error
    if not all(map(math.isfinite, (score, strict, flexible))):
        raise ConfigError(
            f"{CONFIG_KEY}={name!r} gave {value!r}, which is not finite",
            "Return a finite number for every response, also for an empty one.",
        )
    return RewardResult(score, strict, flexible)


class RuleReward:
    """The rule reward of a run.

    Args:
        method: the answer extraction of the training reward.
        custom_reward_function: ``module:function`` used for every data source; None: the registry.

    Raises:
        ConfigError: there is no such module or function.
    """

    def __init__(
        self, method: Method = "flexible", custom_reward_function: str | None = None
    ) -> None:
        self.method = method
        self.name = custom_reward_function
        self._custom = (
            None
            if custom_reward_function is None
            else load_function(custom_reward_function, CONFIG_KEY)
        )

    def __call__(
        self,
        data_source: str,
        solution_str: str,
        ground_truth: str,
        extra_info: Mapping[str, Any] | None = None,
    ) -> RewardResult:
        """Score one response.

        Raises:
            ConfigError: no rule for the data source, or the custom function's result is unusable.
            DataError: the gold answer is not a number.
        """
        if self._custom is not None and self.name is not None:
            value = self._custom(
                data_source=data_source,
                solution_str=solution_str,
                ground_truth=ground_truth,
                extra_info=dict(extra_info or {}),
            )
            return _coerce(value, self.name)
        if data_source not in RULES:
            raise ConfigError(
                f"there is no rule reward for data_source {data_source!r}",
                f"Use one of {', '.join(sorted(RULES))}, or set {CONFIG_KEY}=module:function.",
            )
        return RULES[data_source](solution_str, ground_truth, self.method)
