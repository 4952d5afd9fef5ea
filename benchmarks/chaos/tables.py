"""The outcomes as Markdown."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from chaos.plan import DIRECTORY, TARGETS

OUTCOMES = ("went on", "resumed", "too late", "failed")


def signal_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Outcomes of the injections by target and signal."""
    counts = Counter((row["target"], row["signal"], row["outcome"]) for row in rows)
    lines = ["| target | signal | " + " | ".join(OUTCOMES) + " |", "|---|---|" + "---:|" * 4]
    for target in TARGETS:
        for signal in sorted({s for t, s, _ in counts if t == target}):
            numbers = " | ".join(str(counts[target, signal, outcome]) for outcome in OUTCOMES)
            lines.append(f"| {target} | {signal} | {numbers} |")
    return "\n".join(lines)


def directory_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Outcomes of what was done to a run's directory."""
    counts = Counter((row["target"], row["outcome"]) for row in rows if row["target"] in DIRECTORY)
    lines = ["| what | outcome | cases |", "|---|---|---:|"]
    lines += [f"| {what} | {outcome} | {n} |" for (what, outcome), n in sorted(counts.items())]
    return "\n".join(lines)
