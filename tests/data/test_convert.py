"""Questions and answers become prompt rows; files from Windows are read."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from refblend.cli.main import app
from refblend.config.loading import read_yaml
from refblend.data.convert import convert
from refblend.data.schema import read_rows, write_rows
from refblend.errors import DataError


def written(path: Path, *records: object) -> Path:
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return path


def test_a_file_of_questions_becomes_a_prompt_file(tmp_path: Path) -> None:
    file = written(
        tmp_path / "questions.jsonl",
        {"question": "3 + 4?", "answer": "3 + 4 = 7\n#### 7"},
        {"question": "1,000 + 1?", "answer": 1001},
    )
    out = tmp_path / "train.parquet"
    done = CliRunner().invoke(app, ["data", "convert", str(file), "--out", str(out)])
    assert done.exit_code == 0, done.output
    first, second = read_rows(out)
    assert (first.ground_truth, first.solution) == ("7", "3 + 4 = 7\n#### 7")
    assert (second.ground_truth, second.solution) == ("1001", "")
    assert first.question == "3 + 4?"
    assert first.messages[0]["content"].startswith("3 + 4? Let's think")


def test_columns_of_other_names(tmp_path: Path) -> None:
    file = written(tmp_path / "q.jsonl", {"q": "Capital?", "a": "Rome", "why": "It is."})
    (row,) = convert(file, ("q", "a", "why"), "mine", "")
    assert (row.data_source, row.messages[0]["content"]) == ("mine", "Capital?")
    assert (row.ground_truth, row.solution) == ("Rome", "It is.")
    with pytest.raises(DataError, match=r"lacks the column\(s\) question, answer \(it has: a, q"):
        convert(file)


@pytest.mark.parametrize("answer", [None, " ", 1.5, ["7"], True])
def test_an_answer_that_is_no_text_is_named(tmp_path: Path, answer: object) -> None:
    file = written(
        tmp_path / "q.jsonl",
        {"question": "1?", "answer": "1"},
        {"question": "2?", "answer": answer},
    )
    with pytest.raises(DataError, match="row 1 column answer"):
        convert(file)


def test_files_with_a_byte_order_mark_and_windows_lines_are_read(tmp_path: Path) -> None:
    plain, marked = tmp_path / "plain.jsonl", tmp_path / "marked.jsonl"
    write_rows(plain, convert(written(plain, {"question": "1?", "answer": "1"})))
    line = plain.read_bytes().strip()
    # Two files with a mark each, joined.
    marked.write_bytes(b"\xef\xbb\xbf" + line + b"\r\n\xef\xbb\xbf" + line + b"\r\n")
    (row,) = read_rows(plain)
    assert [each.question for each in read_rows(marked)] == [row.question] * 2
    config = tmp_path / "config.yaml"
    config.write_bytes(b"\xef\xbb\xbftrainer:\r\n  seed: 3\r\n")
    assert read_yaml(config) == {"trainer": {"seed": 3}}
