"""The run's files on the nodes of a cluster: paths are the driver's, and every node must see them.

On a cluster of the run's own, nodes and driver are one machine and nothing here changes anything.
Data files are read by the driver alone.
"""

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import Any

from refblend.config import RefblendConfig
from refblend.config.scoring import SCORING_KEY
from refblend.errors import ResourceError
from refblend.workers.nodes import ANSWER_S, ask
from refblend.workers.placement import Node

RUN_DIR = "trainer.default_local_dir"
SAMPLE = 2**20
"""Bytes of each end of a file that are compared between nodes."""


def located(config: RefblendConfig) -> RefblendConfig:
    """The configuration for processes of an existing cluster, which have another directory."""
    if config.ray.address is None:
        return config
    for key in [*_read(config), RUN_DIR]:
        config = _replaced(config, key.split("."), str(Path(_value(config, key)).absolute()))
    return config


def check_sight(config: RefblendConfig, nodes: Sequence[Node], own: str) -> None:
    """Ask each node whether it sees models, templates and the run's directory as the driver does.

    Args:
        config: as :func:`located` gives it; the run's directory exists.
        nodes: on which the run has processes.
        own: id of the driver's node, which is not asked.

    Raises:
        ResourceError: a node does not answer, or something is missing there or differs.
    """
    others = [node for node in {n.id: n for n in nodes}.values() if node.id != own]
    if not others:
        return
    run_dir = config.trainer.default_local_dir
    with tempfile.NamedTemporaryFile(dir=run_dir, prefix=".refblend-") as probe:
        probe.write(os.urandom(16))
        probe.flush()
        wanted = glance([*{_value(config, key) for key in _read(config)}, probe.name])
        answers = ask(others, glance, list(wanted), timeout_s=ANSWER_S)
    for node in others:
        if node.id not in answers:
            raise ResourceError(
                f"node {node.address} does not answer within {ANSWER_S:g} s",
                "Look at it with `ray status`, or take it out of the cluster.",
            )
        found = answers[node.id]
        missing = [path for path, print_ in wanted.items() if found.get(path) != print_]
        if missing:
            told = ", ".join(sorted(run_dir if path == probe.name else path for path in missing))
            raise ResourceError(
                f"node {node.address} does not see the same {told} as the driver",
                "Put them on a file system that all nodes mount at the same path, or pin the run's "
                "processes to other nodes (the keys called node).",
            )


def glance(paths: Sequence[str]) -> dict[str, str]:
    """A quick fingerprint of each path that exists here: names, sizes and ends of all files."""
    seen = {}
    for path in paths:
        digest = hashlib.sha256()
        with contextlib.suppress(OSError):
            for name, file in _files(Path(path)):
                size = file.stat().st_size
                with open(file, "rb") as stream:
                    ends = stream.read(SAMPLE)
                    stream.seek(max(0, size - SAMPLE))
                    ends += stream.read(SAMPLE)
                digest.update(f"{name}\0{size}\0".encode() + ends)
            if Path(path).exists():
                seen[path] = digest.hexdigest()
    return seen


def _files(path: Path) -> list[tuple[str, Path]]:
    """A file, or all files of a directory, by their names below it."""
    if path.is_file():
        return [(path.name, path)]
    return sorted((p.relative_to(path).as_posix(), p) for p in path.rglob("*") if p.is_file())


def _read(config: RefblendConfig) -> list[str]:
    """The keys of the files and directories that workers read."""
    keys = ["actor_rollout_ref.model.path"]
    scoring = config.algorithm.ref_quality_score.scoring
    if config.use_judge:
        keys += [f"{SCORING_KEY}.model_path"] if scoring.local_model else []
        keys += [f"{SCORING_KEY}.templates"] if Path(scoring.templates).is_file() else []
    return keys


def _value(config: RefblendConfig, key: str) -> Any:
    return reduce(getattr, key.split("."), config)


def _replaced(section: Any, names: Sequence[str], value: str) -> Any:
    """A section with another value of a key below it."""
    first, *rest = names
    new = _replaced(getattr(section, first), rest, value) if rest else value
    return section.model_copy(update={first: new})
