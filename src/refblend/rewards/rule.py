"""Which rule scores a response: that of the data source, or the user's own function.

The user's is called as verl calls one: ``f(data_source=…, solution_str=…, ground_truth=…,
extra_info=…, **reward_kwargs)`` returns a number (NumPy scalars included), a mapping with ``score``
and optionally ``acc``, ``acc_strict`` and ``acc_flexible``, or a
:class:`~refblend.rewards.result.RewardResult`. ``extra_info`` is the row's whole column.
"""

import inspect
import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from refblend.config.root import CustomRewardFunctionConfig, RewardConfig
from refblend.data.schema import PromptRow
from refblend.documents import show
from refblend.errors import ConfigError, RefblendError, RewardError
from refblend.lookup import load_function_of_file
from refblend.rewards.gsm8k import Method, compute_score
from refblend.rewards.result import RewardResult

logger = logging.getLogger(__name__)

CONFIG_KEY = "reward.custom_reward_function"
_ARGUMENTS = ("data_source", "solution_str", "ground_truth", "extra_info")


@dataclass(frozen=True)
class CustomReward:
    """The user's function, with its fixed keyword arguments, and its name for messages."""

    name: str
    function: Callable[..., Any]


def load_custom_reward(config: CustomRewardFunctionConfig) -> CustomReward | None:
    """The configured function, None without one; ConfigError if it is missing or takes others."""
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
    return CustomReward(name, partial(function, **config.reward_kwargs))


def _as_result(value: Any, name: str) -> RewardResult:
    """The result of a user's function as a RewardResult."""
    if isinstance(value, RewardResult):
        if value.error:
            return RewardResult(0.0, 0.0, 0.0, value.error)
        numbers = [value.score, value.acc_strict, value.acc_flexible]
    elif isinstance(value, Mapping):
        if "score" not in value:
            raise RewardError(
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
        raise RewardError(
            f"{CONFIG_KEY}={name!r} gave {value!r}, which is not a number",
            "Return a number, a mapping with score, or a RewardResult.",
        ) from error
    if not all(map(math.isfinite, (score, strict, flexible))):
        raise RewardError(
            f"{CONFIG_KEY}={name!r} gave {value!r}, which is not finite",
            "Return a finite number for every response, also for an empty one.",
        )
    return RewardResult(score, strict, flexible)


RuleFunction = Callable[[str, str, Method], RewardResult]
"""(response, ground truth, method of the training reward) → result."""


def numeric_answer(solution_str: str, ground_truth: str, method: Method) -> RewardResult:
    """1 for the right number and 0 otherwise, see :mod:`refblend.rewards.gsm8k`."""
    strict = compute_score(solution_str, ground_truth, "strict")
    flexible = compute_score(solution_str, ground_truth, "flexible")
    return RewardResult(strict if method == "strict" else flexible, strict, flexible)


def mathematical_answer(solution_str: str, ground_truth: str, method: Method) -> RewardResult:
    """1 for an answer equal as mathematics and 0 otherwise, see :mod:`refblend.rewards.math`."""
    from refblend.rewards import math as mathematics

    flexible = mathematics.compute_score(solution_str, ground_truth)
    strict = flexible if mathematics.extract_boxed(solution_str) is not None else 0.0
    return RewardResult(strict if method == "strict" else flexible, strict, flexible)


RULES: dict[str, RuleFunction] = {
    "openai/gsm8k": numeric_answer,
    "refblend/arithmetic": numeric_answer,
    "refblend/sanity": numeric_answer,
    "DigitalLearningGmbH/MATH-lighteval": mathematical_answer,
    "lighteval/MATH": mathematical_answer,
    "HuggingFaceH4/MATH-500": mathematical_answer,
}
"""Rules by ``data_source``."""
PURPOSES = {numeric_answer: "reward.gsm8k", mathematical_answer: "reward.math"}
"""Which version of ``numerics.json`` covers a rule of ours."""


def reward_purposes(config: RewardConfig, data_sources: Iterable[str]) -> set[str]:
    """The purposes that score rows of these sources; a user's rule belongs to none."""
    path = config.custom_reward_function.path
    if path is not None:
        ours = path == "pkg://refblend.rewards.reasoning_gym"
        return {"reward.reasoning_gym"} if ours else set()
    rules = {RULES[source] for source in data_sources if source in RULES}
    return {PURPOSES[rule] for rule in rules if rule in PURPOSES}


class RuleReward:
    """The rule reward of a run: the user's function, or that of the data source."""

    def __init__(self, method: Method = "flexible", custom: CustomReward | None = None) -> None:
        self.method = method
        self.custom = custom
        self._errors = 0
        self._shown = False

    @classmethod
    def from_config(cls, config: RewardConfig) -> "RuleReward":
        """The reward selected by the configuration; errors of :func:`load_custom_reward`."""
        return cls(config.method, load_custom_reward(config.custom_reward_function))

    def __call__(
        self,
        data_source: str,
        solution_str: str,
        ground_truth: str,
        extra_info: Mapping[str, Any] | None = None,
    ) -> RewardResult:
        """Score one response; ConfigError without a rule, DataError for the gold answer.

        Whatever the function raises comes through.
        """
        if self.custom is not None:
            values = (data_source, solution_str, ground_truth, dict(extra_info or {}))
            given = dict(zip(_ARGUMENTS, values, strict=True))
            return _as_result(self.custom.function(**given), self.custom.name)
        if data_source not in RULES:
            raise ConfigError(
                f"there is no rule reward for data_source {data_source!r}",
                f"Use one of {', '.join(sorted(RULES))}, or set "
                "reward.custom_reward_function=module:function.",
            )
        return RULES[data_source](solution_str, ground_truth, self.method)

    def of_row(self, row: PromptRow, response: str) -> RewardResult:
        """Score a response to a row; as :meth:`__call__`, and every error names the row.

        RewardError for whatever the rule or the user's function raises.
        """
        where = f"the row with index {row.index} of {row.data_source}"
        try:
            return self(row.data_source, response, row.ground_truth, row.extra_info)
        except RefblendError as error:
            told = f"{where}: {error.reason}"
            if isinstance(error, RewardError):
                told += f" (the response was {show(response)})"
            raise type(error)(told, error.remedy) from error
        except Exception as error:  # the user's own code may raise anything
            name = f"{CONFIG_KEY}={self.custom.name!r}" if self.custom else "the rule"
            raise RewardError(
                f"{name} failed on {where}: "
                f"{type(error).__name__}: {error} (the response was {show(response)})",
                "Correct the function; it is called as verl calls its own.",
            ) from error

    def of_rows(self, rows: Sequence[PromptRow], responses: Sequence[str]) -> list[RewardResult]:
        """Score a response to each row. One that cannot be judged scores 0 and is counted.

        The first such failure is shown. RewardError if every response fails; other errors as in
        :meth:`of_row`.
        """
        results = []
        for row, response in zip(rows, responses, strict=True):
            try:
                results.append(self.of_row(row, response))
            except RewardError as error:
                results.append(RewardResult(0.0, 0.0, 0.0, error.reason))
        failed = [result.error for result in results if result.error]
        self._errors += len(failed)
        if failed and len(failed) == len(results):
            raise RewardError(
                f"the reward fails on every response of the step ({len(failed)}): {failed[0]}",
                "If it asks a service, call again to resume; with a corrected function, begin "
                "another run.",
            )
        if failed and not self._shown:
            self._shown = True
            logger.warning("a response cannot be judged and scores 0: %s", failed[0])
        return results

    def take_errors(self) -> int:
        """How many responses could not be judged since the last call."""
        count, self._errors = self._errors, 0
        return count
