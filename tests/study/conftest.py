from collections.abc import Callable
from pathlib import Path

import made_runs
import pytest


@pytest.fixture
def make_run() -> Callable[..., Path]:
    """``make_run(directory, seed, …)`` writes a synthetic run directory."""
    return made_runs.write_run
