"""`make env` from nothing, against pip with the same versions.

`python benchmarks/bench_install.py` clones the commit into an empty folder and calls `make env`
there, first with an empty cache of uv and then, in another clone, with the cache that it left; then
it lets pip install the same versions without a cache. All take their packages from where pip is
configured to, so the times are those of this machine and its network.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import common

LOCK = "requirements/cpu.lock"
GOAL_SECONDS, GOAL_TIMES = 30.0, 5.0


def timed(*command: str | Path, cwd: Path, **environment: str) -> float:
    """Wall seconds of a command.

    Raises:
        SystemExit: it failed; its last lines are shown.
    """
    start = time.monotonic()
    done = subprocess.run(
        command, cwd=cwd, env=os.environ | environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit("\n".join([*done.stdout.splitlines(), *done.stderr.splitlines()][-15:]))
    return time.monotonic() - start


def clone(folder: Path) -> Path:
    """The commit in ``folder``, without anything that was built here."""
    subprocess.run(["git", "clone", "-q", common.ROOT, folder], check=True)
    return folder


def main() -> None:
    python = f"PYTHON={sys.executable}"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # A uv on PATH would be used as it is; its cache is an empty one all the same.
        cache = {"UV_CACHE_DIR": str(folder / "cache")}
        first = timed("make", "env", python, cwd=clone(folder / "first"), **cache)
        again = timed("make", "env", python, cwd=clone(folder / "again"), **cache)
        by_pip = clone(folder / "pip")
        pip = timed(sys.executable, "-m", "venv", ".venv", cwd=by_pip)
        options = ("--disable-pip-version-check", "--no-cache-dir", "--no-deps")
        # torch has no hash in the lock, as every index builds it for itself; pip wants all or none.
        pins = re.sub(r" \\\n\s+--hash=\S+", "", (by_pip / LOCK).read_text())
        (by_pip / "pins.txt").write_text(pins)
        packages = ("-r", "pins.txt")
        pip += timed(".venv/bin/python", "-m", "pip", "install", *options, *packages, cwd=by_pip)
    rows = [
        ["make env, empty cache", first, pip / first],
        ["make env, cache of an earlier one", again, pip / again],
        ["pip, same versions", pip, 1.0],
    ]
    common.show("an environment from nothing", ["how", "seconds", "times faster"], rows)
    common.record(
        "install",
        "wall seconds of `make env` from nothing",
        first,
        GOAL_SECONDS,
        {
            "seconds": {"uv": first, "uv_warm": again, "pip": pip},
            "times_faster_than_pip": pip / first,
            "goal_times_faster": GOAL_TIMES,
        },
    )


if __name__ == "__main__":
    main()
