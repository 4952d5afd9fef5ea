"""Rule reward of reasoning-gym's tasks: the library's own verifier.

Use it with ``reward.custom_reward_function=refblend.rewards.reasoning_gym:compute_score`` on files
that ``refblend data reasoning-gym`` wrote. The answer is what follows the last ``####``; without
one, the end of the text counts as *flexible* only. It has as many lines as the task's own answer:
what a model writes after them is not read. Where that has several, or the task names none, all
that follows is an answer, too, and the better score counts.
"""

import atexit
import json
from collections.abc import Mapping
from contextlib import ExitStack
from functools import cache
from typing import Any

from refblend.data.reasoning_gym import SOURCE_PREFIX, ReasoningGym, reasoning_gym
from refblend.errors import DataError, RewardError
from refblend.rewards.result import RewardResult

MARK = "####"


@cache
def _server() -> ReasoningGym:
    """One server per process, ended with it."""
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(reasoning_gym())


def extract_answers(response: str, lines: int = 1) -> tuple[list[str], list[str]]:
    """(strict, flexible): the answers to try, of ``lines`` lines; 0: any number of lines.

    >>> extract_answers("2 + 2 = 4\\n#### 4\\nDone.")
    (['4'], ['4'])
    >>> extract_answers("it is\\n4 ")
    ([], ['4'])
    >>> extract_answers("####\\n1 2\\n3 4\\n", lines=2)
    (['1 2\\n3 4'], ['1 2\\n3 4'])
    """
    _, mark, after = response.rpartition(MARK)
    text = "\n".join(line.rstrip() for line in after.strip().splitlines())
    if not text:
        return [], []
    all_lines = text.split("\n")
    taken = all_lines[: lines or 1] if mark else all_lines[-(lines or 1) :]
    found = ["\n".join(taken).strip()] + ([text] if lines != 1 else [])
    found = list(dict.fromkeys(found))
    return (found, found) if mark else ([], found)


def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: Mapping[str, Any]
) -> RewardResult:
    """The verifier's score of the strict answer; accuracies count full scores only.

    ``data_source`` is ``reasoning_gym/<task>``; ``extra_info`` has ``entry`` and ``task_config``,
    which hold what the verifier needs (else DataError). An answer on which it fails scores 0.
    """
    if not data_source.startswith(SOURCE_PREFIX) or "entry" not in extra_info:
        raise DataError(
            f"a row of {data_source!r} has no entry of reasoning-gym in extra_info",
            "Write the file with `refblend data reasoning-gym`.",
        )
    task = data_source.removeprefix(SOURCE_PREFIX)
    entry = json.loads(extra_info["entry"])
    config = json.loads(extra_info.get("task_config", "{}"))

    failed: dict[str, str] = {}

    @cache
    def verdict(answer: str) -> float:
        try:
            return _server().score(task, answer, entry, config)
        except RewardError as error:
            failed[answer] = error.reason
            return 0.0

    found = extract_answers(solution_str, len(ground_truth.strip().splitlines()))
    strict, flexible = (max(map(verdict, answers), default=0.0) for answers in found)
    if failed and failed.keys() >= set(found[1]):
        return RewardResult(0.0, 0.0, 0.0, next(iter(failed.values())))
    return RewardResult(strict, float(strict == 1.0), float(flexible == 1.0))
