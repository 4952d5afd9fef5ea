"""The run's files on the nodes of a cluster: paths are the driver's, and each node is asked what it
sees.

A node that does not see the same models gets them sent, and what a rank saves where the run's
directory is not seen is fetched. On a cluster of the run's own, nodes and driver are one machine
and nothing here changes anything. Data files are read by the driver alone.
"""

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from refblend.config import RefblendConfig
from refblend.config.scoring import SCORING_KEY
from refblend.errors import ResourceError
from refblend.workers.node_files import fetch, files_of, forget, outgoing, send
from refblend.workers.nodes import ANSWER_S, ask
from refblend.workers.placement import Node
from refblend.workers.roles import value_of

RUN_DIR = "trainer.default_local_dir"
SAMPLE = 2**20
"""Bytes of each end of a file that are compared between nodes."""


class RunFiles:
    """Where the processes of each node find models and leave checkpoints."""

    def __init__(self, config: RefblendConfig, nodes: Sequence[Node], own: str) -> None:
        """Ask the run's ``nodes`` what they see, and send what they lack; ``own`` is the driver's.

        ResourceError if one does not answer, or does not see what a shared file system has.
        """
        self._config = located(config)
        self._own = own
        self._configs: dict[str, RefblendConfig] = {}
        self._blind: set[str] = set()
        others = self._others(nodes)
        if not others:
            return
        run_dir = value_of(self._config, RUN_DIR)
        keys = _read(self._config)
        with tempfile.NamedTemporaryFile(dir=run_dir, prefix=".refblend-") as probe:
            probe.write(os.urandom(16))
            probe.flush()
            paths = [*dict.fromkeys(value_of(self._config, key) for key in keys), probe.name]
            unseen = _unseen(others, paths)
        for node in others:
            lacking = unseen[node.id]
            if config.ray.shared_filesystem and lacking:
                told = ", ".join(sorted(run_dir if p == probe.name else p for p in lacking))
                raise ResourceError(
                    f"ray.shared_filesystem is true, but node {node.address} does not see the same "
                    f"{told} as the driver",
                    "Mount it there at the same path, or set ray.shared_filesystem=false: files "
                    "are then sent.",
                )
            if probe.name in lacking:
                self._blind.add(node.id)
            sent = {path: _sent(Path(path), node) for path in lacking if path != probe.name}
            own_config = self._config
            for key in keys:
                path = value_of(own_config, key)
                own_config = _replaced(own_config, key.split("."), sent.get(path, path))
            self._configs[node.id] = own_config

    def config_for(self, node: Node) -> RefblendConfig:
        """The configuration with the paths under which that node has the files."""
        return self._configs.get(node.id, self._config)

    def outbox(self, node: Node, target: Path) -> str:
        """Where a process on that node writes what shall end in ``target``."""
        return outgoing(node) if node.id in self._blind else str(target.absolute())

    def collect(self, node: Node, outbox: str, target: Path) -> None:
        """Bring here what was written to an :meth:`outbox`; errors as in :func:`fetch`."""
        if node.id in self._blind:
            fetch(outbox, node, target)

    def discard(self, node: Node, outbox: str) -> None:
        """Remove an :meth:`outbox` that will not be collected, if its node still answers."""
        if node.id in self._blind:
            with contextlib.suppress(Exception):  # what made it useless is told by its own error
                forget(outbox, node)

    @contextlib.contextmanager
    def inboxes(self, nodes: Sequence[Node], source: Path) -> Iterator[list[str]]:
        """Yield where a process on each of these nodes finds ``source``; errors as at the start."""
        path = str(source.absolute())
        others = self._others(nodes)
        unseen = _unseen(others, [path]) if others else {}
        with contextlib.ExitStack() as stack:
            sent = {}
            for node in others:
                if unseen[node.id]:
                    sent[node.id] = send(source, node)
                    stack.callback(forget, sent[node.id], node)
            yield [sent.get(node.id, path) for node in nodes]

    def _others(self, nodes: Sequence[Node]) -> list[Node]:
        """Each of them once, without the driver's."""
        return [node for node in {n.id: n for n in nodes}.values() if node.id != self._own]


def located(config: RefblendConfig) -> RefblendConfig:
    """The configuration for processes of an existing cluster, which have another directory."""
    if config.ray.address is None:
        return config
    for key in [*_read(config), RUN_DIR]:
        config = _replaced(config, key.split("."), str(Path(value_of(config, key)).absolute()))
    return config


def _unseen(nodes: Sequence[Node], paths: Sequence[str]) -> dict[str, set[str]]:
    """By node id: the paths under which a node does not find what this machine has there."""
    wanted = glance(paths)
    answers: Mapping[str, Any] = ask(nodes, glance, list(paths), timeout_s=ANSWER_S)
    for node in nodes:
        if node.id not in answers:
            raise ResourceError(
                f"node {node.address} does not answer within {ANSWER_S:g} s",
                "Look at it with `ray status`, or take it out of the cluster.",
            )
    return {
        node.id: {path for path in paths if answers[node.id].get(path) != wanted.get(path)}
        for node in nodes
    }


def glance(paths: Sequence[str]) -> dict[str, str]:
    """A quick fingerprint of each path that exists here: names, sizes and ends of all files."""
    seen = {}
    for path in paths:
        digest = hashlib.sha256()
        with contextlib.suppress(OSError):
            for name, file in files_of(Path(path)):
                size = file.stat().st_size
                with open(file, "rb") as stream:
                    ends = stream.read(SAMPLE)
                    stream.seek(max(0, size - SAMPLE))
                    ends += stream.read(SAMPLE)
                digest.update(f"{name}\0{size}\0".encode() + ends)
            if Path(path).exists():
                seen[path] = digest.hexdigest()
    return seen


def _sent(path: Path, node: Node) -> str:
    """Where a file or directory lies on a node after it was sent."""
    folder = send(path, node)
    return str(Path(folder) / path.name) if path.is_file() else folder


def _read(config: RefblendConfig) -> list[str]:
    """The keys of the files and directories that workers read."""
    keys = ["actor_rollout_ref.model.path"]
    scoring = config.algorithm.ref_quality_score.scoring
    if config.use_judge:
        keys += [f"{SCORING_KEY}.model_path"] if scoring.local_model else []
        keys += [f"{SCORING_KEY}.templates"] if Path(scoring.templates).is_file() else []
    return keys


def _replaced(section: Any, names: Sequence[str], value: str) -> Any:
    """A section with another value of a key below it."""
    first, *rest = names
    new = _replaced(getattr(section, first), rest, value) if rest else value
    return section.model_copy(update={first: new})
