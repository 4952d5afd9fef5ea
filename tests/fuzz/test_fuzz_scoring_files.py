"""Judge templates with their examples, embedded recipes, responses to score and corpora."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from fuzz_support import attempt, folder, yaml_file
from fuzz_trees import YAML_ONLY, mutated, mutated_text
from hypothesis import given
from hypothesis import strategies as st

from refblend.scoring.measure.corpus import read_corpus
from refblend.scoring.parsing import parse_score
from refblend.scoring.templates import SHIPPED, load_templates

TEMPLATES = SHIPPED["embedded"].read_text(encoding="utf-8")
TREE = yaml.safe_load(TEMPLATES)
SNIPPETS = (
    *("!!int ''", "!!float x", "!!python/name:os.system", "1: 2", "null: 3", "x: 1", "header: b"),
    *('"\\ud800"', "\x00", "{response}", "[[{response}]]", "[[{question}]]", r"'\box{x}'"),
    *("score: .nan", "score: 2", "score: -1", "score: on", "verdict: '9=9:99+\\box{1.00}'", "==="),
    *("[" * 400, "&x {a: *x}", "2020-99-99", "- question: a", "separator: '= ='", "examples: []"),
)
RESPONSES: list[dict[str, Any]] = [
    {"question": "What is 1+1?", "response": "1+1=2 #### 2", "label": 1, "id": 5},
    {"question": "What is 1+1?", "response": "It is 3.\u2028#### 3", "label": 0, "id": 5},
]
CORPUS = [
    row | {"difficulty": 1, "length": "plain", "target": 0.5, "worked": True} for row in RESPONSES
]
PAIRS = [
    {"question": "q", "response": "1+1=2 #### 2", "label": 0.95, "right": True, "steps": [1, 1]},
    {"question": "q", "response": "#### 3", "label": 0.05, "right": False, "steps": []},
]


def check_templates(templates: Any, tree: dict[str, Any]) -> None:
    """The texts are those of the file, and every example reads as its score."""
    for key, value in tree.items():
        if key == "examples":
            written = [example | {"score": float(example["score"])} for example in value]
            assert [e.model_dump() for e in templates.examples] == written
        else:
            assert getattr(templates, key) == value
    for example in templates.examples:
        parsed = parse_score(example.verdict)
        assert parsed.valid
        assert parsed.score == pytest.approx(example.score)
    for form in ("full", "compact"):
        assert all(isinstance(part, str) for part in templates.frame(form))


@given(mutated(TREE, YAML_ONLY) | mutated_text(TEMPLATES, SNIPPETS))
def test_templates(content: Any) -> None:
    with folder() as path:
        file = yaml_file(path, content)
        accepted, templates = attempt(lambda: load_templates(file), "hostile.yaml")
        if accepted:
            check_templates(templates, yaml.safe_load(file.read_bytes()))


def write(path: Path, records: list[Any]) -> list[Any]:
    """Write jsonl or parquet by the suffix; returns what the file holds then."""
    if path.suffix == ".parquet":
        try:
            table = pa.Table.from_pylist(records)
            pq.write_table(table, path)
            return table.to_pylist()
        except (pa.ArrowException, ValueError, TypeError, AttributeError, OverflowError):
            path.write_bytes(b"PAR1")
    else:
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return records


SUFFIXES = st.sampled_from(("jsonl", "jsonl", "parquet"))


@given(mutated(CORPUS) | mutated(PAIRS), SUFFIXES)
def test_corpus(records: list[Any], suffix: str) -> None:
    with folder() as path:
        file = path / f"hostile.{suffix}"
        records = write(file, records)
        accepted, frame = attempt(lambda: read_corpus(file), file.name, where=path)
        if not accepted:
            return
        check_corpus_frame(frame, records)


def check_corpus_frame(frame: pd.DataFrame, records: list[Any]) -> None:
    """Every row is the record; the columns that measuring uses can be used."""
    keys = {key for row in records for key in row}
    pairs = {"right", "steps", "label"} <= keys
    for row, source in zip(frame.to_dict("records"), records, strict=True):
        assert row["question"] == source["question"]
        assert row["response"] == source["response"]
        assert row["label"] == int(source["right" if pairs else "label"])
        if pairs:
            assert row["target"] == source["label"]
            assert row["difficulty"] == len(source["steps"])
    frame["label"].to_numpy(float)
    assert frame["worked"].dtype == bool
    frame[frame["worked"]]
    for column in {"difficulty", "length"} & set(frame.columns):
        frame[column].value_counts()
        list(frame.groupby(column, sort=True, observed=True))
    if "target" in frame:
        assert frame["target"].to_numpy(float).max() <= 1
