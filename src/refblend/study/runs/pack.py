"""Finished runs in one file, to gather on one machine what several have trained.

Everything of a run that reports read is packed; checkpoints and tensorboard files stay behind.
What is unpacked counts as finished: training skips it, and its test is read (``refblend
evaluate``).
"""

import tarfile
from collections.abc import Sequence
from pathlib import Path

from refblend.errors import CheckpointError
from refblend.files import atomic_path, unpacked
from refblend.identity import IDENTITY_NAME, read_identity
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


def unpack_runs(source: Path, root: Path) -> tuple[Sequence[Path], Sequence[Path]]:
    """Put packed runs below ``root``, each by one rename. A run that is there already is kept.

    Returns the directories, relative to ``root``, that were unpacked, and those that were there.
    CheckpointError, and nothing is unpacked, for another file, or a directory with another run.
    """
    with unpacked(source, root, "refblend runs pack", CheckpointError) as staged:
        runs = [mark.parent.relative_to(staged) for mark in sorted(staged.rglob(IDENTITY_NAME))]
        if not runs:
            raise CheckpointError(
                f"{source} holds no run",
                "Give a file of `refblend runs pack`. Models are unpacked by "
                "`refblend models unpack`.",
            )
        present = [run for run in runs if (root / run).exists()]
        for run in present:
            if read_identity(root / run) != read_identity(staged / run):
                raise CheckpointError(
                    f"{root / run} holds another run than {source}",
                    "Move one of them away, or unpack into another folder.",
                )
        added = [run for run in runs if run not in present]
        for run in added:
            (root / run).parent.mkdir(parents=True, exist_ok=True)
            (staged / run).rename(root / run)
    return added, present
