"""What pip is configured with holds for uv."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "uv_settings.py"


@pytest.fixture(scope="module")
def uv_settings() -> ModuleType:
    spec = importlib.util.spec_from_file_location("uv_settings", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_environment_wins_over_files(uv_settings: ModuleType) -> None:
    lines = [
        ":env:.find-links='/mine'",
        "global.find-links='/wheels'",
        "user.index-url='https://mirror.example/simple'",
        "global.timeout='60'",
    ]
    assert uv_settings.pip_options(lines) == {
        "find-links": ["/mine"],
        "index-url": ["https://mirror.example/simple"],
    }


def test_several_values_are_written_as_uv_reads_them(
    uv_settings: ModuleType, tmp_path: Path
) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.mkdir()
    second.mkdir()
    options = {
        "find-links": [str(first), str(second), str(tmp_path / "gone")],
        "extra-index-url": [f"file://{first}", "https://mirror.example/simple", "file:///gone"],
    }
    assert uv_settings.assignments(options, {}) == [
        f"export UV_FIND_LINKS={first},{second}",
        f"export UV_INDEX='file://{first} https://mirror.example/simple'",
        "export UV_INDEX_STRATEGY=unsafe-best-match",
    ]


def test_what_is_set_for_uv_stays(uv_settings: ModuleType) -> None:
    environment = {"UV_DEFAULT_INDEX": "https://own.example", "UV_INDEX_STRATEGY": "first-index"}
    options = {"index-url": ["https://mirror.example/simple"], "cert": ["/etc/ca.pem"]}
    assert uv_settings.assignments(options, environment) == ["export SSL_CERT_FILE=/etc/ca.pem"]
