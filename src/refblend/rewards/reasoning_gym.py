"""Rule reward of reasoning-gym's tasks: the library's own verifier.

Use it with ``reward.custom_reward_function=refblend.rewards.reasoning_gym:compute_score`` on files
that ``refblend data reasoning-gym`` wrote. The answer is what follows the last ``####``; without
one, the last line with text counts as *flexible* only.
"""

import atexit
import json
from collections.abc import Mapping
from contextlib import ExitStack
from functools import cache
from typing import Any

from refblend.data.reasoning_gym import SOURCE_PREFIX, ReasoningGym, reasoning_gym
from refblend.errors import DataError
from refblend.rewards.rule import RewardResult

MARK = "####"


@cache
def _server() -> ReasoningGym:
    """One server per process, ended with it."""
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(reasoning_gym())


def extract_answers(response: str) -> tuple[str | None, str | None]:
    """(strict, flexible): the text after the last mark, otherwise the last non-empty line.

    >>> extract_answers("2 + 2 = 4\\n#### 4")
    ('4', '4')
    >>> extract_answers("it is\\n4 ")
    (None, '4')
    """
    _, mark, after = response.rpartition(MARK)
    lines = [line.strip() for line in (after if mark else response).splitlines() if line.strip()]
    if mark:
        strict = lines[0] if lines else None
        return strict, strict
    return None, lines[-1] if lines else None


def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: Mapping[str, Any]
) -> RewardResult:
    """The verifier's score of the strict answer; accuracies count full scores only.

    ``data_source`` is ``reasoning_gym/<task>``; ``extra_info`` has ``entry`` and ``task_config``,
    which hold what the verifier needs in place of a ground truth (else DataError).
    """
    if not data_source.startswith(SOURCE_PREFIX) or "entry" not in extra_info:
        raise DataError(
            f"a row of {data_source!r} has no entry of reasoning-gym in extra_info",
            "Write the file with `refblend data reasoning-gym`.",
        )
    task = data_source.removeprefix(SOURCE_PREFIX)
    entry = json.loads(extra_info["entry"])
    config = json.loads(extra_info.get("task_config", "{}"))

    @cache
    def verdict(answer: str | None) -> float:
        return 0.0 if answer is None else _server().score(task, answer, entry, config)

    strict, flexible = (verdict(answer) for answer in extract_answers(solution_str))
    return RewardResult(strict, float(strict == 1.0), float(flexible == 1.0))
