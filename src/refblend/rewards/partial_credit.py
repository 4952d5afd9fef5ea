"""Partial credit from the gold solution: the oracle that serves as a positive control.

If blending helps anywhere, it helps with these scores; a study in which they do not help cannot
conclude anything from a judge that does not.
"""

from refblend.data.equations import EQUATION


def partial_credit(response: str, solution: str, correct: float) -> float:
    """Half for the right answer, half for the share of the solution's equations that it shows.

    In [0, 1]. Equations as in ``13-10=3`` count once each; a solution without any leaves the
    correctness (1 or 0) alone.
    """
    steps = set(EQUATION.findall(solution))
    if not steps:
        return float(correct)
    return 0.5 * correct + 0.5 * len(steps & set(EQUATION.findall(response))) / len(steps)
