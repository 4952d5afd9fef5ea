r"""Rule reward of MATH: is the response's answer equal to the gold answer as mathematics?

The library math-verify (https://github.com/huggingface/Math-Verify, Apache-2.0) parses both and
compares numbers, fractions, sets, intervals and expressions. Both methods read the last
``\boxed{}``; without one, ``flexible`` reads what follows "answer", or the last formula or number.

What the library gets wrong is done here: percent signs, which its parser knows with one version of
antlr only; bases, which it drops; spaces between thousands; 1e-7, which it takes for Euler's
number; and numbers near 0, all of which are equal to it. ``docs/how-to/reward.md`` has the rules.
"""

import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from functools import cache
from itertools import product
from typing import Any

from refblend.errors import ConfigError, DataError
from refblend.rewards.gsm8k import Method

_SECONDS = 5
"""Time limit of one parse or comparison; what takes longer, such as a tower of powers, is wrong."""
_PERCENT, _PERCENT_TEXT = "upsilon", r"\\cdot\\upsilon "
"""The symbol that a percent sign becomes for the parser: 1 or 1/100, as the other side needs it;
and what is written for it, as a regular expression's replacement."""
_PERCENT_SIGN = re.compile(
    r"(?<!\s)\s*(?:\\?%|\\(?:text|mbox|mathrm)\{\s*percent\s*\})|(?<!\s)\s+percent\b"
)
_FORMULA = re.compile(r"(?<!\\)\$.*?(?<!\\)\$", re.DOTALL)
_EXPONENT = re.compile(r"(?<![\w.\\])(?:\d+(?:\.\d*)?|\.\d+)[eE][-+]?\d{1,3}(?![\w.]*\w)")
_THOUSANDS = re.compile(r"(?<=\d)(?:\\[,;: ]|~)(?=\d{3}(?!\d))")
_BASE = re.compile(r"\d_\{?(\d+)\}?")
_BOX = re.compile(r"\\(?:boxed|fbox)(?![a-z])")
_SMALL = 3
"""Numbers with at least so many zeros after the point agree in six digits, not in six places."""
_PROBES = (r"\frac{1}{2}", r"\sqrt{2}", r"(1,2]", r"\{1,2\}", r"x^{2}", r"5\upsilon")


def compute_score(solution_str: str, ground_truth: str, method: Method = "flexible") -> float:
    """1 for an answer equal to the gold answer, 0 if not; DataError if that is not LaTeX."""
    boxed = extract_boxed(solution_str)
    if boxed is not None:
        return _equal(_boxed(boxed), ground_truth)
    return 0.0 if method == "strict" else _equal(solution_str, ground_truth)


def extract_boxed(text: str) -> str | None:
    r"""The content of the last ``\boxed{…}`` or ``\boxed …``; None without a complete one.

    >>> extract_boxed(r"thus $x=\boxed{\frac{1}{2}}$.")
    '\\frac{1}{2}'
    """
    found = list(_BOX.finditer(text))
    if not found:
        return None
    rest = text[found[-1].end() :].lstrip()
    if not rest.startswith("{"):  # "\boxed 7", as a few solutions write
        return rest.split("$")[0].strip() or None
    depth = 0
    for end, brace in enumerate(rest):
        if end == 0 or rest[end - 1] != "\\":
            depth += (brace == "{") - (brace == "}")
        if depth == 0:
            return rest[1:end].strip() or None
    return None


def _boxed(answer: str) -> str:
    answer = re.sub(r"(?<!\\)[.,;:]\s*$", "", answer.replace(r"\varnothing", r"\emptyset"))
    return rf"$\boxed{{{_PERCENT_SIGN.sub(_PERCENT_TEXT, answer)}}}$"


def _equal(text: str, ground_truth: str) -> float:
    with _alarm_kept():
        gold, answer = _gold(ground_truth), _parse(text)
        bases = _BASE.findall(ground_truth)[-1:], _BASE.findall(text)[-1:]
        if not answer or (all(bases) and bases[0] != bases[1]):
            return 0.0
        pairs = list(product(_readings(gold), _readings(answer)))
        both = len(pairs) == 4  # percent against percent
        return float(any(_same(*pair) for pair in (pairs[:1] if both else pairs)))


