"""Fills the numbers of docs/results.md in from the tables: a stale claim is an error.

    {{ v("noisy_challenger", "noisy_off", expect="better") }}    +0.033 [+0.014, +0.052]

A claim names the verdict that it expects. If the study says otherwise, the page fails at that
line. With ``table="m3/M3_summary"`` the number is that of a report's table, which has no verdict.
The README, which nothing fills in, states each number after such a call in a comment:

    <!-- v("noisy_judge", "noisy_off", expect="better") -->+0.033

Needs the standard library alone: the site is built without pandas.

    python scripts/results_text.py > build/results.md
"""

import csv
import re
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
CALL = re.compile(r"\{\{\s*v\((?P<arguments>[^}]*)\)\s*\}\}")
STATED = re.compile(r"<!-- v\((?P<arguments>[^>]*)\) -->(?P<number>[^\s:;,]*\d)")
ARGUMENT = re.compile(r'(?:(\w+)=)?"([^"]*)"')
KNOWN = {"endpoint", "experiment", "expect", "scale", "table"}
IN_TABLES = {"arm": "treated", "baseline": "reference", "measure": "endpoint", "diff": "estimate"}
IN_TABLES |= {"diff_low": "low", "diff_high": "high"}
"""Columns of a summary, and of the verdicts."""


class StaleTextError(ValueError):
    """A claim that the tables do not have, or have otherwise."""


@cache
def rows(scale: str, table: str) -> list[dict[str, str]]:
    """All verdicts of a scale, or all differences of a report's summary."""
    report, _, name = table.rpartition("/")
    place = f"{report}/tables/{name}" if report else "verdicts"
    with (ROOT / "results" / scale / f"{place}.csv").open(encoding="utf-8", newline="") as file:
        found = list(csv.DictReader(file))
    return [{IN_TABLES.get(key, key): value for key, value in row.items()} for row in found]


def v(treated: str, reference: str, expect: str = "", scale: str = "cpu", **where: str) -> str:
    """The difference of a verdict with its interval; ``where`` names endpoint or experiment.

    Raises:
        StaleTextError: there is no such verdict, there are several, or it is not the expected one.
    """
    table = where.pop("table", "")
    wanted = {"treated": treated, "reference": reference} | where
    if "endpoint" not in where:
        wanted["endpoint"] = "test_sampled"
    every = rows(scale, table)
    found = [row for row in every if all(row.get(key) == value for key, value in wanted.items())]
    if len(found) != 1:
        raise StaleTextError(
            f"{len(found)} verdicts of scale {scale} have {wanted}: name the experiment"
        )
    (row,) = found
    if expect and row.get("verdict") != expect:
        verdict = row.get("verdict", "without a verdict")
        raise StaleTextError(f"{treated} − {reference} is {verdict}, the text says {expect}")
    numbers = [f"{float(row[name]):+.3f}" for name in ("estimate", "low", "high")]
    return "{} [{}, {}]".format(*numbers)


def fill(text: str) -> str:
    """A text with its numbers.

    Raises:
        StaleTextError: it names the line of a claim that does not hold.
    """
    lines = []
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            lines.append(CALL.sub(_called, line))
        except StaleTextError as error:
            raise StaleTextError(f"docs/results.md, line {number}: {error}") from None
    return "\n".join(lines) + "\n"


def check(text: str) -> int:
    """How many numbers a text states after a call in a comment.

    Raises:
        StaleTextError: a number or a verdict is not that of the tables.
    """
    stated = list(STATED.finditer(text))
    for match in stated:
        wanted = _called(match).partition(" ")[0].replace("-", "−")
        if match["number"] != wanted:
            raise StaleTextError(f"README.md: {match[0]} is {wanted} in the tables")
    return len(stated)


def _called(match: "re.Match[str]") -> str:
    arguments = ARGUMENT.findall(match["arguments"])
    named = {name: value for name, value in arguments if name}
    plain = [value for name, value in arguments if not name]
    if len(plain) != 2 or not set(named) <= KNOWN:
        raise StaleTextError(f"{match[0]}: give two arms, and of {', '.join(sorted(KNOWN))}")
    return v(*plain, **named)


if __name__ == "__main__":
    try:
        sys.stdout.write(fill((ROOT / "docs" / "results.md").read_text(encoding="utf-8")))
    except StaleTextError as error:
        sys.exit(f"error: {error}")
