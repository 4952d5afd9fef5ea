import json
from pathlib import Path

import pytest

from refblend.data.solved import MATH
from refblend.errors import DataError
from refblend.rewards.math import compute_score

# Written for this test in the format of Hendrycks et al.
ROWS = Path(__file__).with_name("math.jsonl")
RECORDS = [json.loads(line) for line in ROWS.read_text(encoding="utf-8").splitlines()]


def check(folder: Path) -> None:
    rows = MATH.load_split(folder, "train")
    assert sorted(row.ground_truth for row in rows) == ["(4, \\infty)", "12", "\\frac{1}{2}"]
    for row in rows:
        assert row.data_source == MATH.data_source
        assert row.messages[0]["content"].startswith(row.question)
        assert r"\boxed{}" in row.messages[0]["content"]
        assert compute_score(row.solution, row.ground_truth, "flexible") == 1
    half = next(row for row in rows if "frac" in row.question)
    assert half.extra == {"split": "train", "level": "Level 1", "subject": "Prealgebra"}


def test_one_file_per_problem(tmp_path: Path) -> None:
    for number, record in enumerate(RECORDS):
        path = tmp_path / "train" / str(record["type"]).lower() / f"{number}.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(record))
    check(tmp_path)


def test_one_line_per_problem(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, RECORDS)))
    check(tmp_path)


def test_mistakes_name_the_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"neither train\.jsonl nor train\.parquet nor JSON files"):
        MATH.load_split(tmp_path, "train")
    path = tmp_path / "train" / "algebra" / "1.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(RECORDS[0] | {"solution": "one half"}))
    with pytest.raises(
        DataError, match=r"algebra/1\.json column solution has no final \\boxed answer"
    ):
        MATH.load_split(tmp_path, "train")
    path.write_text("{")
    with pytest.raises(DataError, match=r"1\.json cannot be read"):
        MATH.load_split(tmp_path, "train")
    (tmp_path / "test.jsonl").write_text(json.dumps({"question": "?"}))
    with pytest.raises(DataError, match=r"test\.jsonl row 0 has no text in column problem"):
        MATH.load_split(tmp_path, "test")
