"""The second part of ``make chaos``: faults of disk, clock, memory and numbers.

Each is a case of ``tests/trainer/test_environment_faults.py``, which injects it into a real run and
reports the outcome with ``record``.
"""

import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from common import ROOT, record

TESTS = "tests/trainer/test_environment_faults.py"


def run_cases(report: Path) -> None:
    """Run all cases, including the slow ones; ``report`` receives pytest's record of them."""
    report.parent.mkdir(parents=True, exist_ok=True)
    family = ("-o", "junit_family=xunit1")  # the one that has properties of cases
    command = [sys.executable, "-m", "pytest", TESTS, f"--junitxml={report}", *family]
    done = subprocess.run(command, cwd=ROOT, check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(f"pytest ended with status {done.returncode}")


def read_cases(report: Path) -> list[dict[str, Any]]:
    """One row per case: its recorded outcome, or "failed" or "skipped"."""
    rows = []
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        row: dict[str, Any] = {"case": case.attrib["name"]}
        row |= {p.attrib["name"]: p.attrib["value"] for p in case.iter("property")}
        if case.find("skipped") is not None:
            row["outcome"] = "skipped"
        elif case.find("failure") is not None or case.find("error") is not None:
            row["outcome"] = "failed"
        rows.append(row)
    return rows


def main() -> None:
    """Run the cases and write ``benchmarks/results/environment.json``."""
    report = ROOT / "build" / "chaos" / "environment.xml"
    run_cases(report)
    rows = read_cases(report)
    injected = [row for row in rows if row["outcome"] != "skipped"]
    good = sum(row["outcome"] != "failed" for row in injected)
    what = "faults of disk, clock, memory and numbers that ended as promised"
    record("environment", what, good, len(injected), {"cases": rows})
    sys.exit(good < len(injected))


if __name__ == "__main__":
    main()
