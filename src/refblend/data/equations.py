"""The equations that a worked solution states, e.g. ``13-10=3``."""

import re

EQUATION = re.compile(r"(?<!\d)(-?\d+)\s*([+\-*/])\s*(\d+)\s*=\s*(-?\d+)(?!\d)")
"""Left operand, operator, right operand and result of one equation of whole numbers; the right
operand has no sign."""


def equations_true(text: str) -> list[bool]:
    """Whether each stated equation holds as arithmetic, in order."""
    holds = []
    for left, op, right, result in EQUATION.findall(text):
        a, b, c = int(left), int(right), int(result)
        holds.append(
            {"+": a + b == c, "-": a - b == c, "*": a * b == c, "/": b != 0 and a == b * c}[op]
        )
    return holds
