"""Files that other tools and sites expect; `make package` runs those tools' linters."""

import json
import re
import tomllib
from pathlib import Path

import yaml

import refblend

ROOT = Path(__file__).parents[2]


def test_the_citation_is_of_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == refblend.__version__
    assert {"cff-version", "message", "title", "authors", "license"} <= set(citation)


def test_the_container_is_built_from_files_that_exist() -> None:
    folder = ROOT / ".devcontainer"
    container = json.loads((folder / "devcontainer.json").read_text(encoding="utf-8"))
    dockerfile = folder / container["build"]["dockerfile"]
    assert dockerfile.resolve() == ROOT / "Dockerfile"
    text = dockerfile.read_text(encoding="utf-8")
    sources = re.findall(r"^COPY --chown=\w+ (.+) \S+$", text, re.MULTILINE)
    named = [name for line in sources for name in line.split()]
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_layers_on_the_page_are_those_of_the_contract() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    (layers,) = [c["layers"] for c in contracts["contracts"] if c["id"] == "layers"]
    page = (ROOT / "docs/explanation/design.md").read_text("utf-8")
    assert "```\n" + "\n".join(layers) + "\n```" in page
