"""The environment's files: locks, their pruning, and `make env`."""

import re
import subprocess
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


def test_make_env_without_python(tmp_path: Path) -> None:
    done = make_env("python3.11-absent", str(tmp_path / "venv"), "requirements/cpu.lock")
    assert done.returncode == 2
    assert "Python 3.11 was not found" in done.stderr
    assert "PYTHON=" in done.stderr
    assert not (tmp_path / "venv").exists()


@pytest.mark.parametrize("version", ["3.10", "3.12", "3.13"])
def test_make_env_refuses_another_python(version: str, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho {version}\n")
    python.chmod(0o755)
    done = make_env(str(python), str(tmp_path / "venv"), "requirements/cpu.lock")
    assert done.returncode == 2
    assert f'Python 3.11 was not found as "{python}", which is {version}' in done.stderr
    assert "3.12 and 3.13" in done.stderr
    assert not (tmp_path / "venv").exists()


def test_make_env_without_lock(tmp_path: Path) -> None:
    done = make_env("python3.11", str(tmp_path / "venv"), "requirements/no.lock")
    assert done.returncode == 2
    assert "no.lock does not exist" in done.stderr


def test_make_help_names_every_target() -> None:
    done = subprocess.run(["make", "-s", "-C", str(ROOT)], capture_output=True, text=True)
    shown = set(re.findall(r"^ +make ([a-z-]+) ", done.stdout, flags=re.MULTILINE))
    assert {"env", "study", "test", "lint", "smoke", "bench", "clean"} <= shown
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert phony is not None
    assert shown == set(phony.group(1).split())


@pytest.mark.parametrize(("asked", "scale"), [((), "smoke"), (("SCALE=cpu",), "cpu")])
def test_prepare_makes_the_smallest_scale_or_the_one_that_is_asked_for(
    asked: tuple[str, ...], scale: str
) -> None:
    done = subprocess.run(
        ["make", "--dry-run", "prepare", *asked], cwd=ROOT, capture_output=True, text=True
    )
    (call,) = re.findall(r"snakemake prepare .*", done.stdout)
    assert call.endswith(f" scale={scale}")
