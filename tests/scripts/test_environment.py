"""The environment's files: locks, their pruning, and `make env`."""

import os
import re
import subprocess
import sys
from pathlib import Path

import lock_closure
import pytest
from packaging.requirements import Requirement

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


def test_cpu_lock_leaves_out_cuda() -> None:
    pins = lock_closure.read_pins(ROOT / "requirements" / "cpu.lock")
    assert not {"torchvision", "torchaudio", "torchcodec", "triton", "rliable"} & set(pins)
    assert pins["torch"].startswith("torch==2.13.0")


def test_lock_is_what_the_project_needs() -> None:
    excluded = set(lock_closure.read_pins(ROOT / "requirements" / "overrides.txt"))
    roots = lock_closure.project_requirements(ROOT / "pyproject.toml")
    needed, missing = lock_closure.closure(roots, excluded)
    pins = lock_closure.read_pins(ROOT / "requirements" / "cpu.lock")
    assert missing == set()
    assert set(pins) == needed
    for requirement in roots:
        version = lock_closure.version_of(pins[requirement.name.lower()])
        assert requirement.specifier.contains(version, prereleases=True), requirement


def test_closure_follows_extras_and_markers(monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = {
        "a": ["b[fast]>=1", 'never; sys_platform == "never"'],
        "b": ['c; extra == "fast"', 'd; extra == "slow"', "E_x"],
        "c": ["a"],
        "e-x": ["out"],
    }

    def requires(name: str) -> list[str]:
        if name not in metadata:
            raise lock_closure.importlib.metadata.PackageNotFoundError(name)
        return metadata[name]

    monkeypatch.setattr(lock_closure.importlib.metadata, "requires", requires)
    roots = [Requirement("a"), Requirement("gone")]
    needed, missing = lock_closure.closure(roots, excluded={"out"})
    assert needed == {"a", "b", "c", "e-x", "gone"}
    assert missing == {"gone"}


def make_env(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(ROOT / "scripts" / "make_env.sh"), *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


@pytest.mark.parametrize("version", ["3.10", "3.12"])
def test_make_env_refuses_another_python(version: str, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho {version}\n")
    python.chmod(0o755)
    done = make_env(str(python), str(tmp_path / "venv"), "requirements/cpu.lock")
    assert done.returncode == 2
    assert f'Python 3.11 was not found as "{python}", which is {version}' in done.stderr
    assert not (tmp_path / "venv").exists()


def test_make_help_names_every_target() -> None:
    done = subprocess.run(["make", "-s", "-C", str(ROOT)], capture_output=True, text=True)
    shown = set(re.findall(r"^ +make ([a-z-]+) ", done.stdout, flags=re.MULTILINE))
    assert {"env", "study", "test", "lint", "smoke", "bench", "clean"} <= shown
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert phony is not None
    assert shown == set(phony.group(1).split())


def test_make_study_knows_the_targets_of_the_workflow() -> None:
    rules = re.findall(r"^rule (\w+):", (ROOT / "Snakefile").read_text(), flags=re.MULTILINE)
    found = re.search(r"^TARGETS := (.*)$", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert found is not None
    assert set(found[1].split()) == set(rules)
    call = ["make", "-C", str(ROOT), "study", "TARGET=m4", f"VENV={sys.prefix}", "-o", "env"]
    done = subprocess.run(call, capture_output=True, text=True)
    assert done.returncode == 2
    assert "TARGET=m4 is neither a file nor one of all" in done.stderr


@pytest.mark.parametrize(
    ("gib", "limit", "jobs"), [(7.6, "max", 2), (64, "max", 64), (64, "8589934592", 2), (1, "", 1)]
)
def test_jobs_are_as_many_as_memory_allows(
    tmp_path: Path, gib: float, limit: str, jobs: int
) -> None:
    """One per core, and one per 4 GiB of the machine or of the container."""
    (tmp_path / "meminfo").write_text(f"MemTotal: {int(gib * 2**20)} kB\n")
    (tmp_path / "max").write_text(limit)
    places = {"MEMINFO": str(tmp_path / "meminfo"), "MEMORY_MAX": str(tmp_path / "max")}
    done = subprocess.run(
        [ROOT / "scripts" / "cores.sh"], capture_output=True, text=True, env=os.environ | places
    )
    cores = len(os.sched_getaffinity(0))
    assert (done.returncode, done.stdout) == (0, f"{min(jobs, cores)}\n"), done.stderr


STUB_UV = """#!/bin/sh
if [ "$1" = --version ]; then echo "uv 0"; exit; fi
echo "$@" >>"$UV_CALLS"
case "$*" in *--torch-backend* | *" -e ."*) exit "$UV_STATUS";; esac
echo "no such package: torch" >&2
exit 1
"""
"""Finds no package in pip's indexes; in PyTorch's own as $UV_STATUS says."""


def make_env_with_stub(
    folder: Path, lock: str, status: int = 0
) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """Call make_env.sh with :data:`STUB_UV` on PATH and an environment that is there already.

    Returns:
        How it ended, and the arguments of uv's calls.
    """
    for path, text in (
        (folder / "bin" / "uv", STUB_UV),
        (folder / "venv" / "bin" / "python", f'#!/bin/sh\nexec {sys.executable} "$@"\n'),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    (folder / "own.lock").write_text(lock)
    calls = folder / "calls"
    script = str(ROOT / "scripts" / "make_env.sh")
    done = subprocess.run(
        [script, sys.executable, str(folder / "venv"), str(folder / "own.lock")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=os.environ
        | {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
        | {"UV_CALLS": str(calls), "UV_STATUS": str(status)},
    )
    return done, calls.read_text().splitlines()


def test_make_env_tries_pytorchs_own_index_for_the_cpu_build(tmp_path: Path) -> None:
    done, calls = make_env_with_stub(tmp_path, "six==1.17.0\ntorch==2.13.0+cpu\n")
    assert done.returncode == 0, done.stderr
    assert "Trying again with PyTorch's own index of CPU builds" in done.stderr
    first, again, ours = calls
    assert first.endswith(f"--compile-bytecode -r {tmp_path}/own.lock")
    assert again == first.replace(" -r ", " --torch-backend cpu -r ")
    assert ours.endswith("--no-build-isolation -e .")
    assert (tmp_path / "venv" / ".installed-from").exists()


@pytest.mark.parametrize(
    ("lock", "tries"), [("torch==2.13.0+cpu\n", 2), ("torch==2.13.0\n", 1)], ids=["cpu", "gpu"]
)
def test_make_env_without_packages_says_what_to_configure(
    lock: str, tries: int, tmp_path: Path
) -> None:
    done, calls = make_env_with_stub(tmp_path, lock, status=1)
    assert done.returncode == 2
    assert len(calls) == tries
    assert "pip config set" in done.stderr
    assert not (tmp_path / "venv" / ".installed-from").exists()


@pytest.mark.parametrize(
    ("there", "named", "lock"),
    [
        (None, [], "requirements/cpu.lock"),
        ("requirements/gpu.lock", [], "requirements/gpu.lock"),
        ("requirements/gpu.lock", ["LOCK=requirements/cpu.lock"], "requirements/cpu.lock"),
    ],
)
def test_make_goes_on_with_the_lock_of_the_environment(
    there: str | None, named: list[str], lock: str, tmp_path: Path
) -> None:
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


def test_make_env_moves_the_scripts_of_a_tree_that_moved(tmp_path: Path) -> None:
    binaries = tmp_path / "venv" / "bin"
    binaries.mkdir(parents=True)
    (binaries / "activate").write_text('VIRTUAL_ENV="/old place/venv"\nexport VIRTUAL_ENV\n')
    script = binaries / "tool"
    script.write_text("#!/old place/venv/bin/python\n")
    script.chmod(0o755)
    done, _ = make_env_with_stub(tmp_path, "six==1.17.0\ntorch==2.13.0+cpu\n")
    assert done.returncode == 0, done.stderr
    assert script.read_text() == f"#!{tmp_path}/venv/bin/python\n"
    assert os.access(script, os.X_OK)
    assert f'VIRTUAL_ENV="{tmp_path}/venv"' in (binaries / "activate").read_text()


def test_make_env_lets_uv_find_python_where_there_is_none(tmp_path: Path) -> None:
    """Ubuntu 24.04: Python is 3.12, and no package has 3.11."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in {
        "python3.11": "exit 127",
        "uv": 'echo "$@" >>"$UV_CALLS"; exit 1',
    }.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    venv, calls = tmp_path / "venv", tmp_path / "calls"
    done = subprocess.run(
        [str(ROOT / "scripts" / "make_env.sh"), "python3.11", str(venv), "requirements/cpu.lock"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=os.environ | {"PATH": f"{folder}:{os.environ['PATH']}", "UV_CALLS": str(calls)},
    )
    assert done.returncode == 2
    assert f"--python 3.11 {venv}" in calls.read_text()
    assert "apt install python3-venv" in done.stderr
    assert "apt install python3.11 " not in done.stderr
