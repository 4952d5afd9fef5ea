"""All benchmarks, one after the other: what `make bench` calls.

`python benchmarks/run_all.py [NAME …]` runs every `bench_NAME.py` in a process of its own, or the
named ones. One that fails, or cannot run because something that it needs is missing, does not stop
the others, but the whole fails; at the end stand the minutes of each and of all.
"""

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

FOLDER = Path(__file__).parent


def scripts(names: Sequence[str], folder: Path = FOLDER) -> list[Path]:
    """The benchmarks with these names, or all.

    Raises:
        SystemExit: there is none, or none with one of the names.
    """
    found = {path.stem.removeprefix("bench_"): path for path in sorted(folder.glob("bench_*.py"))}
    missing = [name for name in names if name not in found]
    if missing or not found:
        raise SystemExit(f"no benchmark {', '.join(missing)}; there are {', '.join(found)}")
    return [found[name] for name in names or found]


def run(paths: Sequence[Path]) -> dict[str, tuple[int, float]]:
    """Status and minutes of each benchmark by name."""
    found = {}
    for path in paths:
        name = path.stem.removeprefix("bench_")
        print(f"== {name}", flush=True)
        start = time.monotonic()
        status = subprocess.run([sys.executable, path], check=False).returncode
        found[name] = status, (time.monotonic() - start) / 60
    return found


def report(found: dict[str, tuple[int, float]]) -> str:
    """The lines with minutes, and what failed."""
    lines = [
        f"{name:<16}{minutes:6.1f} min" + (f"  failed with status {status}" if status else "")
        for name, (status, minutes) in found.items()
    ]
    failed = sum(bool(status) for status, _ in found.values())
    total = sum(minutes for _, minutes in found.values())
    return "\n".join([*lines, f"{'all':<16}{total:6.1f} min, {failed} of {len(found)} failed"])


def main() -> None:
    """Run them; SystemExit with status 1 if one failed."""
    found = run(scripts(sys.argv[1:]))
    print(report(found))
    if any(status for status, _ in found.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
