"""Count lines, and README's words, against the budgets; `make lint` calls it.

What is within its budget must stay there: add it to ``MET``, and growth beyond the budget fails.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "src/refblend"
BUDGETS = {
    "src": (29_000, ["src"]),
    "study/report": (2_200, [f"{PACKAGE}/study/report"]),
    "study/planning": (600, [f"{PACKAGE}/study/planning"]),
    "study/recommend": (500, [f"{PACKAGE}/study/recommend*"]),
    "study/design, runs, stats": (
        2_600,
        [f"{PACKAGE}/study/{name}*" for name in ("design", "runs", "stats")],
    ),
    "cli": (1_300, [f"{PACKAGE}/cli"]),
    "workers, trainer, lifecycle": (
        7_500,
        [f"{PACKAGE}/{name}" for name in ("workers", "trainer", "lifecycle")],
    ),
    "scoring, embedded": (4_700, [f"{PACKAGE}/{name}" for name in ("scoring", "embedded")]),
    "tests": (28_000, ["tests"]),
    "benchmarks": (2_500, ["benchmarks"]),
    "workflow/rules": (900, ["workflow/rules"]),
}
"""The largest number of lines, and the files and folders (as globs) that count."""
README_WORDS = 700
MET = {
    "src", "scoring, embedded", "study/planning", "study/recommend", "study/report", "cli", "tests",
    "benchmarks", "workflow/rules", "README",
}  # fmt: skip
"""What has been within its budget."""
CODE = {".py", ".smk", ".j2", ".tex"}
"""Python, rules and templates, not data."""


def lines(patterns: list[str]) -> int:
    """Lines of all code in the files and folders that match; each pattern must match something."""
    count = 0
    for pattern in patterns:
        found = list(ROOT.glob(pattern))
        if not found:
            sys.exit(f"{pattern} matches nothing. Correct BUDGETS in scripts/line_budgets.py.")
        files = [file for path in found for file in ([path] if path.is_file() else path.rglob("*"))]
        code = (file for file in files if file.suffix in CODE and file.is_file())
        count += sum(len(file.read_text(encoding="utf-8").splitlines()) for file in code)
    return count


def main() -> None:
    """Print the table; exit status 1 if something of :data:`MET` is above its budget."""
    table = [(name, lines(paths), budget, "lines") for name, (budget, paths) in BUDGETS.items()]
    words = len((ROOT / "README.md").read_text(encoding="utf-8").split())
    table.append(("README", words, README_WORDS, "words"))
    for name, count, budget, unit in table:
        print(f"{name:<38}{count:>8,} of {budget:,} {unit}")
    over = [name for name, count, budget, _ in table if count > budget and name in MET]
    if over:
        sys.exit(f"above the budget: {', '.join(over)}. Remove lines; do not raise the budget.")


if __name__ == "__main__":
    main()
