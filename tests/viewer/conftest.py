from pathlib import Path

import pytest
from viewed_run import write_run


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return write_run(tmp_path / "a")
