"""The reward of `make demo`: is the last number of a response the answer?

An untouched model does not write the `####` that the verifier of reasoning-gym looks for.
"""

from typing import Any

from refblend.rewards.result import RewardResult
from refblend.rewards.rule import numeric_answer


def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: dict[str, Any]
) -> RewardResult:
    """1 for the right number, wherever it stands last; 0 otherwise."""
    return numeric_answer(solution_str, ground_truth, "flexible")
