import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from refblend.errors import CheckpointError, DiskError
from refblend.trainer import checkpoint
from refblend.trainer.checkpoint import (
    CheckpointManager,
    CheckpointRef,
    find_damage,
    named_checkpoint,
    write_state,
)


def save(manager: CheckpointManager, step: int, metric: float | None = None) -> Path:
    with manager.staging(step) as directory:
        (directory / "actor").mkdir()
        (directory / "actor" / "model.safetensors").write_bytes(bytes([step % 256]) * 1000)
        write_state(directory, {"step": step, "kl": 0.1}, metric)
    return manager.path(step)


def step_of(ref: CheckpointRef | None) -> int | None:
    return ref and ref.step


@pytest.fixture
def manager(tmp_path: Path) -> CheckpointManager:
    return CheckpointManager(tmp_path / "checkpoints", keep_last=2, keep_best=True)


def test_layout_and_manifest(manager):
    path = save(manager, 5, metric=0.5)
    assert path.name == "global_step_5"
    assert (manager.root / "latest_checkpointed_iteration.txt").read_text().strip() == "5"
    manifest = json.loads((path / "manifest.json").read_text())
    assert set(manifest["files"]) == {"actor/model.safetensors", "trainer_state.json"}
    assert manifest["files"]["actor/model.safetensors"]["size"] == 1000
    ref = manager.latest_valid()
    assert ref == CheckpointRef(5, path)
    assert ref.actor == path / "actor"
    assert manager.load_state(ref) == {"step": 5, "kl": 0.1}
    assert [p.name for p in manager.root.iterdir() if p.name.startswith(".")] == []


def test_keep_last_and_best(manager):
    for step, metric in ((1, 0.2), (2, 0.9), (3, 0.9), (4, 0.1), (5, None)):
        save(manager, step, metric)
    assert manager.steps() == [2, 4, 5]  # of equal ones the earliest is the best
    assert step_of(manager.best()) == 2


def test_a_damaged_best_is_skipped_and_a_good_one_stays(manager, caplog):
    for step, metric in ((1, 0.8), (2, 0.9)):
        save(manager, step, metric)
    flip_byte(manager.path(2) / "actor" / "model.safetensors")
    for step, metric in ((3, 0.1), (4, 0.2), (5, None)):
        save(manager, step, metric)
    assert step_of(manager.best()) == 1
    assert manager.steps() == [1, 4, 5]
    assert "global_step_2 cannot be the best: size or checksum" in caplog.text


def test_an_unchanged_checkpoint_is_read_once(manager, monkeypatch):
    """That of a large model takes minutes to hash."""
    save(manager, 1, 0.5)
    checkpoint._WHOLE.clear()
    assert step_of(manager.latest_valid()) == 1
    monkeypatch.setattr(checkpoint, "sha256_file", pytest.fail)
    resumed = CheckpointManager(manager.root)
    assert step_of(resumed.latest_valid()) == 1
    assert not resumed.lacks_best(0.4)
    assert named_checkpoint(manager.path(1), 9).step == 1


def test_a_checkpoint_that_cannot_be_read_is_skipped(manager, monkeypatch):
    for step in (1, 2):
        save(manager, step, 0.5)
    lost = manager.path(2) / "actor"
    real = Path.lstat

    def lstat(path: Path) -> os.stat_result:
        if path == lost:
            raise OSError(errno.ESTALE, "Stale file handle", str(path))
        return real(path)

    monkeypatch.setattr(Path, "lstat", lstat)
    assert step_of(manager.latest_valid()) == 1


def test_when_a_validation_is_the_best_so_far(manager):
    assert manager.lacks_best(0.0)
    assert not manager.lacks_best(None), "the step was not validated"
    save(manager, 1, 0.5)
    assert (manager.lacks_best(0.5), manager.lacks_best(0.6)) == (False, True)
    flip_byte(manager.path(1) / "actor" / "model.safetensors")
    assert manager.lacks_best(0.1)
    assert not CheckpointManager(manager.root, keep_best=False).lacks_best(0.9)


def flip_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    os.utime(path, (1, 1))  # as no save can have stamped it, however coarse the clock


def test_none_or_all_damaged_gives_none(manager):
    assert (manager.latest_valid(), manager.best()) == (None, None)
    flip_byte(save(manager, 1) / "actor" / "model.safetensors")
    assert manager.latest_valid() is None


