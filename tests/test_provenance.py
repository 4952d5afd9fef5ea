import json
import logging
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from refblend import provenance
from refblend.errors import CheckpointError, DataError, ModelError
from refblend.files import sha256_file
from refblend.provenance import (
    collect_provenance,
    finish,
    git_state,
    lock_hashes,
    prepare_run_dir,
    run_identity,
    run_lock,
    source_hash,
)


@pytest.fixture
def inputs(tmp_path: Path) -> tuple[dict, list[Path], list[Path]]:
    data = tmp_path / "train.parquet"
    data.write_bytes(b"rows")
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    return {"seed": 1, "data": {"train_files": Path("x")}}, [data], [model]


def test_collect_and_finish(inputs) -> None:
    config, data, models = inputs
    record = collect_provenance(config, data, models, seed=1)
    assert record["data"] == {str(data[0]): sha256_file(data[0])}
    assert record["seed"] == 1
    assert record["versions"]["python"].startswith("3.11")
    assert {"numpy", "ray", "refblend"} <= set(record["versions"])
    assert record["hardware"]["cores"] >= 1
    assert record["hardware"]["memory_gib"] > 0
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


def test_sessions_add_up_over_resumes(inputs) -> None:
    config, data, models = inputs
    energy = {"kwh": 1.0, "kg_co2e": 2.0, "method": "m"}
    killed = collect_provenance(config, data, models, seed=1)
    second = finish(collect_provenance(config, data, models, 1, previous=killed), 10, energy)
    third = finish(collect_provenance(config, data, models, 1, previous=second), 5, energy)
    assert len(third["sessions"]) == 3
    assert third["totals"]["wall_time_s"] == 15
    assert third["totals"]["energy_kwh_estimated"] == 2.0
    assert third["totals"]["killed_sessions"] == 1
    assert finish(killed, 1.0)["totals"]["energy_kwh_estimated"] is None


def test_missing_inputs_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no\.parquet"):
        run_identity({}, [tmp_path / "no.parquet"], [])
    with pytest.raises(ModelError, match="no_model"):
        collect_provenance({}, [], [tmp_path / "no_model"], 1)


def test_identity_follows_what_matters(inputs, tmp_path: Path) -> None:
    config, data, models = inputs
    base = run_identity(config, data, models)
    assert base == run_identity(dict(reversed(config.items())), data, models)
    copy = tmp_path / "elsewhere.parquet"
    shutil.copy(data[0], copy)
    assert base == run_identity(config, [copy], models)
    assert base != run_identity(config | {"seed": 2}, data, models)
    data[0].write_bytes(b"other rows")
    changed = run_identity(config, data, models)
    assert changed != base
    (models[0] / "config.json").write_text("{ }")
    assert run_identity(config, data, models) not in (base, changed)


def test_source_hash_leaves_out_the_study(tmp_path: Path) -> None:
    for name in ("ppo/kl.py", "study/report.py", "cli.py", "ppo/notes.txt"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("1")
    base = source_hash(tmp_path)
    (tmp_path / "study" / "report.py").write_text("2")
    (tmp_path / "ppo" / "notes.txt").write_text("2")
    assert source_hash(tmp_path) == base
    (tmp_path / "ppo" / "kl.py").write_text("2")
    assert source_hash(tmp_path) != base


def test_git_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert git_state(tmp_path) == {"commit": None, "dirty": None}
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]

    def git(*arguments: str) -> None:
        subprocess.run(["git", "-C", str(tmp_path), *identity, *arguments], check=True)

    git("init", "-q")
    (tmp_path / "f.py").write_text("1")
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "report.md").write_text("1")
    git("add", ".")
    git("commit", "-q", "-m", "first")
    state = git_state(tmp_path)
    assert state["dirty"] is False
    assert len(state["commit"]) == 40
    (tmp_path / "results" / "report.md").unlink()
    assert git_state(tmp_path)["dirty"] is False
    (tmp_path / "f.py").write_text("2")
    assert git_state(tmp_path) == {"commit": state["commit"], "dirty": True}
    monkeypatch.setenv("PATH", str(tmp_path))
    assert git_state(tmp_path) == {"commit": None, "dirty": None}


def test_lock_hashes(tmp_path: Path) -> None:
    requirements = tmp_path / "requirements"
    requirements.mkdir()
    (requirements / "cpu.lock").write_text("numpy==2\n")
    package = tmp_path / "src" / "package"
    package.mkdir(parents=True)
    assert lock_hashes(package) == {"cpu.lock": sha256_file(requirements / "cpu.lock")}


def fill(run: Path) -> None:
    (run / "checkpoints" / "global_step_1").mkdir(parents=True)
    (run / "metrics.jsonl").write_text("{}\n")
    (run / "my_notes.txt").write_text("keep me")


def test_run_dir_fresh_then_resume_then_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = tmp_path / "runs" / "linear" / "seed_1"
    assert prepare_run_dir(run, "aaa") == "fresh"
    fill(run)
    assert prepare_run_dir(run, "aaa") == "resume"
    assert (run / "metrics.jsonl").exists()
    assert caplog.text == ""
    with caplog.at_level(logging.WARNING):
        assert prepare_run_dir(run, "bbb") == "fresh"
    assert "another configuration" in caplog.text
    assert sorted(p.name for p in run.iterdir()) == ["identity.json", "my_notes.txt"]
    assert prepare_run_dir(run, "bbb") == "resume"


def test_unmarked_directory_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("a model's")
    with pytest.raises(CheckpointError, match="not marked"):
        prepare_run_dir(tmp_path, "aaa")
    assert (tmp_path / "config.json").read_text() == "a model's"


def test_kill_during_the_removal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare_run_dir(tmp_path, "aaa")
    fill(tmp_path)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(provenance.shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            prepare_run_dir(tmp_path, "bbb")
    # Neither the old run nor the new one may take the remains for its own.
    assert prepare_run_dir(tmp_path, "aaa") == "fresh"
    assert not (tmp_path / "checkpoints").exists()


def test_run_dir_in_place_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(CheckpointError, match="cannot be prepared"):
        prepare_run_dir(tmp_path / "run", "aaa")


def test_run_lock(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from refblend.provenance import run_lock\n"
        f"with run_lock(Path({str(tmp_path)!r})): pass"
    )
    with run_lock(tmp_path):
        other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "another process is training" in other.stderr
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
