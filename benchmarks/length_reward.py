"""A rule reward that a random model can earn, for the benchmarks."""

from typing import Any


def reward(
    data_source: str, solution_str: str, ground_truth: str, extra_info: dict[str, Any]
) -> float:
    """Share of digits in the text."""
    del data_source, ground_truth, extra_info
    return sum(c.isdigit() for c in solution_str) / max(1, len(solution_str))
