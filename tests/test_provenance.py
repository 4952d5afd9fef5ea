import hashlib
import json
import subprocess
from pathlib import Path

import pytest

from refblend.errors import DataError, ModelError
from refblend.files import sha256_tree, write_json
from refblend.identity import InputHashes
from refblend.provenance import Source, collect_provenance, finish, hash_inputs

INPUTS = InputHashes({"train.parquet": "1" * 64}, {"model": "2" * 64})


def test_collect_and_finish() -> None:
    record = collect_provenance(INPUTS)
    assert (record["data"], record["models"]) == (INPUTS.data, INPUTS.models)
    assert record["versions"]["python"].startswith("3.11")
    assert {"numpy", "ray", "refblend"} <= set(record["versions"])
    assert min(record["hardware"]["cores"], record["hardware"]["memory_gib"]) > 0
    assert record["sessions"][0]["start"].endswith("+00:00")
    energy = {"kwh": 0.5, "kg_co2e": 0.1, "method": "codecarbon"}
    done = finish(record, 12.34567, energy)
    assert done["totals"] == {
        "wall_time_s": 12.346,
        "energy_kwh_estimated": 0.5,
        "kg_co2e_estimated": 0.1,
        "energy_method": "codecarbon",
        "killed_sessions": 0,
    }
    assert record["sessions"][0]["end"] is None  # the input is not changed
    json.dumps(done, allow_nan=False)


def test_sessions_add_up_over_resumes() -> None:
    energy = {"kwh": 1.0, "kg_co2e": 2.0, "method": "m"}
    killed = collect_provenance(INPUTS)
    second = finish(collect_provenance(INPUTS, previous=killed), 10, energy)
    third = finish(collect_provenance(INPUTS, previous=second), 5, energy)
    assert len(third["sessions"]) == 3
    assert third["totals"]["wall_time_s"] == 15
    assert third["totals"]["energy_kwh_estimated"] == 2.0
    assert third["totals"]["killed_sessions"] == 1
    assert finish(killed, 1.0)["totals"]["energy_kwh_estimated"] is None


def commit(folder: Path) -> None:
    """Commit everything in a folder; the first time makes the repository."""
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "x"]):
        subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True)


def test_the_source_is_a_tree_of_git_and_what_is_not_committed(tmp_path, monkeypatch) -> None:
    package = tmp_path / "src"
    package.mkdir()
    assert Source.of(package) == Source(None, hashlib.sha256().hexdigest(), None)
    (package / "a.py").write_text("1")
    commit(tmp_path)
    first = Source.of(package)
    (tmp_path / "README").write_text("outside of the package")
    commit(tmp_path)
    second = Source.of(package)
    assert (first.tree, first.changes) == (second.tree, None)
    assert first.commit != second.commit
    (package / "a.py").write_text("2")
    edited = Source.of(package)
    (package / "b.py").write_text("new")
    assert len({edited.changes, Source.of(package).changes, None}) == 3
    commit(tmp_path)
    assert edited.tree == first.tree != Source.of(package).tree
    whole = sha256_tree(package)
    write_json(package / ".cache" / "download.json", {"time": 1})
    assert sha256_tree(package) == whole
    monkeypatch.setenv("PATH", str(tmp_path))
    without_git = Source.of(package)
    assert (without_git.commit, without_git.changes) == (None, None)
    (package / "a.py").write_text("3")
    assert Source.of(package).tree != without_git.tree


def test_a_repository_of_another_user_is_told_once(tmp_path, monkeypatch, caplog) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    for _ in range(2):
        assert Source.of(tmp_path) == Source(None, hashlib.sha256().hexdigest(), None)
    (told,) = caplog.messages
    assert "belongs to another user" in told


def test_inputs_are_hashed_by_path_and_missing_ones_named(tmp_path: Path) -> None:
    (tmp_path / "rows").write_bytes(b"rows")
    digest = hashlib.sha256(b"rows").hexdigest()
    assert hash_inputs([tmp_path / "rows"], []).data == {str(tmp_path / "rows"): digest}
    with pytest.raises(DataError, match=r"no\.parquet"):
        hash_inputs([tmp_path / "no.parquet"], [])
    with pytest.raises(ModelError, match="no_model"):
        hash_inputs([], [tmp_path / "no_model"])
