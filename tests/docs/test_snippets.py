"""What the documentation shows exists: commands, options, keys, targets; and snippets parse."""

import ast
import json
import re
import runpy
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from refblend.cli.main import app
from refblend.config import RefblendConfig
from refblend.config.loading import read_yaml
from refblend.documents import flatten, parse_yaml
from refblend.ppo.weights import StepContext, WeightParams

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
INLINE = re.compile(r"(?<!`)`(refblend\s[^`]+)`(?!`)")
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(*languages: str) -> Iterator[tuple[str, str]]:
    for page in PAGES:
        for language, text in FENCE.findall(page.read_text(encoding="utf-8")):
            if language in languages:
                yield page.relative_to(ROOT).as_posix(), text


def schema_has(dotted: str) -> bool:
    """Whether the configuration has the key; below a mapping of the user's own, any."""
    whole = RefblendConfig.model_json_schema()
    node = whole
    for part in dotted.split("."):
        while "$ref" in node:
            node = whole["$defs"][node["$ref"].rsplit("/", 1)[1]]
        if "properties" not in node:
            return node.get("type") == "object"
        if part not in node["properties"]:
            return False
        node = node["properties"][part]
    return True


def commands() -> Iterator[tuple[str, list[str]]]:
    """Page and words of every call in a block of shell commands."""
    for page, text in blocks("", "bash", "console", "sh"):
        for line in re.sub(r"\\\n\s*", " ", text).splitlines():
            if re.match(r"\s*(\$ )?(\.venv/bin/)?(refblend|make)\s", line):
                words = shlex.split(line.replace("…", " "), comments=True)
                yield page, [word.removeprefix(".venv/bin/") for word in words if word != "$"]


def inline_commands() -> Iterator[tuple[str, list[str]]]:
    """The same of calls of refblend within a sentence or a table."""
    for page in PAGES:
        text = FENCE.sub("", page.read_text(encoding="utf-8"))
        for call in INLINE.findall(text):
            yield page.relative_to(ROOT).as_posix(), shlex.split(call.replace("…", " "))


def test_extras_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    text = "\n".join(page.read_text() for page in [ROOT / "CONTRIBUTING.md", *PAGES])
    named = re.findall(r"--extra ([\w-]+)", text)
    for listed in re.findall(r"\.\[([\w,-]+)\]", text):
        named += listed.split(",")
    assert len(named) > 4
    assert set(named) <= project["optional-dependencies"].keys()


def test_there_is_something_to_check() -> None:
    found = list(commands())
    assert len(found) > 25
    assert len(list(inline_commands())) > 50
    assert {words[0] for _, words in found} == {"refblend", "make"}


@pytest.mark.parametrize(
    ("page", "words"), [*(c for c in commands() if c[1][0] == "refblend"), *inline_commands()]
)
def test_commands_options_and_keys_exist(page: str, words: list[str]) -> None:
    command: Any = typer.main.get_command(app)
    rest = words[1:]
    while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
        assert rest[0] in command.commands, f"{page}: {shlex.join(words)}"
        command = command.commands[rest.pop(0)]
    options = {name for part in command.params for name in (*part.opts, *part.secondary_opts)}
    given = {word.split("=")[0] for word in rest if word.startswith("--")} - {"--help"}
    assert given <= options, f"{page}: {shlex.join(words)}"
    if command.name in ("train", "check", "config"):
        keys = [word.split("=")[0] for word in rest if re.match(r"[a-z_]+\.[\w.]+=", word)]
        assert [key for key in keys if not schema_has(key)] == [], page


def test_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    heads = re.findall(r"^([\w./ -]+):", makefile, re.MULTILINE)
    targets = {target for head in heads for target in head.split()}
    for page, words in commands():
        if words[0] == "make":
            wanted = {word for word in words[1:] if "=" not in word and not word.startswith("-")}
            assert wanted <= targets, f"{page}: {shlex.join(words)}"


@pytest.mark.parametrize(("page", "text"), list(blocks("yaml")))
def test_configurations_are_possible(page: str, text: str) -> None:
    tree = parse_yaml(text)
    sections = set(RefblendConfig.model_fields)
    if set(tree) <= sections:
        assert [key for key in flatten(tree) if not schema_has(key)] == [], page
    for arm in (tree.get("arms") or {}).values():
        assert [key for key in arm if not schema_has(key)] == [], page


@pytest.mark.parametrize(("page", "text"), list(blocks("python", "json")))
def test_code_and_records_parse(page: str, text: str) -> None:
    try:
        json.loads(text) if text.lstrip().startswith("{") else ast.parse(text)
    except (ValueError, SyntaxError) as error:
        pytest.fail(f"{page}: {error}")


def test_the_strategy_of_the_how_to_is_one() -> None:
    text = (ROOT / "docs" / "how-to" / "strategy.md").read_text(encoding="utf-8")
    (code,) = (body for language, body in FENCE.findall(text) if language == "python")
    made: dict[str, Any] = {}
    exec(code, made)
    at = StepContext(1, 10)
    params = WeightParams(max_weight=0.4, entropy_high_threshold=2.0)
    found = [made["square"](entropy, params, at) for entropy in (0.0, 1.0, 3.0)]
    assert found == pytest.approx([0.4, 0.1, 0.0])


def test_every_page_is_in_the_navigation() -> None:
    navigation = set(re.findall(r"([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert pages - navigation == {"index.md"} - navigation


def test_every_key_and_command_is_in_the_generated_pages() -> None:
    pages = runpy.run_path(str(ROOT / "scripts" / "docs_reference.py"))
    text = "\n".join(pages["configuration"]().values())
    parts = re.split(r"^## `([\w.]+)`$", text, flags=re.MULTILINE)
    shown = {
        f"{section}.{key}"
        for section, table in zip(parts[1::2], parts[2::2], strict=True)
        for key in re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    }
    wanted = set(flatten(read_yaml(ROOT / "params" / "ppo.yaml")))
    assert shown == wanted
    for name in typer.main.get_command(app).commands:
        assert f"## `refblend {name}`" in pages["command_line"]()
