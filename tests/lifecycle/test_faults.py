"""Faults of the machine are recognised by number, by text and by kind, and by nothing else."""

import errno
import os
from pathlib import Path

import pytest
import torch
from ray.exceptions import RayTaskError

from refblend.errors import ConfigError, DataError, DiskError, ResourceError
from refblend.lifecycle.faults import explain, explained, is_out_of_memory

SAFETENSORS = "Error while serializing: I/O error: No space left on device (os error 28)"


def os_error(number: int, path: str | None = None) -> OSError:
    return OSError(number, os.strerror(number), path)


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (os_error(errno.ENOSPC), "the disk is full"),
        (os_error(errno.EDQUOT), "the disk is full"),
        (RuntimeError(SAFETENSORS), "the disk is full"),
        (RayTaskError("save", f"OSError: {os.strerror(errno.ENOSPC)}", None), "the disk is full"),
        (os_error(errno.EROFS), "read-only"),
        (RuntimeError("Read-only file system (os error 30)"), "read-only"),
        (os_error(errno.EACCES), "Permission denied"),
    ],
)
def test_disk(error, fault):
    found = explain(error)
    assert isinstance(found, DiskError)
    assert fault in found.reason


def test_memory():
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**55)
    assert is_out_of_memory(caught.value)
    assert is_out_of_memory(torch.OutOfMemoryError("x"))
    assert is_out_of_memory(MemoryError())
    assert is_out_of_memory(os_error(errno.ENOMEM))
    assert not is_out_of_memory(os_error(errno.ENOSPC))
    assert not is_out_of_memory(RuntimeError("shape mismatch"))
    assert not is_out_of_memory(KeyError("out of memory"))
    assert not is_out_of_memory(None)


def test_errors_name_the_path_and_the_remedy(tmp_path):
    with (
        pytest.raises(DiskError, match=f"{tmp_path} cannot be written: the disk is full") as caught,
        explained(tmp_path),  # a stream's error does not know its file
    ):
        Path("/dev/full").write_text("x")
    assert "Free some space" in caught.value.remedy
    with (
        pytest.raises(DiskError, match=f"{tmp_path}/x cannot be used: the file system is read"),
        explained(tmp_path),
    ):
        raise os_error(errno.EROFS, f"{tmp_path}/x")
    with (
        pytest.raises(DiskError, match=f"{tmp_path} cannot be used: Permission denied"),
        explained(tmp_path),
    ):
        raise os_error(errno.EACCES)
    (tmp_path / "file").write_text("x")
    with (
        pytest.raises(DiskError, match="file/below cannot be used: Not a directory") as caught,
        explained(tmp_path),
    ):
        (tmp_path / "file" / "below").mkdir()
    assert caught.value.remedy == "Name another path."
    with pytest.raises(ResourceError, match="memory ran out: DefaultCPU"), explained(tmp_path):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory\nof no use")


def test_other_errors_pass(tmp_path):
    ours = DataError("the disk: no space left on device", "Mend it.")
    with pytest.raises(DataError) as caught, explained(tmp_path):
        raise ours
    assert caught.value is ours
    for other in (os_error(errno.ENOENT), KeyError("x")):
        with pytest.raises(type(other)), explained(tmp_path):
            raise other


def test_an_extra_that_is_not_installed_is_named():
    found = explain(ModuleNotFoundError("No module named 'ray.util'", name="ray.util"))
    assert isinstance(found, ConfigError)
    assert "[train]" in found.remedy
    assert explain(ModuleNotFoundError("No module named 'mine'", name="mine")) is None
