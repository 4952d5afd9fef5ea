import json
from pathlib import Path

import numpy as np
import pytest
import torch

from refblend.errors import DataError
from refblend.trainer.tracking import MetricsLog, encode_line, read_metrics


@pytest.fixture
def log(tmp_path: Path) -> MetricsLog:
    log = MetricsLog(tmp_path / "run" / "metrics.jsonl")
    for step in range(4):
        log.append(step, {"b": step / 3, "a": step, "timing_s/step": 0.5})
    return log


def test_line_form():
    line = encode_line(3, {"z": 0.1, "a": np.float32(0.5), "n": np.int64(7), "ok": True})
    assert line == '{"step": 3, "a": 0.5, "n": 7, "ok": 1, "z": 0.1}'
    assert encode_line(1, {"t": torch.tensor(0.5)}) == '{"step": 1, "t": 0.5}'
    value = 0.1 + 0.2
    assert json.loads(encode_line(0, {"x": value}))["x"] == value


def test_step_is_reserved():
    with pytest.raises(ValueError, match="reserved"):
        encode_line(1, {"step": 2})


def test_a_line_that_was_not_written_is_completed_from_the_checkpoint(log):
    before = log.path.read_bytes()
    line = encode_line(4, {"a": 4})
    log.complete(3, encode_line(3, {"a": 99}))  # it is there
    log.complete(6, encode_line(6, {}))  # the checkpoint of another run: a gap would remain
    assert log.path.read_bytes() == before
    log.complete(4, line)
    assert log.path.read_bytes() == before + line.encode() + b"\n"
    assert log.last_step == 4
    fresh = MetricsLog(log.path.with_name("fresh.jsonl"))
    fresh.complete(1, encode_line(1, {}))
    assert fresh.last_step == 1


def test_steps_must_increase(log):
    with pytest.raises(ValueError, match="step 3 after step 3"):
        log.append(3, {})
    assert MetricsLog(log.path).last_step == 3


def test_missing_file(tmp_path):
    with pytest.raises(DataError, match="cannot be read"):
        read_metrics(tmp_path / "metrics.jsonl")


def test_truncate_after_keeps_bytes(log):
    lines = log.path.read_bytes().splitlines(keepends=True)
    assert log.truncate_after(1) == 1
    assert log.path.read_bytes() == b"".join(lines[:2])
    log.append(2, {"a": 1.0})
    assert read_metrics(log.path)["step"].tolist() == [0, 1, 2]
    assert log.truncate_after(-1) is None
    assert log.path.read_bytes() == b""
    log.append(0, {})
