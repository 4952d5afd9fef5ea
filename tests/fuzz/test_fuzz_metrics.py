"""metrics.jsonl: torn and foreign lines, wrong types, steps out of order."""

import json
import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from fuzz_support import attempt, folder
from fuzz_trees import mutated, mutated_bytes
from hypothesis import given
from hypothesis import strategies as st

from refblend.errors import DataError
from refblend.trainer.tracking import MetricsLog, read_metrics

RECORDS = [
    {"step": step, "actor/entropy": 1.5 - step / 10, "incidents/oom": 0, "critic/x": None}
    for step in range(4)
]
PIECES = (
    *(b"\n", b"\r", b"\r\n", b"\xff", b"\x00", b"NaN", b"null\n", b"[]\n", b"{}\n", b"[" * 2000),
    *(b'{"step": 9}\n', b'{"step": 1}\n', b'{"step": "9"}\n', b'{"step": 1e400}\n', b"9" * 5000),
)


def written(records: list[Any]) -> bytes:
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def check_frame(frame: pd.DataFrame, records: list[dict[str, Any]]) -> None:
    assert list(frame["step"]) == [record["step"] for record in records]
    names = {name for record in records for name in record} - {"step"}
    assert set(frame.columns) == names | {"step"}
    for name in names:
        for read, record in zip(frame[name], records, strict=True):
            value = record.get(name)
            assert math.isnan(read) if value is None else read == float(value)


@given(mutated(RECORDS).map(written) | mutated_bytes(written(RECORDS), PIECES))
def test_reader_and_log_agree(content: bytes) -> None:
    """On what the file holds; the log only drops a torn end, and appends after it."""
    with folder() as path:
        file = path / "metrics.jsonl"
        file.write_bytes(content)
        accepted, frame = attempt(lambda: read_metrics(file), "metrics.jsonl", where=path)
        assert file.read_bytes() == content, "reading changes nothing"
        opened, log = attempt(lambda: MetricsLog(file), "metrics.jsonl", where=path)
        assert opened == accepted
        if log is None or frame is None:
            assert file.read_bytes() == content, "a refused file is left as it is"
            return
        records = [json.loads(line) for line in content.split(b"\n")[:-1]]
        check_frame(frame, records)
        assert file.read_bytes() == content[: content.rfind(b"\n") + 1]
        last = records[-1]["step"] if records else None
        assert log.last_step == last
        if last is None or last < 2**62:
            records.append({"step": 0 if last is None else last + 1, "actor/entropy": 0.25})
            log.append(records[-1]["step"], {"actor/entropy": 0.25})
            check_frame(read_metrics(file), records)
        middle = records[len(records) // 2]["step"]
        log.truncate_after(middle)
        check_frame(read_metrics(file), [r for r in records if r["step"] <= middle])


NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=12).filter(lambda n: n != "step")


@given(
    st.dictionaries(NAMES, st.floats() | st.integers(-(2**70), 2**70) | st.booleans(), max_size=5)
)
def test_whatever_is_logged_is_read_back(metrics: dict[str, float]) -> None:
    with folder() as path:
        log = MetricsLog(path / "metrics.jsonl")
        lost = log.append(1, metrics)
        assert lost == sorted(name for name, value in metrics.items() if not math.isfinite(value))
        values = {n: float(v) if math.isfinite(v) else None for n, v in metrics.items()}
        check_frame(read_metrics(log.path), [{"step": 1} | values])
        assert MetricsLog(log.path).last_step == 1


BAD_LINES = (
    *('{"step": Infinity}', '{"step": "2"}', '{"step": 2.5}', '{"step": true}', '{"step": 1}'),
    *('{"step": 0}', '{"step": 2, "a": "x"}', '{"step": 2, "a": "1.5"}', '{"step": 2, "a": [1]}'),
    *('{"step": 2, "a": NaN}', '{"step": 2, "a": true}', '{"step": 1' + "0" * 20 + "}", "["),
    *('{"step": 2, "a": 1' + "0" * 400 + "}", '{"step": 2, "a"\r: 1', "", "null", "[" * 10**5),
)


@pytest.mark.parametrize("line", BAD_LINES)
def test_refused_line(tmp_path: Path, line: str) -> None:
    file = tmp_path / "metrics.jsonl"
    content = f'{{"step": 1, "a": 1.0}}\n{line}\n{{"step": 3}}\n'.encode()
    file.write_bytes(content)
    for action in (read_metrics, MetricsLog):
        with pytest.raises(DataError, match=r"metrics\.jsonl, line 2 is not a metrics record"):
            action(file)
    assert file.read_bytes() == content
