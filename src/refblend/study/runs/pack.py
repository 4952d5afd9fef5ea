"""Finished runs in one file, to gather on one machine what several have trained.

Everything of a run that reports read is packed; checkpoints and tensorboard files stay behind. What
``tar`` unpacks counts as finished: training skips it, and its test is read (``refblend evaluate``).
"""

import tarfile
from collections.abc import Sequence
from pathlib import Path

from refblend.errors import CheckpointError
from refblend.files import atomic_path
from refblend.trainer.run_directory import LOCK_NAME, find_runs, run_lock

LEFT_BEHIND = ("checkpoints", "tensorboard", "wandb", "swanlog", "run.png", LOCK_NAME)


def pack_runs(root: Path, target: Path) -> Sequence[Path]:
    """Pack the finished runs below ``root`` into a .tar.xz file; those moved aside are left out.

    Returns their directories, relative to ``root``; CheckpointError for none, or one in use.
    """
    runs = [r.path for r in find_runs(root) if r.status == "finished" and not r.aside]
    if not runs:
        raise CheckpointError(f"{root} holds no finished run", "Give the folder of your runs.")
    with atomic_path(target) as path, tarfile.open(path, "w:xz") as archive:
        for run in runs:
            with run_lock(run):
                archive.add(run, run.relative_to(root), filter=_without_large_files)
    return [run.relative_to(root) for run in runs]


def _without_large_files(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if Path(member.name).name in LEFT_BEHIND else member
