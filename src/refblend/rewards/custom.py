"""The user's own reward function, called as verl calls one.

``f(data_source=…, solution_str=…, ground_truth=…, extra_info=…, **reward_kwargs)`` returns a number
(NumPy scalars included), a mapping with ``score`` and optionally ``acc``, ``acc_strict`` and
``acc_flexible``, or a :class:`~refblend.rewards.result.RewardResult`. ``extra_info`` is the row's
whole column.
"""

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from refblend.config.root import CustomRewardFunctionConfig
from refblend.errors import ConfigError
from refblend.lookup import load_function_of_file
from refblend.rewards.result import RewardResult

CONFIG_KEY = "reward.custom_reward_function"
_ARGUMENTS = ("data_source", "solution_str", "ground_truth", "extra_info")


@dataclass(frozen=True)
class CustomReward:
    """The user's function, its name for messages and its fixed keyword arguments."""

    name: str
    function: Callable[..., Any]
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def __call__(
        self, data_source: str, solution_str: str, ground_truth: str, extra_info: dict[str, Any]
    ) -> RewardResult:
        """Score one response.

        Raises:
            ConfigError: the function's result is unusable.
        """
        value = self.function(
            data_source=data_source,
            solution_str=solution_str,
            ground_truth=ground_truth,
            extra_info=extra_info,
            **self.kwargs,
        )
        return _as_result(value, self.name)


def load_custom_reward(config: CustomRewardFunctionConfig) -> CustomReward | None:
    """The function named in the configuration; None if there is none.

    Raises:
        ConfigError: there is no such file, module or function, or it takes other arguments.
    """
    if config.path is None:
        return None
    function = load_function_of_file(config.path, config.name, CONFIG_KEY)
    name = f"{config.path.removeprefix('pkg://')}:{config.name}"
    try:
        inspect.signature(function).bind(**dict.fromkeys(_ARGUMENTS), **config.reward_kwargs)
    except TypeError as error:
        raise ConfigError(
            f"{CONFIG_KEY}={name!r} does not take verl's arguments ({error})",
            f"Define it as def {config.name}({', '.join(_ARGUMENTS)}, **reward_kwargs).",
        ) from error
    except ValueError:  # a built-in function without a signature: the first call will tell
        pass
    return CustomReward(name, function, config.reward_kwargs)


def _as_result(value: Any, name: str) -> RewardResult:
    """The result of a user's function as a RewardResult."""
    if isinstance(value, RewardResult):
        numbers = [value.score, value.acc_strict, value.acc_flexible]
    elif isinstance(value, Mapping):
        if "score" not in value:
            raise ConfigError(
                f"{CONFIG_KEY}={name!r} gave a mapping without the key score",
                "Return a number, or a mapping that has score.",
            )
        acc = value.get("acc", value["score"])
        numbers = [value["score"], value.get("acc_strict", acc), value.get("acc_flexible", acc)]
    else:
        numbers = [value] * 3
    try:
        score, strict, flexible = (float(number) for number in numbers)
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
