"""The environments of trainers and trackers whose pins clash with ours; see the Makefile."""

import os
import subprocess
from pathlib import Path

import pytest

from refblend.data.reasoning_gym import find_python
from refblend.errors import DataError

ROOT = Path(__file__).parents[2]


def has_reasoning_gym() -> bool:
    try:
        return bool(find_python())
    except DataError:
        return False


needs_reasoning_gym = pytest.mark.skipif(
    not has_reasoning_gym(), reason="needs `make reasoning-gym`"
)


def python_of(name: str) -> Path:
    """Python of ``.tools/<name>``, or of the folder that ``REFBLEND_<NAME>_ENV`` names."""
    given = os.environ.get(f"REFBLEND_{name.upper()}_ENV")
    python = Path(given or ROOT / ".tools" / name) / "bin" / "python"
    if not python.exists():
        pytest.skip(f"there is no {name} environment: make .tools/{name}")
    return python


def run_in(name: str, script: str, *arguments: str, seconds: float = 600) -> str:
    """Standard output of a script of this folder, run in the environment."""
    own = {
        "PYTHONPATH": str(ROOT / "src"),
        "OMP_NUM_THREADS": "1",
        "VERL_USE_EXTERNAL_MODULES": "refblend.integrations.verl",
        "RAY_raylet_start_wait_time_s": "120",  # a busy machine needs more than Ray's 30 s
    }
    done = subprocess.run(
        [python_of(name), Path(__file__).with_name(script), *arguments],
        env=os.environ | own,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    return done.stdout
