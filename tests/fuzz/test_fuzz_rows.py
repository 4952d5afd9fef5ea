"""Training rows as jsonl and parquet, and GSM8K files."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fuzz_support import attempt, folder, lines_of
from fuzz_trees import mutated, mutated_bytes
from hypothesis import given
from hypothesis import strategies as st

from refblend.data.schema import PromptRow, read_rows
from refblend.errors import DataError


def record(number: int) -> dict[str, Any]:
    return {
        "data_source": "refblend/arithmetic",
        "prompt": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": f"What is {number} + 1?\u2028Now."},
        ],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": str(number + 1)},
        "extra_info": {
            "index": number,
            "split": "train",
            "question": f"What is {number} + 1?",
            "answer": f"{number}+1={number + 1}. #### {number + 1}",
            "n_steps": 1,
        },
    }


RECORDS = [record(number) for number in (7, 7, 41)]
JSON_PIECES = (
    *(b'"\\ud800"', b"NaN", b"[" * 2000, b"9" * 5000, b"\xff", b"\xed\xa0\x80", b"\x00", b"\r"),
    *(b"\n", b"\xe2\x80\xa8", b"\xef\xbb\xbf", b"{}\n", b"null\n", b"[]\n", b'"index": 1'),
)


def expected(number: int, written: dict[str, Any]) -> PromptRow:
    """The row that a record means, worked out from the documented schema alone."""
    extra = written.get("extra_info") or {}
    messages = [{"role": m["role"], "content": m["content"]} for m in written["prompt"]]
    index = extra.get("index")
    return PromptRow(
        index=number if index is None or isinstance(index, str) else index,
        data_source=written["data_source"],
        messages=messages,
        question=extra.get("question") or messages[-1]["content"],
        ground_truth=str(written["reward_model"]["ground_truth"]),
        solution=extra.get("answer") or "",
        extra={
            k: v
            for k, v in extra.items()
            if k not in ("question", "answer") and (k != "index" or isinstance(v, str))
        },
    )


def check_rows(rows: list[PromptRow], written: list[dict[str, Any]]) -> None:
    """All rows are the records, in their order, duplicates included."""
    assert len(rows) == len(written)
    for number, (row, source) in enumerate(zip(rows, written, strict=True)):
        wanted = expected(number, source)
        assert repr(row) == repr(wanted)  # repr: NaN in extra_info equals itself
        assert type(row.index) is int
        assert not isinstance(source["reward_model"]["ground_truth"], bool)
        assert row.ground_truth not in ("nan", "inf", "-inf") or isinstance(
            source["reward_model"]["ground_truth"], str
        )


def dumped(records: list[Any], ascii_only: bool) -> bytes:
    lines = [json.dumps(item, ensure_ascii=ascii_only) for item in records]
    return ("\n".join(lines) + "\n").encode("utf-8", "surrogatepass")


@given(
    st.builds(dumped, mutated(RECORDS), st.booleans())
    | mutated_bytes(dumped(RECORDS, False), JSON_PIECES)
)
def test_jsonl(content: bytes) -> None:
    with folder() as path:
        file = path / "hostile.jsonl"
        file.write_bytes(content)
        accepted, rows = attempt(lambda: read_rows(file), "hostile.jsonl", where=path)
        if accepted:
            check_rows(rows, [json.loads(line) for line in lines_of(content)])


@given(mutated(RECORDS, most=2))
def test_parquet(records: list[Any]) -> None:
    with folder() as path:
        file = path / "hostile.parquet"
        try:
            table = pa.Table.from_pylist(records)
            pq.write_table(table, file)
        except (pa.ArrowException, ValueError, TypeError, AttributeError, OverflowError):
            file.write_bytes(b"PAR1")  # what no file can hold needs no reader
        else:
            records = table.to_pylist()  # with the nulls of the columns that a row lacks
        accepted, rows = attempt(lambda: read_rows(file), "hostile.parquet", where=path)
        if accepted:
            check_rows(rows, records)


def parquet_bytes(checksums: bool) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(RECORDS), sink, write_page_checksum=checksums)
    return sink.getvalue().to_pybytes()


PARQUET = {checksums: parquet_bytes(checksums) for checksums in (False, True)}


@given(st.data())
def test_parquet_bytes(data: st.DataObject) -> None:
    """A damaged file is refused or gives rows of the right types; the checksums guard pages."""
    checksums = data.draw(st.booleans())
    content = data.draw(mutated_bytes(PARQUET[checksums]))
    with folder() as path:
        file = path / "hostile.parquet"
        file.write_bytes(content)
        _, rows = attempt(lambda: read_rows(file), "hostile.parquet", where=path)
        for row in rows or []:
            assert type(row.index) is int
            texts = [row.data_source, row.question, row.ground_truth, row.solution]
            texts += [text for message in row.messages for text in message.values()]
            assert all(type(text) is str for text in texts)
            "".join(texts).encode()


LONG = "x" * 10_000_000


@pytest.mark.parametrize("line", ["[" * 100_000, '{"x": ' + "9" * 5000 + "}", '"' + LONG])
def test_refused_line(tmp_path: Path, line: str) -> None:
    file = tmp_path / "hostile.jsonl"
    file.write_text(json.dumps(RECORDS[0]) + "\n" + line + "\n")
    with pytest.raises(DataError, match=r"hostile\.jsonl line 2 is not JSON") as caught:
        read_rows(file)
    assert len(str(caught.value)) < 500


def test_a_column_twice(tmp_path: Path) -> None:
    file = tmp_path / "twice.parquet"
    columns = [pa.array(["a"]), pa.array(["b"])]
    pq.write_table(pa.Table.from_arrays(columns, names=["data_source", "data_source"]), file)
    with pytest.raises(DataError, match=r"twice\.parquet has the column 'data_source' more than"):
        read_rows(file)
