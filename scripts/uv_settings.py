"""Print pip's configuration as shell assignments that mean the same to uv.

    eval "$(python scripts/uv_settings.py)"

uv does not read pip's configuration, where many sites name their mirror, find-links or certificate.
A variable that is set already (``UV_INDEX``, …) wins.
"""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

SETTINGS = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "cert": "SSL_CERT_FILE",
    "no-index": "UV_NO_INDEX",
    "trusted-host": "UV_INSECURE_HOST",
}
"""pip's option → uv's environment variable."""
SEPARATORS = {"UV_FIND_LINKS": ","}
"""Where several values are not separated by a blank."""
LEVELS = ("global", "user", "site", "install", ":env:")
"""Sections of pip's configuration; later ones win."""


def pip_options(lines: Iterable[str]) -> dict[str, list[str]]:
    r"""Option → values, from the lines that ``pip config list`` prints.

    >>> pip_options(["global.find-links='/wheels'", ":env:.find-links='/mine\\n/yours'"])
    {'find-links': ['/mine', '/yours']}
    """
    found: dict[str, tuple[int, list[str]]] = {}
    for line in lines:
        name, _, quoted = line.partition("=")
        section, _, option = name.rpartition(".")
        if option not in SETTINGS or section not in LEVELS:
            continue
        value = quoted.strip().strip("'\"").replace("\\n", " ")
        level = LEVELS.index(section)
        if level >= found.get(option, (-1, []))[0]:
            found[option] = (level, value.split())
    return {option: values for option, (_, values) in found.items()}


def usable(option: str, values: list[str]) -> list[str]:
    """Without local folders that are not there: pip passes over them, uv would stop."""
    if option not in ("extra-index-url", "find-links"):
        return values
    local = {value: value.removeprefix("file://") for value in values}
    return [v for v, path in local.items() if "://" in path or Path(path).exists()]


def assignments(options: Mapping[str, list[str]], environment: Mapping[str, str]) -> list[str]:
    """``export NAME=value`` for every option whose variable is not set yet."""
    lines = []
    for option, values in options.items():
        variable = SETTINGS[option]
        kept = usable(option, values)
        if kept and variable not in environment:
            text = SEPARATORS.get(variable, " ").join(kept)
            lines.append(f"export {variable}={shlex.quote(text)}")
    # pip takes the best version of all indexes; uv would stop at the first that has the name.
    if "UV_INDEX_STRATEGY" not in environment:
        lines.append("export UV_INDEX_STRATEGY=unsafe-best-match")
    return lines


def main() -> None:
    """Ask pip for its configuration and print it for uv."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "config", "list"]
    asked = subprocess.run(command, check=False, capture_output=True, text=True)
    # A system's Python may have no pip, and then nobody has configured it.
    print("\n".join(assignments(pip_options(asked.stdout.splitlines()), os.environ)))


if __name__ == "__main__":
    main()
