"""`make demo` as a newcomer calls it, with one step."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.real, pytest.mark.engine, pytest.mark.slow]

ROOT = Path(__file__).parents[2]


def test_the_demo_ends_with_its_page(smollm_dir, reasoning_gym_dir, tmp_path) -> None:
    """In a folder of its own, so that it overwrites no demo of the checkout."""
    for name in ("Makefile", "params", "scripts", "requirements", ".tools", "models"):
        (tmp_path / name).symlink_to(ROOT / name)
    made = [word for target in ("env", "pretrained", "reasoning-gym") for word in ("-o", target)]
    variables = [f"BIN={Path(sys.executable).parent}", "DEMO_STEPS=1"]
    done = subprocess.run(
        ["make", "demo", *made, *variables], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "of 8 right before" in done.stdout.splitlines()[-1]
    page = (tmp_path / "runs" / "demo.html").read_text(encoding="utf-8")
    assert "after 1 PPO steps" in page
    assert "100 training problems, 64 responses a\nstep" in page
    assert page.count("<td>✓") + page.count("<td>✗") == 16
