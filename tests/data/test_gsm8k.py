import json
from pathlib import Path

import pandas as pd
import pytest

from refblend.data.gsm8k import DATA_SOURCE, extract_answer, load_datasets, load_file
from refblend.data.schema import read_rows, write_rows
from refblend.errors import DataError

# Written for this test in GSM8K's format: calculator annotations, thousands separators.
RECORDS = [
    {
        "question": "Nora packs 3 boxes of 12 pears. How many pears does she pack?",
        "answer": "She packs 3*12=<<3*12=36>>36 pears.\n#### 36",
    },
    {
        "question": "A hall has 40 rows of 30 seats. How many seats are there?",
        "answer": "There are 40*30=<<40*30=1200>>1,200 seats.\n#### 1,200",
    },
    {
        "question": "It is 4 degrees and falls by 9. How cold is it then?",
        "answer": "4-9=<<4-9=-5>>-5\n#### -5",
    },
]


def write(path: Path, records: list[dict[str, str]]) -> Path:
    if path.suffix == ".parquet":
        pd.DataFrame(records).to_parquet(path)
    else:
        path.write_text("\n".join(json.dumps(record) for record in records))
    return path


@pytest.mark.parametrize("name", ["gsm8k.parquet", "gsm8k.jsonl"])
def test_local_file_to_verl_rows(tmp_path: Path, name: str) -> None:
    rows = load_file(write(tmp_path / name, RECORDS), "train")
    assert [row.ground_truth for row in rows] == ["36", "1200", "-5"]
    assert {row.data_source for row in rows} == {DATA_SOURCE}
    assert rows[0].messages[0]["content"].startswith(RECORDS[0]["question"])
    assert '"####"' in rows[0].messages[0]["content"]
    assert rows[0].solution == RECORDS[0]["answer"]
    out = tmp_path / "out.parquet"
    write_rows(out, rows)
    assert read_rows(out) == rows


def test_through_datasets_from_a_local_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "gsm8k"
    folder.mkdir()
    write(folder / "train.jsonl", RECORDS)
    rows = load_datasets("train", str(folder))
    assert [row.ground_truth for row in rows] == ["36", "1200", "-5"]


def test_datasets_cannot_provide(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="datasets cannot load split train"):
        load_datasets("train", str(tmp_path / "empty"))


def test_missing_column_and_missing_answer(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [{"question": "q"}])
    with pytest.raises(DataError, match="row 0 has no text in column answer"):
        load_file(path, "train")
    path = write(tmp_path / "b.jsonl", [RECORDS[0], {"question": "q", "answer": "36"}])
    with pytest.raises(DataError, match="row 1 column answer has no final #### number"):
        load_file(path, "train")
    with pytest.raises(DataError, match="does not exist"):
        load_file(tmp_path / "none.parquet", "train")


@pytest.mark.parametrize(
    ("solution", "answer"),
    [
        ("#### 7", "7"),
        ("x\n####7 ", "7"),
        ("#### 1,234.50", "1234.50"),
        ("7", None),
        ("#### ,", None),
    ],
)
def test_extract_answer(solution: str, answer: str | None) -> None:
    assert extract_answer(solution) == answer
