"""Keeps the numbers in README.md and docs/results.md those of the tables.

    <!-- v("noisy_challenger", "noisy_off", expect="better") -->+0.033 [+0.014, +0.052]

A number stands after a call in a comment, with or without its interval. A claim names the verdict
that it expects. If the study says otherwise, the sentence is wrong: an error names its line, here
and in `make docs`. With ``table="m3/M3_summary"`` the number is that of a report's table, which has
no verdict. One name instead of two arms is for tables that compare none: a regime's correlation in
``table="m2/alignment_rank"``, a gain in ``table="advise"``, a measure's slope on the dose.

Needs the standard library alone: the site is built without pandas.

    python scripts/results_text.py    # writes the numbers anew
"""

import csv
import re
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEXTS = (ROOT / "README.md", ROOT / "docs" / "results.md")
STATED = re.compile(
    r"(?P<call><!-- v\((?P<arguments>[^>]*)\) -->)[+−]\d(?:[\d.]*\d)?(?P<interval> \[[^\]]*\])?"
)
ARGUMENT = re.compile(r'(?:(\w+)=)?"([^"]*)"')
KNOWN = {"endpoint", "experiment", "expect", "scale", "table"}
IN_TABLES = {"arm": "treated", "baseline": "reference", "measure": "endpoint", "diff": "estimate"}
IN_TABLES |= {"diff_low": "low", "diff_high": "high", "regime": "treated", "rho": "estimate"}
IN_TABLES |= {"slope": "estimate"}
"""Columns of a summary, of rank correlations or of a dose-response, and of the verdicts."""


class StaleTextError(ValueError):
    """A claim that the tables do not have, or have otherwise."""


@cache
def rows(scale: str, table: str) -> list[dict[str, str]]:
    """All verdicts of a scale, or all differences of a report's summary."""
    report, _, name = table.rpartition("/")
    place = f"{report}/tables/{name}" if report else name
    with (ROOT / "results" / scale / f"{place}.csv").open(encoding="utf-8", newline="") as file:
        found = list(csv.DictReader(file))
    renamed = [{IN_TABLES.get(key, key): value for key, value in row.items()} for row in found]
    return [{"treated": row.get("endpoint", "")} | row for row in renamed]


def v(treated: str, reference: str = "", expect: str = "", scale: str = "cpu", **where: str) -> str:
    """The difference of a verdict with its interval; ``where`` names endpoint or experiment.

    Raises:
        StaleTextError: there is no such verdict, there are several, or it is not the expected one.
    """
    table = where.pop("table", "verdicts")
    wanted = {"treated": treated} | where
    if reference:
        wanted = {"reference": reference, "endpoint": "test_sampled"} | wanted
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


def filled(text: str) -> str:
    """A text with the numbers of the tables.

    Raises:
        StaleTextError: it names the line of a claim that does not hold.
    """
    lines = []
    for number, line in enumerate(text.splitlines(), start=1):
        if line.lstrip().startswith("<!-- v("):
            raise StaleTextError(f"line {number}: a comment at its start would end the paragraph")
        try:
            lines.append(STATED.sub(_stated, line))
        except StaleTextError as error:
            raise StaleTextError(f"line {number}: {error}") from None
    return "\n".join(lines) + "\n"


def renewed(path: Path) -> str:
    """The text of a file with the numbers of the tables; StaleTextError names file and line."""
    try:
        return filled(path.read_text(encoding="utf-8"))
    except StaleTextError as error:
        raise StaleTextError(f"{path.name}, {error}") from None


def check() -> None:
    """Refuse (StaleTextError) a text whose numbers or claims are not those of the tables."""
    for path in TEXTS:
        if renewed(path) != path.read_text(encoding="utf-8"):
            raise StaleTextError(f"{path.name} has old numbers: run scripts/results_text.py")


def _stated(match: "re.Match[str]") -> str:
    arguments = ARGUMENT.findall(match["arguments"])
    named = {name: value for name, value in arguments if name}
    plain = [value for name, value in arguments if not name]
    if len(plain) not in ((1, 2) if "table" in named else (2,)) or not set(named) <= KNOWN:
        raise StaleTextError(f"{match['call']}: give two arms, and of {', '.join(sorted(KNOWN))}")
    number = v(*plain, **named).replace("-", "−")
    return match["call"] + (number if match["interval"] else number.partition(" ")[0])


if __name__ == "__main__":
    try:
        texts = {path: renewed(path) for path in TEXTS}
    except StaleTextError as error:
        sys.exit(f"error: {error}")
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
