"""A pretrained model from a GGUF file: what is refused. The real one is in tests/real."""

from pathlib import Path

import pytest

from refblend.embedded import pretrained
from refblend.errors import ModelError
from refblend.files import sha256_file


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="make pretrained"):
        pretrained.convert_gguf(tmp_path / "no.gguf", tmp_path / "out")


def test_another_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "other.gguf"
    path.write_bytes(b"GGUF or not")
    with pytest.raises(ModelError, match=f"has the SHA-256 {sha256_file(path)}"):
        pretrained.convert_gguf(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_packages_that_read_it_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "mine.gguf"
    path.write_bytes(b"GGUF")
    monkeypatch.setattr(pretrained, "NEEDED", ("no-such-package-here",))
    with pytest.raises(ModelError, match="needs the package no-such-package-here"):
        pretrained.convert_gguf(path, tmp_path / "out", sha256_file(path))
