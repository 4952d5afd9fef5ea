"""The table of docs/explanation/performance.md shows what benchmarks/results has."""

import json
import operator
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "explanation" / "performance.md").read_text(encoding="utf-8")
PROCESSORS = {"AMD EPYC": "AMD", "Intel(R) Xeon(R) Processor": "Intel"}
HEADLINE, GOAL = ("headline", "value"), ("headline", "goal")
SPEED = [
    ("figures", dtype, "ratios", "refblend", "cpu_seconds") for dtype in ("float32", "bfloat16")
]
TABLE = re.findall(
    r"^\| (`.*) \|$", PAGE.split("## Goals and figures\n")[1].split("\n## ")[0], re.M
)
ROWS: list[tuple[str, list[tuple[str, tuple[str, ...], tuple[str, ...]]]]] = [
    ("≤", [("step", HEADLINE, GOAL), ("real_step", HEADLINE, GOAL)]),
    ("≥", [("peers", HEADLINE, GOAL), *(("real_peers", keys, GOAL) for keys in SPEED)]),
    ("≤", [("real_scoring", HEADLINE, GOAL)]),
    ("≤", [("real_scoring", ("figures", "guided_to_free_per_token"), ("figures", "goal_guided"))]),
    ("≤", [("real_memory", HEADLINE, GOAL)]),
    ("≤", [("shared_engine", HEADLINE, GOAL)]),
    ("≤", [("first_result", HEADLINE, GOAL)]),
]
"""How each row's figures compare with their goals; record, place and goal of each figure."""
MEETS = {"≤": operator.le, "≥": operator.ge}


@cache
def record(name: str) -> dict[str, Any]:
    path = ROOT / "benchmarks" / "results" / f"{name}.json"
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def at(name: str, *keys: str) -> Any:
    value: Any = record(name)
    for key in keys:
        value = value[key]
    return value


@pytest.mark.parametrize(
    ("line", "sign", "figures"), [(line, *row) for line, row in zip(TABLE, ROWS, strict=True)]
)
def test_a_row_shows_its_records(line: str, sign: str, figures: list[Any]) -> None:
    """Figures, goals, which figures missed them (bold), and the processors."""
    names, _, goal, *cells, processors = [cell.strip() for cell in line.split("|")]
    assert re.findall(r"`(\w+)`", names) == list(dict.fromkeys(name for name, *_ in figures))
    shown = []
    for number, part in enumerate("; ".join(cells).split("**")):
        shown += [(text, number % 2 == 1) for text in re.findall(r"\d+(?:\.\d+)?", part)]
    wanted = []
    for (text, _), (name, keys, goal_keys) in zip(shown, figures, strict=True):
        scale = 1 / 60 if name == "first_result" else 1  # minutes
        value, at_best = (float(at(name, *k)) * scale for k in (keys, goal_keys))
        missed = not MEETS[sign](value, at_best)
        wanted.append((f"{value:.{len(text.partition('.')[2])}f}", missed))
        goals = [float(found) for found in re.findall(rf"{sign} ([\d.]+)", goal)]
        assert at_best in [pytest.approx(found) for found in goals]
    assert shown == wanted
    cpus = [at(name, "hardware", "cpu") for name, *_ in figures]
    assert processors == "; ".join(dict.fromkeys(PROCESSORS.get(cpu, cpu) for cpu in cpus))
