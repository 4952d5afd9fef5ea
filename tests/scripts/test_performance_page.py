"""docs/explanation/performance.md shows what benchmarks/results has: figures, goals, processors."""

import json
import operator
import re
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
PAGE = (ROOT / "docs" / "explanation" / "performance.md").read_text(encoding="utf-8")
COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "≤": operator.le,
    "≥": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
PROCESSORS = {"AMD EPYC": "AMD", "Intel(R) Xeon(R) Processor": "Intel"}
BUSY = 1.5
"""Load average when a benchmark began, from which on it had company."""


@cache
def record(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def at(name: str, *keys: str) -> Any:
    value: Any = record(name)
    for key in keys:
        value = value[key]
    return value


@dataclass(frozen=True)
class Value:
    """A figure of a record and its goal there, both shown ``times`` their size; None: no goal."""

    name: str
    keys: tuple[str, ...] = ("headline", "value")
    goal: tuple[str, ...] | None = ("headline", "goal")
    times: float = 1.0

    def measured(self) -> float:
        return float(at(self.name, *self.keys)) * self.times

    def wanted(self) -> float | None:
        return None if self.goal is None else float(at(self.name, *self.goal)) * self.times


def figure(name: str, *keys: str, goal: tuple[str, ...] | None = None, times: float = 1) -> Value:
    return Value(name, ("figures", *keys), goal and ("figures", *goal), times)


HEADLINE = ("headline", "goal")
SPEED = ("ratios", "refblend", "cpu_seconds")
BOTH = ("float32", "bfloat16")

ROWS: list[tuple[str, list[Value], list[Value]]] = [
    ("step, real_step", [Value("step")], [Value("real_step")]),
    (
        "peers, real_peers",
        [Value("peers")],
        [Value("real_peers", ("figures", dtype, *SPEED)) for dtype in BOTH],
    ),
    ("real_scoring", [], [Value("real_scoring")]),
    (
        "real_scoring",
        [],
        [figure("real_scoring", "guided_to_free_per_token", goal=("goal_guided",))],
    ),
    ("real_memory", [], [Value("real_memory")]),
    ("first_result", [Value("first_result", times=1 / 60)], []),
]
"""Benchmarks of each row, and what its two columns of figures show."""


def table(heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, without its head."""
    section = PAGE.split(f"## {heading}\n")[1]
    lines = re.search(r"(?:^\|.*\|\n)+", section, re.M)
    assert lines is not None
    rows = lines[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def figures(cell: str) -> list[tuple[str, bool]]:
    """The numbers of a cell, and whether each is bold; what stands in parentheses is not read."""
    found = []
    for number, part in enumerate(re.sub(r"\([^)]*\)", "", cell).split("**")):
        found += [(text, number % 2 == 1) for text in re.findall(r"\d+(?:\.\d+)?", part)]
    return found


def rounded(value: float, text: str) -> str:
    """A value with as many decimals as a text has."""
    return f"{value:.{len(text.partition('.')[2])}f}"


def goals(cell: str, columns: Sequence[Sequence[Value]]) -> list[tuple[str, str]]:
    """Comparison and number for every figure, embedded ones first."""
    found = re.findall(r"(real )?([≤≥<>]) ([\d.]+)", cell)
    count = sum(map(len, columns))
    if len(found) == count and not any(real for real, *_ in found):
        return [(sign, number) for _, sign, number in found]
    by_size = {bool(real): (sign, number) for real, sign, number in found}
    sizes = [bool(size) for size, values in enumerate(columns) for _ in values]
    return [by_size.get(size, by_size.get(False, ("", ""))) for size in sizes]


PLACES = [pytest.param(i, id=f"{i}-{row[0].split(',')[0]}") for i, row in enumerate(ROWS)]


def test_every_row_of_the_table_is_known() -> None:
    names = [row[0].replace("`", "") for row in table("Goals and figures")]
    assert names == [row[0] for row in ROWS]


@pytest.mark.parametrize("place", PLACES)
def test_a_row_shows_its_records(place: int) -> None:
    _, _, goal, *cells, _ = table("Goals and figures")[place]
    columns = ROWS[place][1:]
    pairs = goals(goal, columns)
    for cell, values in zip(cells, columns, strict=True):
        written = figures(cell)
        assert len(written) == len(values), cell
        for (text, bold), value in zip(written, values, strict=True):
            assert text == rounded(value.measured(), text), value
            wanted = value.wanted()
            if wanted is None:
                assert not bold
                continue
            sign, number = pairs.pop(0)
            assert float(number) == pytest.approx(wanted), value
            missed = not COMPARISONS[sign](value.measured(), wanted)
            assert bold == missed, f"{value}: {'bold' if missed else 'plain'}, its goal is {goal}"


@pytest.mark.parametrize("place", PLACES)
def test_a_row_names_the_processors_of_its_records(place: int) -> None:
    *_, on = table("Goals and figures")[place]
    values = [value for column in ROWS[place][1:] for value in column]
    cpus = [at(value.name, "hardware", "cpu") for value in values]
    assert on == "; ".join(dict.fromkeys(PROCESSORS.get(cpu, cpu) for cpu in cpus))


def test_benchmarks_that_had_company_are_named() -> None:
    names = {value.name for row in ROWS for column in row[1:] for value in column}
    busy = {name for name in names if at(name, "load_average", "start") > BUSY}
    sentence = re.search(r"Other work ran beside ([^:;.]*)[:;.]", " ".join(PAGE.split()))
    assert sentence is not None
    assert set(re.findall(r"`(\w+)`", sentence[1])) == busy


def test_the_parts_of_a_step_are_the_record() -> None:
    bare = {k: statistics.median(v) for k, v in at("step", "figures", "parts_cpu_seconds").items()}
    whole = sum(bare[part] for part in ("generate", "judge", "log_probs", "update"))
    steps = at("step", "figures", "step_cpu_seconds")

    def in_step(*names: str) -> float:
        return sum(statistics.median(step[name] for step in steps) for name in names) / whole

    workers = [f"ray::{name}Worker" for name in ("Rollout", "Judge", "Actor")]
    parts = (bare["generate"], bare["judge"], bare["log_probs"] + bare["update"])
    rest = [name for name in steps[0] if name not in workers]
    expected = [(part / whole, in_step(name)) for part, name in zip(parts, workers, strict=True)]
    rows = table("A step's time line")
    for row, (alone, within) in zip(rows[:3], expected, strict=True):
        assert row[1:] == [rounded(alone, row[1]), rounded(within, row[2])]
    assert rows[3][2] == rounded(in_step(*rest), rows[3][2])
    assert rows[4][2] == rounded(at("step", "headline", "value"), rows[4][2])


def time_line(number: int) -> dict[str, float]:
    """Label → milliseconds of a chart."""
    chart = PAGE.split("```mermaid")[number + 1].split("```")[0]
    return {
        label: float(ms) for label, ms in re.findall(r"^ +([a-z -]+), .*?(\d+)ms$", chart, re.M)
    }


STAGES = {
    "generation": "gen",
    "weights taken over": "update_weights",
    "quality scores": "ref_quality_score",
    "old log-probs": "old_log_prob",
    "update": "update_actor",
}


def test_the_time_line_of_scale_cpu_is_the_record() -> None:
    of = at("step", "figures", "step_wall_seconds")
    assert time_line(0) == {k: round(1000 * of[f"timing_s/{v}"]) for k, v in STAGES.items()}


def test_the_time_line_of_scale_smollm_is_that_of_its_runs() -> None:
    import pandas as pd

    frame = pd.read_parquet(ROOT / "results" / "smollm" / "runs.parquet")
    steps = frame[frame["step"] > 0]
    median = {
        arm: steps[steps["arm"] == arm][[f"timing_s/{v}" for v in STAGES.values()]].median()
        for arm in ("constant_terminal", "off")
    }
    found = median["constant_terminal"]
    assert time_line(1) == {k: round(1000 * found[f"timing_s/{v}"]) for k, v in STAGES.items()}
    alone = re.search(r"which alone, in `off`, take ([\d,]+) ms", PAGE)
    assert alone is not None
    assert alone[1] == f"{1000 * median['off']['timing_s/old_log_prob']:,.0f}"


def test_figures_of_the_text_are_those_of_the_records() -> None:
    held = at("real_memory", "figures", "peak_gib")
    least = min(of for way, of in held.items() if way.startswith("TRL"))
    answers = at("real_scoring", "figures", "seconds")
    longer = statistics.median(
        g / f for g, f in zip(answers["guided, stage"], answers["free, stage"], strict=True)
    )
    scoring = (ROOT / "docs" / "explanation" / "scoring.md").read_text(encoding="utf-8")
    for text, page in (
        (f"Without the judge the ratio is {held['refblend without'] / least:.2f}", PAGE),
        (f"{longer:.2f} per judgement", scoring),
        (f"{at('real_scoring', 'figures', 'guided_to_free_per_token'):.2f} per token", scoring),
    ):
        assert text in " ".join(page.split())
