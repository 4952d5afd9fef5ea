"""Files that other tools and sites expect; the numbers in the README are those of the tables."""

import fnmatch
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pandas as pd
import pytest
import yaml

import refblend

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
TABLES = ROOT / "results" / "cpu"


def bracketed(value: float, low: float, high: float, sign: str = "") -> str:
    numbers = [f"{number:{sign}.3f}".replace("-", "−") for number in (value, low, high)]
    return f"{numbers[0]} [{numbers[1]}, {numbers[2]}]"


def below(row: Any, text: str) -> bool:
    """Whether a text has the difference of a verdict as one downwards."""
    size = bracketed(-row.estimate, -row.high, -row.low)
    return f"{size} lower" in text or f"{size} below" in text


def test_the_finding_is_what_the_tables_say() -> None:
    found = README[README.index("## What came out") : README.index("## When to use")]
    found = " ".join(found.split())
    table = pd.read_csv(TABLES / "verdicts.csv")
    primary = table[table.primary]
    named = primary[primary.verdict != "undecided"]
    said = {
        (row.treated, row.reference, row.endpoint): bracketed(row.estimate, row.low, row.high, "+")
        for row in named.itertuples()
    }
    quoted = {pair for pair, text in said.items() if text in found}
    quoted |= {
        (row.treated, row.reference, row.endpoint)
        for row in named.itertuples()
        if below(row, found)
    }
    assert {pair[:2] for pair in set(said) - quoted} == {
        ("linear_terminal", "linear"), ("dr_w06", "dr_off"),
    }  # fmt: skip
    for row in primary[primary.experiment == "I"].itertuples():
        assert f"{bracketed(row.estimate, row.low, row.high, '+')}, {row.verdict}" in found
    verdicts = {(row.treated, row.reference): row.verdict for row in primary.itertuples()}
    real = [arm for arm, base in verdicts if base == "off" and arm != "oracle"]
    assert [verdicts[arm, "off"] for arm in real].count("better") == 0
    mixed = table.query("treated == 'constant_terminal_mixed' and reference == 'off'").iloc[0]
    assert (mixed.verdict, mixed.primary) == ("equivalent", False)
    assert bracketed(mixed.estimate, mixed.low, mixed.high, "+") in found
    followed = table.query("experiment == 'L' and reference == 'off'").iloc[0]
    assert (followed.verdict, followed.primary) == ("worse", False)
    assert below(followed, found)
    for treated, against in (
        ("linear_terminal_t12", "linear_terminal_t06"),
        ("linear_terminal", "off"),
    ):
        (row,) = table.query(
            "experiment in ['A', 'C'] and endpoint == 'test_sampled' and not primary "
            f"and treated == {treated!r} and reference == {against!r}"
        ).itertuples()
        assert row.verdict == "worse"
        assert below(row, found)
    illustrating = table[table.experiment.isin(["A", "B", "H", "N"])]
    for row in illustrating[illustrating.verdict == "equivalent"].itertuples():
        if row.endpoint == "test_sampled":
            assert bracketed(row.estimate, row.low, row.high, "+") in found
    usual = illustrating[illustrating.contrast.str.contains("the usual, no blend")]
    for row in usual.itertuples():
        assert (row.verdict == "worse") == (bracketed(row.estimate, row.low, row.high) in found)
    placed = illustrating[illustrating.contrast == "terminal − per token"].query("added == 2")
    assert list(placed.verdict) == ["better"] * 4
    for row in (placed.loc[placed.estimate.idxmin()], placed.loc[placed.estimate.idxmax()]):
        assert f"{bracketed(row.estimate, row.low, row.high)} (`{row.reference}`)" in found
    maps = illustrating.query("reference == 'linear' and contrast == 'another map − linear'")
    assert set(maps[maps.verdict == "better"].treated) == {"cosine", "exp"}
    assert set(illustrating[illustrating.experiment == "B"].verdict) == {"undecided"}
    undecided = (primary.verdict == "undecided").sum()
    assert f"**Undecided**: {undecided} of {len(primary)} primary contrasts" in found
    runs = pd.read_csv(TABLES / "runs.csv")
    assert f"{len(runs)} runs" in found
    assert set(runs.status) == {"finished"}
    records = {
        "recommended": "off",
        "regimes/sparse": "sparse_judge",
        "regimes/noisy": "noisy_judge",
    }
    for name, arm in records.items():
        assert json.loads((TABLES / "m3" / f"{name}.json").read_text())["arm"] == arm


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
