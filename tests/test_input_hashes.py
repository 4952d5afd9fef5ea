"""Hashes of the files that a run reads."""

from pathlib import Path

import pytest

from refblend.errors import DataError, ModelError
from refblend.files import sha256_file
from refblend.provenance import hash_inputs


def test_inputs_are_hashed_by_path(tmp_path: Path) -> None:
    data, model = tmp_path / "train.parquet", tmp_path / "model"
    data.write_bytes(b"rows")
    model.mkdir()
    (model / "config.json").write_text("{}")
    hashes = hash_inputs([data], [model])
    assert hashes.data == {str(data): sha256_file(data)}
    before = hashes.models[str(model)]
    (model / "config.json").write_text("{ }")
    assert hash_inputs([data], [model]).models[str(model)] != before


def test_missing_inputs_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no\.parquet"):
        hash_inputs([tmp_path / "no.parquet"], [])
    with pytest.raises(ModelError, match="no_model"):
        hash_inputs([], [tmp_path / "no_model"])
