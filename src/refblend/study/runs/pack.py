"""Finished runs in one file, to gather on one machine what several have trained.

Everything of a run that reports read is packed; checkpoints and tensorboard files stay behind. What
``tar`` unpacks counts as finished: training skips it, and its test is read (``refblend evaluate``).
"""

import lzma
import tarfile
from collections.abc import Sequence
from pathlib import Path

from refblend.errors import CheckpointError
from refblend.files import atomic_path
from refblend.trainer.run_directory import LOCK_NAME, find_runs, run_lock

LEFT_BEHIND = ("checkpoints", "tensorboard", "wandb", "run.png", LOCK_NAME)


def pack_runs(root: Path, target: Path) -> Sequence[Path]:
    """Pack the finished runs below ``root`` into a .tar.xz file; those moved aside are left out.

    The files of one name stand together, by seed: what runs share is close, and the pack a fifth
    smaller. Returns the runs' directories, relative to ``root``; CheckpointError for none, or one
    in use.
    """
    runs = [r.path for r in find_runs(root) if r.status == "finished" and not r.aside]
    if not runs:
        raise CheckpointError(f"{root} holds no finished run", "Give the folder of your runs.")
    names = {(run, path.relative_to(run)) for run in runs for path in run.rglob("*")}
    kept = [(run, name) for run, name in names if name.parts[0] not in LEFT_BEHIND]
    kept.sort(key=lambda file: (file[1], file[0].name, file[0]))
    size = sum((run / name).stat().st_size for run, name in kept)
    # A dictionary as large as the files, up to 256 MiB, finds what distant runs share.
    method = {"id": lzma.FILTER_LZMA2, "preset": 9, "dict_size": min(2**28, max(2**20, size))}
    with (
        atomic_path(target) as path,
        lzma.open(path, "wb", filters=[method]) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        for run, name in kept:
            with run_lock(run):
                archive.add(run / name, (run / name).relative_to(root), recursive=False)
    return [run.relative_to(root) for run in runs]
