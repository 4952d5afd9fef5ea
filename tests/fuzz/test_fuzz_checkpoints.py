"""Checkpoint directories: damaged manifests, files and links; what is whole is used, bit by bit."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fuzz_support import attempt, folder
from fuzz_trees import HOSTILE, mutated, mutated_bytes
from hypothesis import given
from hypothesis import strategies as st

from refblend.trainer.checkpoint import (
    LATEST_NAME,
    MANIFEST_NAME,
    STATE_NAME,
    CheckpointManager,
    CheckpointRef,
    find_damage,
    named_checkpoint,
    write_state,
)

STATE = {"step": 2, "sampler": {"epoch": 0, "position": 4}, "kl_controller": 0.001, "drift": []}
WEIGHTS = {"actor/model.safetensors": b"abcdefgh" * 8, "actor/optimizer.pt": b"", "critic/w": b"xy"}


def make_run(root: Path) -> CheckpointManager:
    """Checkpoints of steps 1 and 2."""
    manager = CheckpointManager(root / "checkpoints", keep_last=2)
    for step in (1, 2):
        with manager.staging(step) as staged:
            for name, content in WEIGHTS.items():
                (staged / name).parent.mkdir(exist_ok=True)
                (staged / name).write_bytes(content + bytes([step]))
            write_state(staged, STATE | {"step": step}, 0.5)
    return manager


def is_whole(path: Path, step: int) -> bool:
    """Independent of the manager: every file is a plain one with the bytes that were written."""
    names = [*WEIGHTS, STATE_NAME, MANIFEST_NAME]
    found = sorted(p.relative_to(path).as_posix() for p in path.rglob("*") if not p.is_dir())
    linked = any(p.is_symlink() for p in path.rglob("*"))
    return (
        not linked
        and found == sorted(names)
        and all((path / n).read_bytes() == c + bytes([step]) for n, c in WEIGHTS.items())
    )


def check_run(manager: CheckpointManager) -> None:
    """The newest checkpoint that can be used is used, the rest is said to be damaged."""
    found = manager.latest_valid()  # an automatic resume never stops at a damaged checkpoint
    for step in (2, 1):
        if found is not None and found.step == step:
            assert is_whole(found.path, step)
            state = manager.load_state(found)
            assert state["step"] == step
            break
    attempt(lambda: named_checkpoint(manager.path(2), 9), "global_step_2")
    best = manager.best()
    assert best is None or best.step in manager.steps()


def check_goes_on(manager: CheckpointManager) -> None:
    """The next save either works, and then it is the newest, or is refused."""

    def save() -> None:
        with manager.staging(3) as staged:
            write_state(staged, STATE | {"step": 3}, 0.7)

    accepted, _ = attempt(save, "checkpoints")
    if accepted:
        newest = manager.latest_valid()
        assert newest is not None
        assert newest.step == 3
        assert manager.load_state(newest) == STATE | {"step": 3}
    if manager.root.is_dir():
        assert not list(manager.root.glob(".*.tmp"))


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("template")
    make_run(root)
    return root


def copy_of(template: Path, root: Path) -> CheckpointManager:
    shutil.copytree(template / "checkpoints", root / "checkpoints")
    return CheckpointManager(root / "checkpoints", keep_last=2)


FILES = (*WEIGHTS, STATE_NAME, MANIFEST_NAME)


@given(st.data())
def test_damaged_file(template: Path, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(FILES))
    with folder() as root:
        manager = copy_of(template, root)
        file = manager.path(2) / name
        content = file.read_bytes()
        file.write_bytes(data.draw(mutated_bytes(content)))
        changed = file.read_bytes() != content
        check_run(manager)
        found = manager.latest_valid()
        assert found is not None
        if name != MANIFEST_NAME:
            assert found.step == (1 if changed else 2)
        check_goes_on(manager)


def manifest_of(template: Path) -> dict[str, Any]:
    path = template / "checkpoints" / "global_step_2" / MANIFEST_NAME
    manifest: dict[str, Any] = json.loads(path.read_text())
    return manifest


def lists(manifest: dict[str, Any], sound: dict[str, Any]) -> bool:
    """Whether a manifest says of files and step what the sound one says."""
    return all(manifest.get(key) == sound[key] for key in ("files", "step"))


NAMES = ("../global_step_1/critic/w", "/dev/null", "", ".", "a\x00b", "x" * 5000, "\n")


@given(st.data())
def test_manifest(template: Path, data: st.DataObject) -> None:
    """A manifest of wrong types, missing entries, or with names that lead out of the directory."""
    with folder() as root:
        manager = copy_of(template, root)
        manifest = data.draw(mutated(manifest_of(template)))
        if data.draw(st.booleans()) and isinstance(manifest.get("files"), dict):
            entry = {"size": 0, "sha256": hashlib.sha256(b"").hexdigest()}
            manifest["files"][data.draw(st.sampled_from(NAMES))] = entry
        (manager.path(2) / MANIFEST_NAME).write_text(json.dumps(manifest))
        whole = find_damage(manager.path(2)) is None
        assert whole == (lists(manifest, manifest_of(template)) and type(manifest["step"]) is int)
        check_run(manager)
        check_goes_on(manager)


@given(st.data())
def test_state(template: Path, data: st.DataObject) -> None:
    """A state of wrong types under a manifest that fits it, as another program would write it."""
    with folder() as root:
        manager = copy_of(template, root)
        path = manager.path(2)
        written = data.draw(mutated({"metric": 0.5, "state": STATE}) | st.sampled_from(HOSTILE))
        content = json.dumps(written).encode()
        (path / STATE_NAME).write_bytes(content)
        manifest = manifest_of(template)
        manifest["files"][STATE_NAME] = {
            "size": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
        }
        (path / MANIFEST_NAME).write_text(json.dumps(manifest))
        accepted, state = attempt(lambda: manager.load_state(CheckpointRef(2, path)), STATE_NAME)
        if accepted:
            assert isinstance(written, dict)
            assert repr(state) == repr(written["state"])
        best = manager.best()
        assert best is not None
        check_goes_on(manager)


def replace_by_link(path: Path) -> None:
    path.symlink_to(path.rename(path.parents[1] / "elsewhere"))


def replace_by(make: Callable[[Path], object], path: Path) -> None:
    path.unlink()
    make(path)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: path.unlink(),
    "empty": lambda path: os.truncate(path, 0),
    "directory": lambda path: replace_by(Path.mkdir, path),
    "link": replace_by_link,
    "pipe": lambda path: replace_by(os.mkfifo, path),
    "another file": lambda path: (path.parent / "more").write_bytes(b""),
    "a link beside": lambda path: (path.parent / "more").symlink_to("/"),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("name", FILES)
def test_replaced_file(template: Path, tmp_path: Path, name: str, damage: str) -> None:
    manager = copy_of(template, tmp_path)
    DAMAGE[damage](manager.path(2) / name)
    assert find_damage(manager.path(2)) is not None
    found = manager.latest_valid()
    assert found is not None
    assert found.step == 1
    check_run(manager)
    check_goes_on(manager)


STRAYS: dict[str, Callable[[Path], object]] = {
    "global_step_007": lambda root: (root / "global_step_007").mkdir(),
    "superscript": lambda root: (root / "global_step_²").mkdir(),
    "a file for a step": lambda root: (root / "global_step_3").write_text("x"),
    "an empty later step": lambda root: (root / "global_step_9").mkdir(),
    "a huge step": lambda root: (root / ("global_step_" + "9" * 200)).mkdir(),
    "a copy under another step": lambda root: shutil.copytree(
        root / "global_step_2", root / "global_step_5"
    ),
    "latest is garbage": lambda root: (root / LATEST_NAME).write_bytes(b"\xff\x00"),
    "latest is huge": lambda root: (root / LATEST_NAME).write_text("9" * 10_000),
    "latest is a link": lambda root: replace_by_link(root / LATEST_NAME),
}


@pytest.mark.parametrize("name", STRAYS)
def test_strays(template: Path, tmp_path: Path, name: str) -> None:
    manager = copy_of(template, tmp_path)
    STRAYS[name](manager.root)
    found = manager.latest_valid()
    assert found is not None
    assert found.step == 2
    check_run(manager)
    manager.discard_after(2)
    assert manager.steps() == [1, 2]
    check_goes_on(manager)
    assert (manager.root / LATEST_NAME).read_text() == "3\n"
