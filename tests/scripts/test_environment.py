"""The environment's files: locks, and `make env`."""

import importlib.metadata
import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
LOCKS = sorted((ROOT / "requirements").glob("*.lock"))


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.stem)
def test_locks_hold_exact_pins_only(path: Path) -> None:
    text = re.sub(r"\A(# .*\n)+", "", path.read_text())
    names = re.findall(r"^([a-z0-9-]+)==", text, re.M)
    assert names == sorted(names)
    pin, digest = r"[a-z0-9-]+==[0-9][A-Za-z0-9.+]*", r" \\\n    --hash=sha256:[0-9a-f]{64}"
    assert re.fullmatch(rf"({pin}({digest})*\n)+", text)
    # Builds of torch for one device have the same version in several indexes.
    without = re.findall(rf"^({pin})$", text, re.M)
    assert {entry.split("==")[0] for entry in without} <= {"torch"}
    assert without or "torch" not in names


def test_lock_is_what_the_project_needs() -> None:
    """By the metadata of what is installed, from the requirements that a CPU needs."""
    tree = tomllib.loads((ROOT / "pyproject.toml").read_text())
    texts = [*tree["build-system"]["requires"], *tree["project"]["dependencies"]]
    for extra in ("loop", "train-cpu", "study", "dev"):
        texts += tree["project"]["optional-dependencies"][extra]
    roots = [
        requirement for requirement in map(Requirement, texts) if requirement.name != "refblend"
    ]
    pins = dict(re.findall(r"^(\S+)==(\S+)", (ROOT / "requirements/cpu.lock").read_text(), re.M))
    left_out = re.findall(r"^[\w-]+", (ROOT / "requirements/overrides.txt").read_text(), re.M)
    queue, seen = [(requirement, "") for requirement in roots], set()
    while queue:
        requirement, of = queue.pop()
        name = canonicalize_name(requirement.name)
        marker = requirement.marker
        if name in left_out or (marker and not marker.evaluate({"extra": of})):
            continue
        wanted = {(name, extra) for extra in ("", *requirement.extras)} - seen
        seen |= wanted
        needed = [Requirement(text) for text in importlib.metadata.requires(name) or []]
        queue += [(each, extra) for each in needed for _, extra in wanted]
    assert set(pins) == {name for name, _ in seen}
    for requirement in roots:
        version = pins[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version, prereleases=True), requirement


@pytest.mark.parametrize(
    ("gib", "limit", "each", "jobs"),
    [
        (7.6, "max", 4, 2),
        (7.6, "max", 6, 1),
        (64, "max", 1, 64),
        (64, "8589934592", 4, 2),
        (1, "", 4, 1),
    ],
)
def test_jobs_are_as_many_as_memory_allows(tmp_path, gib, limit, each, jobs) -> None:
    """One per core, and one per so many GiB of the machine or of the container."""
    (tmp_path / "meminfo").write_text(f"MemTotal: {int(gib * 2**20)} kB\n")
    (tmp_path / "max").write_text(limit)
    places = {"MEMINFO": str(tmp_path / "meminfo"), "MEMORY_MAX": str(tmp_path / "max")}
    done = subprocess.run(
        [ROOT / "scripts" / "cores.sh", str(each)],
        capture_output=True,
        text=True,
        env=os.environ | places,
    )
    cores = len(os.sched_getaffinity(0))
    assert (done.returncode, done.stdout) == (0, f"{min(jobs, cores)}\n"), done.stderr


@pytest.mark.parametrize(
    ("there", "named", "lock"),
    [
        (None, [], "requirements/cpu.lock"),
        ("requirements/gpu.lock", [], "requirements/gpu.lock"),
        ("requirements/gpu.lock", ["LOCK=requirements/cpu.lock"], "requirements/cpu.lock"),
    ],
)
def test_make_goes_on_with_the_lock_of_the_environment(there, named, lock, tmp_path) -> None:
    """Every target makes the environment first: it must not change what it was made from."""
    if there:
        (tmp_path / ".venv").mkdir()
        (tmp_path / ".venv" / ".made-from").write_text(f"{there}\n")
    without = {name: value for name, value in os.environ.items() if name != "LOCK"}
    command = ["make", "-n", "-f", str(ROOT / "Makefile"), *named, "gpu-check"]
    done = subprocess.run(
        command, cwd=tmp_path, env=without, capture_output=True, text=True, check=True
    )
    assert f".venv {lock}\n" in done.stdout
