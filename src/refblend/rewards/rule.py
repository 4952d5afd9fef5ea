"""Which rule scores a response: a registry by data source, or the user's own function."""

from collections.abc import Callable, Mapping
from typing import Any

from refblend.config.root import RewardConfig
from refblend.errors import ConfigError
from refblend.rewards.custom import CustomReward, load_custom_reward
from refblend.rewards.gsm8k import Method, compute_score
from refblend.rewards.result import RewardResult

RuleFunction = Callable[[str, str, Method], RewardResult]
"""(response, ground truth, method of the training reward) → result."""

RULES: dict[str, RuleFunction] = {}
"""Rules by ``data_source``."""


def register_reward(*data_sources: str) -> Callable[[RuleFunction], RuleFunction]:
    """Register the decorated function for these data sources, replacing any previous one."""

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


@register_reward("DigitalLearningGmbH/MATH-lighteval", "lighteval/MATH", "HuggingFaceH4/MATH-500")
def mathematical_answer(solution_str: str, ground_truth: str, method: Method) -> RewardResult:
    """1 for an answer equal as mathematics and 0 otherwise, see :mod:`refblend.rewards.math`."""
    from refblend.rewards.math import answer_score

    return answer_score(solution_str, ground_truth, method)


class RuleReward:
    """The rule reward of a run: the user's function, or the data source's in the registry."""

    def __init__(self, method: Method = "flexible", custom: CustomReward | None = None) -> None:
        self.method = method
        self.custom = custom

    @classmethod
    def from_config(cls, config: RewardConfig) -> "RuleReward":
        """The reward selected by the configuration.

        Raises:
            ConfigError: there is no such function, or it takes other arguments.
        """
        return cls(config.method, load_custom_reward(config.custom_reward_function))

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
        if self.custom is not None:
            return self.custom(data_source, solution_str, ground_truth, dict(extra_info or {}))
        if data_source not in RULES:
            raise ConfigError(
                f"there is no rule reward for data_source {data_source!r}",
                f"Use one of {', '.join(sorted(RULES))}, or set "
                "reward.custom_reward_function=module:function.",
            )
        return RULES[data_source](solution_str, ground_truth, self.method)