def _readings(parsed: list[Any]) -> list[list[Any]]:
    """As it is without a percent sign; with one, the number before it and a hundredth of that."""
    from sympy import Basic, Rational, UnevaluatedExpr

    first = parsed[0]
    if not isinstance(first, Basic):
        return [parsed]
    marks = {s for s in first.free_symbols if getattr(s, "name", "") == _PERCENT}
    marks |= {part for part in first.atoms(UnevaluatedExpr) if part.args == (Rational(1, 100),)}
    if not marks:
        return [parsed]
    values = (Rational(1), Rational(1, 100))
    return [[first.xreplace(dict.fromkeys(marks, v)), *parsed[1:]] for v in values]


def _same(gold: list[Any], answer: list[Any]) -> bool:
    """The library's comparison, as fine as the smallest number asks for; False if it takes long.

    Whatever it raises comes through: an answer that cannot be compared is counted.
    """
    from math_verify import verify  # slow to import, and needed only for this data
    from math_verify.errors import TimeoutException
    from math_verify.utils import timeout

    if gold[-1] == answer[-1] and isinstance(gold[-1], str):
        return True
    try:
        more = timeout(_SECONDS)(_zeros)(gold[0], answer[0])
        return bool(
            verify(
                gold,
                answer,
                float_rounding=6 + more,
                numeric_precision=15 + 2 * more,
                timeout_seconds=_SECONDS,
                raise_on_error=True,
            )
        )
    except TimeoutException:
        return False


def _zeros(*expressions: Any) -> int:
    """Zeros after the point of the smallest number in the expressions; 0 for fewer than _SMALL."""
    from sympy import Basic, MatrixBase, floor, log, preorder_traversal

    found = 0
    for expression in expressions:
        if not isinstance(expression, Basic | MatrixBase):
            continue
        for part in preorder_traversal(expression):
            if getattr(part, "is_number", False):
                size = abs(part.evalf(6))
                if size.is_Float and size > 0:
                    found = max(found, -1 - int(floor(log(size, 10))))
    return found if found >= _SMALL else 0


@contextmanager
def _alarm_kept() -> Iterator[None]:
    """The library's time limits use the process's one alarm clock; a run that stops uses it too.

    A request to stop waits for the end of the comparison, or the library would clear its alarm.
    It is held by a handler: a signal mask holds for one thread, and any other may take the signal.
    """
    requests: list[int] = []
    numbers = signal.SIGINT, signal.SIGTERM
    handlers = {n: handler for n in numbers if (handler := signal.getsignal(n)) is not None}
    for number in handlers:
        signal.signal(number, lambda request, _: requests.append(request))
    left, begin = signal.getitimer(signal.ITIMER_REAL)[0], time.monotonic()
    try:
        yield
    finally:
        if left:
            signal.setitimer(signal.ITIMER_REAL, max(1e-3, left - (time.monotonic() - begin)))
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for request in requests:
            signal.raise_signal(request)


@cache
def _gold(ground_truth: str) -> Any:
    parsed = _parse(_boxed(ground_truth))
    if not parsed:
        raise DataError(
            f"the ground truth {ground_truth[:80]!r} cannot be read as mathematics",
            "Correct the data, or name a function for such answers in "
            "reward.custom_reward_function.",
        )
    return parsed


def _parse(text: str) -> list[Any]:
    from math_verify import parse

    _check_parser()
    text = _EXPONENT.sub(lambda number: format(Decimal(number[0]), "f"), text)
    text = _FORMULA.sub(lambda formula: _PERCENT_SIGN.sub(_PERCENT_TEXT, formula[0]), text)
    text = _THOUSANDS.sub("", text.replace(r"\%", "%"))
    parsed: list[Any] = parse(text, parsing_timeout=_SECONDS)
    return parsed


@cache
def _check_parser() -> None:
    """ConfigError if the parser and antlr do not fit: formulas would be taken for texts."""
    try:
        from latex2sympy2_extended import latex2sympy

        for probe in _PROBES:
            latex2sympy(probe)
    except Exception as error:  # antlr and generated code fail in many ways
        raise ConfigError(
            f"math-verify's parser does not work with the antlr that is installed "
            f"({type(error).__name__}: {error})",
            "Install the two together: pip install 'math-verify[antlr4_9_3]'.",
        ) from error