def test_failed_save_leaves_no_trace(manager):
    save(manager, 1)
    with pytest.raises(KeyError), manager.staging(2) as directory:  # noqa: PT012
        (directory / "half").write_text("x")
        raise KeyError("worker died")
    assert sorted(p.name for p in manager.root.iterdir()) == [
        "global_step_1",
        "latest_checkpointed_iteration.txt",
    ]


def test_state_is_required(manager):
    with pytest.raises(ValueError, match="write_state"), manager.staging(1):
        pass
    assert manager.steps() == []


def test_stray_temporaries_are_cleaned(manager):
    save(manager, 1)
    stray = manager.root / ".global_step_2.abc.tmp"
    (stray / "actor").mkdir(parents=True)
    (manager.root / ".latest_checkpointed_iteration.txt.x.tmp").write_text("9")
    assert step_of(manager.latest_valid()) == 1
    assert not any(p.name.startswith(".") for p in manager.root.iterdir())


def test_same_step_again_replaces(manager):
    save(manager, 3)
    with manager.staging(3) as directory:
        write_state(directory, {"second": True})
    ref = manager.latest_valid()
    assert manager.load_state(ref) == {"second": True}
    assert not (ref.path / "actor").exists()


def test_later_steps_of_an_abandoned_course_are_removed(manager):
    save(manager, 10, metric=0.1)
    flip_byte(save(manager, 20, metric=0.99) / "actor" / "model.safetensors")
    assert step_of(manager.latest_valid()) == 10
    save(manager, 15, metric=0.2)
    assert manager.steps() == [10, 15]


def test_a_checkpoint_that_the_user_names(manager):
    save(manager, 1)
    save(manager, 2)
    assert named_checkpoint(manager.path(1), 9) == CheckpointRef(1, manager.path(1))
    for path in (manager.root / "global_step_7", manager.root):
        with pytest.raises(CheckpointError):
            named_checkpoint(path, 9)
    with pytest.raises(CheckpointError, match="the run ends at step 1"):
        named_checkpoint(manager.path(1), 1)
    flip_byte(manager.path(1) / "actor" / "model.safetensors")
    with pytest.raises(CheckpointError, match="checksum"):
        named_checkpoint(manager.path(1), 9)


def test_full_disk_is_a_user_error(manager):
    save(manager, 1)
    # /dev/full answers every write with ENOSPC, as a full disk does.
    with pytest.raises(DiskError, match="full") as caught, manager.staging(2) as directory:  # noqa: PT012
        (directory / "model").symlink_to("/dev/full")
        with open(directory / "model", "wb", buffering=0) as stream:
            stream.write(b"x")
    assert caught.value.remedy
    assert manager.steps() == [1]


def test_too_little_space_is_refused_before_writing(manager, monkeypatch):
    save(manager, 1)
    usage = shutil.disk_usage(manager.root)._replace(free=10)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    entered = False
    with pytest.raises(CheckpointError, match="MB left"), manager.staging(2):
        entered = True
    assert not entered


SAVER = """
import sys
from pathlib import Path
from refblend.trainer.checkpoint import CheckpointManager, write_state
manager = CheckpointManager(Path(sys.argv[1]), keep_last=2, keep_best=True)
ref = manager.latest_valid()
step = ref.step if ref else 0
while True:
    step += 1
    with manager.staging(step) as directory:
        for name in ("actor", "critic"):
            (directory / name).mkdir()
            (directory / name / "model").write_bytes(bytes([step % 256]) * 200_000)
        write_state(directory, {"step": step}, metric=step % 7)
    print(step, flush=True)
"""


def test_kill_at_any_moment_leaves_whole_checkpoints(tmp_path):
    for saves in (1, 2, 4):
        process = subprocess.Popen(
            [sys.executable, "-c", SAVER, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        reported = [int(process.stdout.readline()) for _ in range(saves)]
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
        manager = CheckpointManager(tmp_path)
        ref = manager.latest_valid()
        assert ref.step >= reported[-1]  # what was reported as saved is there
        assert not any(find_damage(manager.path(step)) for step in manager.steps())
        assert manager.load_state(ref) == {"step": ref.step}
