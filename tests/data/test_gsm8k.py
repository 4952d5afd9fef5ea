import json
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from refblend.cli.data import app
from refblend.data.gsm8k import load_split
from refblend.data.schema import PromptRow, read_rows, write_rows
from refblend.data.splits import SPLITS, hold_out
from refblend.errors import DataError

# Written for this test in GSM8K's format: calculator annotations, thousands separators.
ROWS = Path(__file__).with_name("gsm8k.jsonl")
RECORDS = [json.loads(line) for line in ROWS.read_text(encoding="utf-8").splitlines()]


def write(path: Path, records: list[dict[str, str]]) -> Path:
    if path.suffix == ".parquet":
        pd.DataFrame(records).to_parquet(path)
    else:
        path.write_text("\n".join(json.dumps(record) for record in records))
    return path


@pytest.mark.parametrize("name", ["train.parquet", "train.jsonl"])
def test_local_file_to_verl_rows(tmp_path: Path, name: str) -> None:
    write(tmp_path / name, RECORDS)
    rows = load_split(tmp_path, "train")
    assert [row.ground_truth for row in rows] == ["36", "1200", "-5"]
    assert {row.data_source for row in rows} == {"openai/gsm8k"}
    assert rows[0].messages[0]["content"].startswith(RECORDS[0]["question"])
    assert '"####"' in rows[0].messages[0]["content"]
    assert rows[0].solution == RECORDS[0]["answer"]
    assert [row.extra["n_steps"] for row in rows] == [1, 1, 2]
    out = tmp_path / "out.parquet"
    write_rows(out, rows)
    assert read_rows(out) == rows


def test_the_command_writes_four_disjoint_files(tmp_path: Path) -> None:
    made = [
        {"question": f"What is {a} + {b}?", "answer": f"{a}+{b}={a + b}\n#### {a + b}"}
        for a in range(6)
        for b in range(6)
    ]
    write(tmp_path / "train.jsonl", made + RECORDS)
    write(tmp_path / "test.parquet", RECORDS)
    sizes = ["--validation", "8", "--sanity", "4"]
    call = ["gsm8k", "--source", str(tmp_path), "--out", str(tmp_path / "gpu"), *sizes]
    for seed in ("1", "2", "2"):  # files of an earlier call are replaced
        assert CliRunner().invoke(app, [*call, "--seed", seed]).exit_code == 0
    splits = {name: read_rows(tmp_path / "gpu" / f"{name}.parquet") for name in SPLITS}
    assert [len(rows) for rows in splits.values()] == [24, 8, 3, 4]
    mine = tmp_path / "gpu" / "validation.parquet"
    pq.write_table(pq.read_table(mine).append_column("note", [["mine"] * 8]), mine)
    assert CliRunner().invoke(app, [*call, "--seed", "2"]).exit_code == 0
    assert "note" in pd.read_parquet(mine), "a changed file is left alone"
    assert len({row.question for rows in splits.values() for row in rows}) == 39
    assert splits["test"] == load_split(tmp_path, "test")
    refused = CliRunner().invoke(app, [*call, "--seed", "1"])
    assert "validation.parquet holds other rows" in str(refused.exception)
    assert read_rows(tmp_path / "gpu" / "train.parquet") == splits["train"]


def test_a_source_without_a_split(tmp_path: Path) -> None:
    write(tmp_path / "train.jsonl", RECORDS)
    assert len(load_split(str(tmp_path), "train")) == 3
    with pytest.raises(DataError, match=r"neither test\.jsonl nor test\.parquet"):
        load_split(str(tmp_path), "test")


def test_missing_column_and_missing_answer(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", [{"question": "q"}])
    with pytest.raises(DataError, match="row 0 has no text in column answer"):
        load_split(tmp_path, "a")
    write(tmp_path / "b.jsonl", [RECORDS[0], {"question": "q", "answer": "36"}])
    with pytest.raises(DataError, match="row 1 column answer has no final #### number"):
        load_split(tmp_path, "b")


def numbered(index: int, question: str) -> PromptRow:
    return PromptRow(index, "s", [{"role": "user", "content": question}], question, "1", "")


TRAIN = [numbered(i, f"train {i % 90}") for i in range(100)] + [numbered(100, "test 3")]
TEST = [numbered(i, f"test {i}") for i in range(20)]


def test_splits_are_disjoint_and_lose_only_what_is_repeated() -> None:
    splits = hold_out(TRAIN, TEST, 10, 5, seed=1)
    assert [len(splits[name]) for name in SPLITS] == [75, 10, 20, 5]
    questions = [r.question for rows in splits.values() for r in rows]
    assert len(questions) == len(set(questions)) == 110
    assert splits["test"] == TEST


def test_the_draw_depends_on_the_seed_only() -> None:
    first = hold_out(TRAIN, TEST, 10, 5, seed=1)
    assert hold_out(TRAIN, TEST, 10, 9, seed=1)["validation"] == first["validation"]
    assert hold_out(TRAIN, TEST, 10, 5, seed=2)["validation"] != first["validation"]
    assert first["validation"] != TRAIN[:10]


def test_something_must_be_left_to_train_on() -> None:
    with pytest.raises(DataError, match="leave nothing of 90 train rows"):
        hold_out(TRAIN, TEST, 80, 10, seed=1)
