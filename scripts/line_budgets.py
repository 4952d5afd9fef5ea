"""Count lines against the budgets; `make lint` calls it.

A package that is within its budget must stay there: add it to ``MET``, and more lines fail.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUDGETS = {
    "src": 29_000,
    "src/refblend/study/report": 2_200,
    "tests": 28_000,
    "benchmarks": 2_500,
    "workflow/rules": 900,
}
"""The largest number of lines of each folder: Python, rules and templates, not data."""
MET = {"benchmarks"}
"""Folders that have been within their budget."""
CODE = {".py", ".smk", ".j2", ".tex"}


def lines(folder: Path) -> int:
    """Lines of all code below a folder."""
    files = (path for path in folder.rglob("*") if path.suffix in CODE and path.is_file())
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)


def main() -> None:
    """Print the table; exit status 1 if a folder of :data:`MET` is above its budget."""
    over = []
    for name, budget in BUDGETS.items():
        count = lines(ROOT / name)
        print(f"{name:<28}{count:>8,} of {budget:,} lines")
        if count > budget and name in MET:
            over.append(name)
    if over:
        sys.exit(f"above the budget: {', '.join(over)}. Remove lines; do not raise the budget.")


if __name__ == "__main__":
    main()
