"""Files that other tools and sites expect."""

import fnmatch
import json
import re
import tomllib
from pathlib import Path

import jsonschema
import pytest
import yaml

import refblend

ROOT = Path(__file__).parents[2]


def test_the_log_that_the_how_to_follows_is_written() -> None:
    """``tail -f <path>``: the training rule's log, its wildcards filled in."""
    page = (ROOT / "docs" / "how-to" / "stability.md").read_text()
    (shown,) = re.findall(r"`tail -f (\S+)`", page)
    rule = (ROOT / "workflow" / "rules" / "train.smk").read_text()
    (log,) = re.findall(r'log:\n\s+"(.+)",', rule)
    assert fnmatch.fnmatch(log.format(scale="cpu", arm="linear", seeds="1-2-3"), shown)


def test_the_citation_is_of_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == refblend.__version__
    assert {"cff-version", "message", "title", "authors", "license"} <= set(citation)


def test_the_container_is_built_from_files_that_exist() -> None:
    folder = ROOT / ".devcontainer"
    container = json.loads((folder / "devcontainer.json").read_text(encoding="utf-8"))
    schema = json.loads(Path(__file__).with_name("devcontainer.schema.json").read_text("utf-8"))
    jsonschema.validate(container, schema)
    dockerfile = folder / container["build"]["dockerfile"]
    assert dockerfile.resolve() == ROOT / "Dockerfile"
    text = dockerfile.read_text(encoding="utf-8")
    sources = re.findall(r"^COPY --chown=\w+ (.+) \S+$", text, re.MULTILINE)
    named = [name for line in sources for name in line.split()]
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []
    assert f"useradd --create-home --uid 1000 {container['remoteUser']}" in text


@pytest.mark.parametrize("path", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("[!c]*.yml")))
def test_issue_forms(path: Path) -> None:
    form = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert {"name", "description", "body"} <= set(form)
    for part in form["body"]:
        assert part["type"] in ("textarea", "input", "dropdown", "markdown", "checkboxes")
        assert part["attributes"]["label"]
    ids = [part["id"] for part in form["body"]]
    assert len(ids) == len(set(ids))


def test_the_catalog_finds_the_workflow() -> None:
    usage = yaml.safe_load((ROOT / ".snakemake-workflow-catalog.yml").read_text())["usage"]
    assert {"mandatory-flags", "software-stack-deployment", "report"} <= set(usage)
    assert (ROOT / "Snakefile").is_file()
    text = (ROOT / "config" / "README.md").read_text(encoding="utf-8")
    files = re.findall(r"`(params/[\w/]+\.yaml)`", text)
    assert len(files) == 3
    assert [name for name in files if not (ROOT / name).is_file()] == []


def test_the_layers_in_the_picture_are_those_of_the_contract() -> None:
    """Each row of the picture is a row of the contract; see scripts/layers.py."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    (layers,) = [c["layers"] for c in contracts["contracts"] if c["id"] == "layers"]
    picture = (ROOT / "docs/assets/layers.svg").read_text("utf-8")
    rows: dict[int, list[str]] = {}
    for top, name in re.findall(r'<text x="[^"]+" y="(\d+)">([^<]+)</text>', picture):
        rows.setdefault(int(top), []).append(name)
    drawn = [" | ".join(names) for _, names in sorted(rows.items())]
    assert drawn == layers, "call `python scripts/layers.py`"


def test_the_rules_in_the_picture_are_rules() -> None:
    drawn = set(
        re.findall(
            r"<text[^>]*>([^<]+)</text>", (ROOT / "docs/assets/rules.svg").read_text("utf-8")
        )
    )
    rules = {
        name
        for path in (ROOT / "Snakefile", *(ROOT / "workflow" / "rules").glob("*.smk"))
        for name in re.findall(
            r"^\s*(?:rule|use rule \w+ as) (\w+)[: ]", path.read_text("utf-8"), re.MULTILINE
        )
    }
    assert len(drawn) > 10
    tables = {name for name in drawn if name.endswith("_tables")}  # one rule for each milestone
    assert drawn - tables <= rules, "call `make rules`"
