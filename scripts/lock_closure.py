"""Prune a lock file to what the project needs, by the metadata of the installed packages.

    .venv/bin/python scripts/lock_closure.py            # show what would go
    .venv/bin/python scripts/lock_closure.py --write    # write cpu.lock and gpu.lock

The roots are the requirements in pyproject.toml (runtime, build system, and the extras that a CPU
needs). From them the requirements of every installed distribution are followed, with
markers and extras evaluated for this interpreter; names in ``requirements/overrides.txt`` are left
out. Pins keep their versions. ``gpu.lock`` cannot be installed everywhere, so it loses exactly the
names that leave ``cpu.lock``.

Run it in an environment installed from the full lock, after a requirement was dropped or after
the lock was resolved again. Exit status 1: a needed package is not installed or not pinned.
"""

import argparse
import importlib.metadata
import re
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "requirements"
EXTRAS = ("loop", "train-cpu", "study", "dev")


def project_requirements(pyproject: Path) -> list[Requirement]:
    """The top-level requirements that the lock must satisfy."""
    tree = tomllib.loads(pyproject.read_text(encoding="utf-8"))
    texts = [*tree["build-system"]["requires"], *tree["project"]["dependencies"]]
    for extra in EXTRAS:
        texts += tree["project"]["optional-dependencies"][extra]
    found = [Requirement(text) for text in texts]
    return [each for each in found if each.name != tree["project"]["name"]]  # our other extras


def read_pins(lock: Path) -> dict[str, str]:
    """Canonical name → the lines that pin it: the version, then the hashes."""
    entries = re.split(r"\n(?=[A-Za-z0-9])", lock.read_text(encoding="utf-8").strip())
    return {
        canonicalize_name(re.split(r"[=<>!~ ;\[]", entry, maxsplit=1)[0]): entry
        for entry in entries
        if entry and not entry.startswith("#")
    }


def version_of(entry: str) -> str:
    """The pinned version of an entry of :func:`read_pins`."""
    return entry.split("==")[1].split()[0]


def closure(roots: Iterable[Requirement], excluded: set[str]) -> tuple[set[str], set[str]]:
    """Names that the roots need, and those of them that are not installed here."""
    needed: set[str] = set()
    missing: set[str] = set()
    done: set[tuple[str, str]] = set()
    queue = [(requirement, "") for requirement in roots]
    while queue:
        requirement, extra = queue.pop()
        name = canonicalize_name(requirement.name)
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        if name in excluded:
            continue
        needed.add(name)
        for wanted in ("", *requirement.extras):
            if (name, wanted) in done:
                continue
            done.add((name, wanted))
            try:
                texts = importlib.metadata.requires(name) or []
            except importlib.metadata.PackageNotFoundError:
                missing.add(name)
                continue
            queue += [(Requirement(text), wanted) for text in texts]
    return needed, missing


def main() -> int:
    """Report, and with --write prune, the lock files."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write the pruned lock files")
    write = parser.parse_args().write
    excluded = set(read_pins(REQUIREMENTS / "overrides.txt"))
    needed, missing = closure(project_requirements(ROOT / "pyproject.toml"), excluded)
    pins = read_pins(REQUIREMENTS / "cpu.lock")
    unpinned = sorted(needed - set(pins))
    dropped = sorted(set(pins) - needed)
    for name in sorted(missing):
        print(f"not installed: {name}")
    for name in unpinned:
        print(f"needed but not pinned in cpu.lock: {name}")
    print(f"cpu.lock: {len(pins)} pins, {len(dropped)} not needed: {' '.join(dropped) or 'none'}")
    if missing or unpinned:
        return 1
    if write:
        for lock in ("cpu.lock", "gpu.lock"):
            kept = [
                line
                for n, line in sorted(read_pins(REQUIREMENTS / lock).items())
                if n not in dropped
            ]
            (REQUIREMENTS / lock).write_text("\n".join(kept) + "\n", encoding="utf-8")
            print(f"{lock}: {len(kept)} pins written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
