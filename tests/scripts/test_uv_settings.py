"""What pip is configured with holds for uv."""

from pathlib import Path

import uv_settings


def test_the_environment_wins_over_files() -> None:
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


def test_several_values_are_written_as_uv_reads_them(tmp_path: Path) -> None:
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


def test_what_is_set_for_uv_stays() -> None:
    environment = {"UV_DEFAULT_INDEX": "https://own.example", "UV_INDEX_STRATEGY": "first-index"}
    options = {"index-url": ["https://mirror.example/simple"], "cert": ["/etc/ca.pem"]}
    assert uv_settings.assignments(options, environment) == ["export SSL_CERT_FILE=/etc/ca.pem"]
