import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from refblend.config.loading import read_yaml
from refblend.data.schema import PromptRow, read_rows, write_rows
from refblend.errors import DataError
from refblend.rewards.rule import RuleReward


def record(**changes: Any) -> dict[str, Any]:
    return {
        "data_source": "mine",
        "prompt": [{"role": "user", "content": "1+1?"}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": "2"},
        "extra_info": {"index": 4, "split": "train", "question": "1+1?", "answer": "#### 2"},
    } | changes


def row(index: int = 0) -> PromptRow:
    return PromptRow(
        index, "mine", [{"role": "user", "content": "1+1?"}], "1+1?", "2", "#### 2", {"n_steps": 1}
    )


def test_rows_come_back_as_written(tmp_path: Path) -> None:
    rows = [row(0), row(1)]
    path = tmp_path / "rows.parquet"
    write_rows(path, rows)
    assert read_rows(path) == rows


def test_an_index_that_is_a_text_is_kept_beside_the_position(tmp_path: Path) -> None:
    """As in DAPO-Math-17k; a reward function gets it as verl passes it."""
    path = tmp_path / "rows.jsonl"
    named = record(extra_info={"index": "9a9b6eb4", "split": "train"})
    path.write_text(f"{json.dumps(named)}\n{json.dumps(named)}\n")
    rows = read_rows(path)
    assert [row.index for row in rows] == [0, 1]
    assert [row.extra_info["index"] for row in rows] == ["9a9b6eb4"] * 2


def test_columns_are_those_of_verl(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    write_rows(path, [row()])
    table = pd.read_parquet(path)
    assert set(table.columns) == {"data_source", "prompt", "ability", "reward_model", "extra_info"}
    assert table["prompt"][0][0] == {"role": "user", "content": "1+1?"}
    assert table["reward_model"][0] == {"style": "rule", "ground_truth": "2"}
    assert table["extra_info"][0]["answer"] == "#### 2"


def test_minimal_file_without_extra_info(tmp_path: Path) -> None:
    short = record()
    del short["extra_info"], short["ability"]
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(short) + "\n\n" + json.dumps(short) + "\n")
    rows = read_rows(path)
    assert [(r.index, r.question, r.solution) for r in rows] == [(0, "1+1?", ""), (1, "1+1?", "")]


@pytest.mark.parametrize(
    ("truth", "text"),
    [
        (72, "72"),
        (72.0, "72"),
        (-100.0, "-100"),
        (0.5, "0.5"),
        (0.00001, "0.00001"),
        (1e16, "10000000000000000"),
        (10**30, "1" + "0" * 30),
        (10**400, "1" + "0" * 400),
        (1234567.25, "1234567.25"),
        (5e-324, "0." + "0" * 323 + "5"),
    ],
)
@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_a_numeric_ground_truth_keeps_its_value(tmp_path, truth, text, suffix) -> None:
    path = tmp_path / f"rows.{suffix}"
    rows = [record(reward_model={"ground_truth": truth})]
    if suffix == "jsonl":
        path.write_text(json.dumps(rows[0]))
    elif isinstance(truth, int) and truth >= 2**63:
        pytest.skip("beyond 64 bits")
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)
    (read,) = read_rows(path)
    assert read.ground_truth == text
    assert RuleReward("strict")("openai/gsm8k", f"#### {truth}", read.ground_truth).score == 1.0


BAD_RECORDS = [
    ({"data_source": None}, "row 1 column data_source is null"),
    ({"prompt": []}, "row 1 column prompt is not a non-empty list"),
    ({"prompt": [{"role": "boss", "content": "x"}]}, r"prompt\[0\].role is 'boss'"),
    ({"reward_model": "2"}, "row 1 column reward_model is not an object"),
    ({"reward_model": {"ground_truth": True}}, "ground_truth is bool, not a string"),
    ({"extra_info": [1]}, "extra_info is not an object"),
    ({"extra_info": {"index": [1]}}, "extra_info.index is list, not an integer or a text"),
    (
        {"prompt": [*record()["prompt"], {"role": "assistant", "content": "2"}]},
        "prompt ends with the message of an assistant",
    ),
]


@pytest.mark.parametrize(("changes", "message"), BAD_RECORDS)
def test_bad_row_is_named(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(record()) + "\n" + json.dumps(record(**changes)))
    with pytest.raises(DataError, match=message) as caught:
        read_rows(path)
    assert str(path) in str(caught.value)
    assert caught.value.remedy


def test_empty_files(tmp_path: Path) -> None:
    jsonl, parquet = tmp_path / "rows.jsonl", tmp_path / "rows.parquet"
    jsonl.write_text("\n")
    pq.write_table(pa.Table.from_pylist([record()]).slice(0, 0), parquet)
    for path in (jsonl, parquet):
        with pytest.raises(DataError, match="has no rows"):
            read_rows(path)
    with pytest.raises(DataError, match="no rows to write"):
        write_rows(parquet, [])


def test_files_with_a_byte_order_mark_and_windows_lines_are_read(tmp_path: Path) -> None:
    marked, config = tmp_path / "marked.jsonl", tmp_path / "config.yaml"
    line = b"\xef\xbb\xbf" + json.dumps(record()).encode() + b"\r\n"
    marked.write_bytes(line * 2)  # two files with a mark each, joined
    assert [row.question for row in read_rows(marked)] == ["1+1?"] * 2
    config.write_bytes(b"\xef\xbb\xbftrainer:\r\n  seed: 3\r\n")
    assert read_yaml(config) == {"trainer": {"seed": 3}}
