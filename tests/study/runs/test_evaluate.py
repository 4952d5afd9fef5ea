from pathlib import Path

import pytest

from refblend.errors import StudyError
from refblend.files import write_json
from refblend.study.runs.evaluate import evaluate_run, final_checkpoint
from refblend.trainer.checkpoint import CheckpointManager, write_state


def test_the_last_checkpoint_is_evaluated(tmp_path: Path) -> None:
    checkpoints = CheckpointManager(tmp_path / "checkpoints")
    for step in (9, 10):
        with checkpoints.staging(step) as staged:
            write_state(staged, {})
    (checkpoints.root / "global_step_11").mkdir()
    last = final_checkpoint(tmp_path)
    assert (last.step, last.path) == (10, tmp_path / "checkpoints" / "global_step_10")


def test_a_run_without_checkpoint_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="no checkpoint"):
        final_checkpoint(tmp_path)


def test_a_failed_run_has_no_numbers(tmp_path: Path) -> None:
    write_json(tmp_path / "summary.json", {"status": "failed"})
    assert evaluate_run(tmp_path, "absent", "absent") == {"status": "failed"}
