"""Copy the tables of the long runs into docs/explanation/reliability.md.

`python benchmarks/reliability.py` reads what `make chaos`, `make chaos-nodes`, `make fuzz` and
`make soak` wrote to ``benchmarks/results`` and replaces the text between ``<!-- name -->`` and
``<!-- /name -->``.
"""

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from chaos.nodes import FAULTS, MOMENTS
from chaos.plan import DIRECTORY
from chaos.tables import directory_table, environment_table, signal_table

from refblend.files import write_text

ROOT = Path(__file__).resolve().parents[1]

PAGE = ROOT / "docs" / "explanation" / "reliability.md"
RESULTS = ROOT / "benchmarks" / "results"


def chaos(result: dict[str, Any]) -> str:
    """Signals by target."""
    figures, head = result["figures"], result["headline"]
    left = ", ".join(figures["left_in_shared_memory"]) or "nothing"
    commits = {row["commit"] for row in figures["injections"]}
    said = (
        f"{head['value']} of {head['goal']} ended as promised; left in shared memory: {left}. "
        f"Commits: {', '.join(sorted(commit[:7] for commit in commits))}."
    )
    rows = figures["injections"]
    tables = [signal_table(rows)]
    if any(row["target"] in DIRECTORY for row in rows):
        tables.append(directory_table(rows))
    return "\n\n".join([said, *tables])


def nodes(result: dict[str, Any]) -> str:
    """Faults of nodes by the stage in which they came."""
    head, rows = result["headline"], result["figures"]["cases"]
    moments = list(MOMENTS)
    lines = [
        f"{head['value']} of {head['goal']} ended as promised.",
        "",
        f"| fault | {' | '.join(moments)} |",
        "|---|" + "---|" * len(moments),
    ]
    for fault in FAULTS:
        found = {row["moment"]: row["outcome"] for row in rows if row["fault"] == fault}
        cells = (found.get(moment, "not run") for moment in moments)
        lines.append(f"| {fault} | {' | '.join(cells)} |")
    return "\n".join(lines)


def wrong_inputs(result: dict[str, Any]) -> str:
    """Every command with its status, message and time."""
    head = result["headline"]
    lines = [
        f"{head['value']} of {head['goal']} ended as promised.",
        "",
        "| command | status | message | CPU s |",
        "|---|---:|---|---:|",
    ]
    for case in result["cases"]:
        cells = (case["command"], case["status"], case["message"], case["seconds"])
        command, *rest = (str(cell).replace("|", "\\|") for cell in cells)
        lines.append(f"| `{command}` | {' | '.join(rest)} |")
    return "\n".join(lines)


def environment(result: dict[str, Any]) -> str:
    """Faults of disk, clock, memory and numbers."""
    head = result["headline"]
    said = f"{head['value']} of {head['goal']} ended as promised."
    return f"{said}\n\n{environment_table(result['figures']['cases'])}"


def fuzz(result: dict[str, Any]) -> str:
    """Cases by kind of input."""
    head = result["headline"]
    lines = [
        f"{head['value']:,} of {head['goal']:,} were accepted and read correctly, or refused with "
        "file, reason and remedy.",
        "",
        "| input | cases | accepted | refused | of these by the command line |",
        "|---|---:|---:|---:|---:|",
    ]
    for row in result["targets"]:
        numbers = (row[name] for name in ("cases", "accepted", "refused", "command_line"))
        lines.append(f"| {row['inputs']} | " + " | ".join(f"{n:,}" for n in numbers) + " |")
    return "\n".join(lines)


def growth_rows(processes: dict[str, Any]) -> list[list[str]]:
    """A soak's processes: name, MiB, MiB per 1,000 steps with its interval, growth, handles."""
    rows = []
    for name, process in processes.items():
        uss, handles = process["uss_mib"], process["handles"]
        slope = f"{uss['per_1000_steps']:+.2f} [{uss['low']:+.2f}, {uss['high']:+.2f}]"
        count = f"{handles['early']:.0f} → {handles['late']:.0f}"
        growth = f"{uss['growth_percent']:+.2f} %"
        rows.append([name, f"{uss['begin']:.0f}", slope, growth, count])
    return rows


def soak(result: dict[str, Any]) -> str:
    """Growth of every process, and drift of the step time."""
    figures = result["figures"]
    lines = [
        f"{figures['steps']:,} steps in {figures['seconds'] / 60:.0f} minutes. The largest growth "
        f"is {result['headline']['value']:.1f} % (goal {result['headline']['goal']:g} %).",
        "",
        "| process | MiB at a tenth | MiB per 1,000 steps [95 %] | growth | handles |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, *cells in growth_rows(figures["processes"]):
        lines.append(f"| {name.rpartition(' ')[0]} | {' | '.join(cells)} |")
    lines += ["", "| median of | last tenth / second tenth |", "|---|---:|"]
    lines += [f"| {name} | {value:.3f} |" for name, value in figures["drift"].items()]
    return "\n".join(lines)


TABLES: dict[str, Callable[[dict[str, Any]], str]] = {
    "chaos": chaos,
    "nodes": nodes,
    "environment": environment,
    "fuzz": fuzz,
    "wrong_inputs": wrong_inputs,
    "soak": soak,
}


def _filled_place(text: str, place: re.Match[str]) -> str:
    return f"{place[1]}\n{text}\n\n{place[2]}"


def filled(page: str, results: Path = RESULTS) -> str:
    """The page with the tables of ``results``.

    Raises:
        ValueError: the page does not have exactly one place for a table.
    """
    for name, table in TABLES.items():
        file = results / f"{name}.json"
        text = "Not run yet."
        if file.exists():
            text = table(json.loads(file.read_text(encoding="utf-8")))
        place = re.compile(f"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        count = len(place.findall(page))
        if count != 1:
            raise ValueError(f"{count} places for the table {name}")
        page = place.sub(partial(_filled_place, text), page)
    return page


if __name__ == "__main__":
    write_text(PAGE, filled(PAGE.read_text(encoding="utf-8")))
