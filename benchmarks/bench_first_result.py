"""From a fresh clone to the first report: `make study TARGET=m1`, environment included.

`python benchmarks/bench_first_result.py` clones the commit into an empty folder and calls what the
README says. Wall time by stage comes from Snakemake's benchmark files; jobs of a stage that ran
side by side count once each, so that the stages may sum to more than the whole.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import common
import pandas as pd

GOAL_SECONDS = 600.0


def clone(folder: Path) -> Path:
    """The commit in ``folder``, without anything that was built here."""
    subprocess.run(["git", "clone", "-q", common.ROOT, folder], check=True)
    return folder


def stages(logs: Path) -> dict[str, float]:
    """Seconds of all jobs of each rule."""
    found: dict[str, float] = {}
    for path in sorted(logs.rglob("*.benchmark.tsv")):
        rule = path.relative_to(logs).parts[0].removesuffix(".benchmark.tsv")
        found[rule] = found.get(rule, 0.0) + float(pd.read_csv(path, sep="\t")["s"].sum())
    return found


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        work = clone(Path(name) / "clone")
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        start = time.monotonic()
        python = f"PYTHON={sys.executable}"
        for command in (["make", "env", python], ["make", "study", "TARGET=m1", python]):
            done = subprocess.run(
                command, cwd=work, env=environment, capture_output=True, text=True, check=False
            )
            if done.returncode:
                raise SystemExit("\n".join(done.stderr.splitlines()[-30:]))
            if command[1] == "env":
                installed = time.monotonic() - start
        spent = time.monotonic() - start
        if not (work / "results" / "cpu" / "m1" / "report.md").exists():
            raise SystemExit("make study TARGET=m1 ended without a report")
        rules = stages(work / "logs" / "cpu")
    rows = [["environment", installed], *([rule, of] for rule, of in rules.items())]
    common.show("from a clone to M1's report", ["stage", "seconds"], [*rows, ["all", spent]])
    common.record(
        "first_result",
        "wall seconds from a fresh clone to M1's report",
        spent,
        GOAL_SECONDS,
        {"environment": installed, "jobs": rules, "cores": os.cpu_count()},
    )


if __name__ == "__main__":
    main()
