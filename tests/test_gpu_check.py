"""The check of one GPU, run on the CPU: the plain workers without Ray, vLLM and the like."""

import subprocess
import sys
from pathlib import Path

import pytest

from refblend.gpu_check import Report, largest_fitting

ROOT = Path(__file__).parents[1]
ABSENT = [
    *("ray", "vllm", "psutil", "typer", "rich", "datasets", "seaborn", "matplotlib", "codecarbon"),
    *("tensorboard", "math_verify", "scipy", "tabulate", "openai", "pynvml", "snakemake", "dvc"),
    "pytest",
]
"""What a bare machine with torch and transformers does not have."""
BARE = f"""
import runpy, sys

class Bare:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {ABSENT!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Bare())
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: (
    None if name.split(".")[0] in {ABSENT!r} else found(name, package)
)
sys.argv = ["gpu_check", "--device", "cpu", "--tiny", "--out", sys.argv[1]]
runpy.run_module("refblend.gpu_check", run_name="__main__")
"""


@pytest.mark.parametrize(
    ("limit", "start", "cap"), [(100_000, 4096, 2**20), (5000, 4096, 2**20), (10**9, 4096, 2**20)]
)
def test_the_largest_size_is_searched(limit: int, start: int, cap: int) -> None:
    tried = []

    def fits(size: int) -> bool:
        tried.append(size)
        return size <= limit

    found = largest_fitting(fits, start, cap)
    assert found <= min(limit, cap)
    assert found >= min(limit, cap) * 7 / 9
    assert len(tried) <= 14
    assert largest_fitting(lambda size: False, start, cap) == 0


def test_a_failed_stage_is_named_and_the_next_one_runs() -> None:
    report = Report("CPU")
    with report.stage("first"):
        raise ValueError("broken")
    with report.stage("second"):
        pass
    assert report.failures == ["first: ValueError: broken"]
    assert "| second | passed" in report.text()
    assert "**Failed:** first: ValueError: broken" in report.text()


@pytest.mark.slow
def test_on_a_bare_machine(tmp_path: Path) -> None:
    out = tmp_path / "check.md"
    done = subprocess.run(
        [sys.executable, "-c", BARE, str(out)],
        env={"PYTHONPATH": str(ROOT / "src"), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    text = out.read_text()
    assert "No stage failed." in text
    for stage in ("FSDP2", "rollout to weight push", "pushed weights", "scoring", "speed"):
        assert stage in text
    for left_out in ("ray, vllm, psutil missing", "tests/gpu", "largest micro-batch"):
        assert left_out in text.partition("Left out:")[2]
