"""Write the reference pages that follow from the sources: configuration and command line.

    python scripts/docs_reference.py [build/docs]

``make docs`` calls it in the project's environment. A key without a description is an error.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from typer.cli import get_docs_for_click

from refblend.cli.main import app
from refblend.config import RefblendConfig

OUT = Path(__file__).parents[1] / "build" / "docs"

CONFIGURATION = """# Configuration

Every key of `refblend train`, `check` and `config`, generated from the schema that checks them.
Names are verl's where verl has the key. An unknown key, a wrong type or a value out of range ends
the command with status 2 before any work. Defaults are those of `params/ppo.yaml`,
with two exceptions where that file is not among yours: the blend is off if
`algorithm.ref_quality_score` is left out altogether, and `critic.optim.lr` is 1e-5 only if
`critic.optim` is left out altogether.

Files are given with `--config`, later ones win; single keys as `section.key=value` after them:

```bash
refblend train --config params/ppo.yaml --config mine.yaml \\
  algorithm.ref_quality_score.max_weight=0.2
```

`refblend config` with the same arguments prints the resolved tree, `--schema` the JSON schema.
"""


def sections(
    schema: dict[str, Any], name: str = "", about: str = ""
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Dotted name, description and schema of each section, parents first."""
    if name:
        yield name, about, schema
    for key, part in schema["properties"].items():
        if "properties" in part:
            yield from sections(part, f"{name}.{key}".lstrip("."), part["description"])


def inlined(node: Any, definitions: dict[str, Any]) -> Any:
    """The schema with its references replaced; a field's description precedes its class's."""
    if isinstance(node, list):
        return [inlined(part, definitions) for part in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        target = definitions[node["$ref"].removeprefix("#/$defs/")]
        return inlined(target | {k: v for k, v in node.items() if k != "$ref"}, definitions)
    return {key: inlined(value, definitions) for key, value in node.items() if key != "$defs"}


def kind(schema: dict[str, Any]) -> str:
    """A type in words, with its bounds."""
    if "enum" in schema:
        return " \\| ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if "anyOf" in schema:
        return " or ".join(kind(part) for part in schema["anyOf"])
    if schema.get("type") == "array":
        return f"list of {kind(schema['items'])}" if "items" in schema else "list"
    names = {"string": "text", "object": "mapping", "null": "null"}
    name = names.get(schema.get("type", ""), schema.get("type", "any"))
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    bounds = [f"{sign} {schema[key]:g}" for key, sign in signs.items() if key in schema]
    return " ".join([name, ", ".join(bounds)]).strip()


def default(schema: dict[str, Any]) -> str:
    """The default as it would stand in YAML; a key without one is required."""
    if "default" not in schema:
        return "required"
    value = schema["default"]
    plain = {True: "true", False: "false", None: "null"}
    shown = plain[value] if value is None or isinstance(value, bool) else f"{value}"
    return f"`{shown}`" if shown else '`""`'


def configuration() -> dict[str, str]:
    """The pages of all keys by name: an index, then one per top section, a table per section.

    Raises:
        ValueError: a key has no description.
    """
    whole = RefblendConfig.model_json_schema()
    tree = inlined(whole, whole["$defs"])
    rows = [
        f"| [`{name}`](configuration/{name}.md) | {section['description'].splitlines()[0]} |"
        for name, section in tree["properties"].items()
    ]
    index = [CONFIGURATION, "| Section | |\n|:--|:--|", *rows]
    pages = {"configuration": "\n".join(index) + "\n"}
    for name, section in tree["properties"].items():
        pages[f"configuration/{name}"] = page_of(name, section)
    return pages


def page_of(top: str, tree: dict[str, Any]) -> str:
    """The page of a top section."""
    parts = [f"# {top}"]
    for name, about, section in sections(tree, top, tree["description"]):
        leaves = {k: v for k, v in section["properties"].items() if "properties" not in v}
        parts.append(f"\n## `{name}`\n\n{about}\n")
        if not leaves:
            continue
        parts.append("| Key | Type | Default | Meaning |\n|:--|:--|:--|:--|")
        for key, leaf in leaves.items():
            if not leaf.get("description"):
                raise ValueError(f"{name}.{key} has no description: add a docstring to the field")
            meaning = " ".join(leaf["description"].replace("``", "`").replace("|", "\\|").split())
            parts.append(f"| `{key}` | {kind(leaf)} | {default(leaf)} | {meaning} |")
    return "\n".join(parts) + "\n"


def walk(command: Any) -> Iterator[Any]:
    """All commands below a command."""
    for each in getattr(command, "commands", {}).values():
        yield each
        yield from walk(each)


def command_line() -> str:
    """The page of all commands, by Typer's own generator."""
    command = typer.main.get_command(app)
    for each in walk(command):  # whole sentences, which Typer would cut at 45 characters
        each.short_help = " ".join((each.help or "").split("\n\n")[0].split())
    context = typer.Context(command, info_name="refblend")
    text = get_docs_for_click(obj=command, ctx=context, name="refblend", title="Command line")
    lines = [line for line in text.splitlines() if "-completion`" not in line]
    status = (
        "Status 0: done; 2: an input is wrong, with one line that names it and the remedy; 4: "
        "workers or seeds of a training failed; other codes are said where they occur.\n"
    )
    return "\n".join([lines[0], "", status, *lines[1:]]) + "\n"


def main() -> None:
    """Write all pages below the directory that is given."""
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else OUT
    for name, text in (configuration() | {"command-line": command_line()}).items():
        path = out / "reference" / f"{name}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
