"""What commands share: options, groups of them, and ``--help`` with panels and examples.

The help is plain text, so that ``refblend --help`` loads no library for drawing boxes.
"""

import dataclasses
import functools
import inspect
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from typer import Option
from typer.core import TyperGroup

from refblend.study.design import names

Scale = Annotated[names.Scale, Option(help="Scale of the study.")]
Recipe = Annotated[Path, Option(help="Recipe file, e.g. params/embedded/cpu.yaml.")]
Needed = Annotated[Path, Option()]
"""Of the hidden commands, which only the workflow calls."""


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of each parameter that is a dataclass.

    Typer sees one option per field; the command receives the objects.
    """
    own = inspect.signature(command).parameters
    fields = {
        name: inspect.signature(group).parameters
        for name, group in ((name, parameter.annotation) for name, parameter in own.items())
        if isinstance(group, type) and dataclasses.is_dataclass(group)
    }

    @functools.wraps(command)
    def run(**values: Any) -> None:
        for name, group in fields.items():
            given = {field: values.pop(field) for field in group}
            values[name] = own[name].annotation(**given)
        command(**values)

    shown = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for name, one in own.items()
        for parameter in fields.get(name, {name: one}).values()
    ]
    run.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
    return run


USE, STUDY = "Use", "Study"


class Panels(TyperGroup):
    """A group whose help lists its commands by panel, with their whole summaries."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write one section per panel; commands of no panel come first, hidden ones nowhere."""
        panels: dict[str, list[tuple[str, str]]] = {"Commands": [], USE: [], STUDY: []}
        for name in self.list_commands(ctx):
            command: Any = self.commands[name]
            if not command.hidden:
                row = name, command.get_short_help_str(limit=1000)
                panels[command.rich_help_panel or "Commands"].append(row)
        for panel, rows in panels.items():
            if rows:
                with formatter.section(panel):
                    formatter.write_dl(rows)


def example(command: str) -> str:
    """The epilog of a command: a call of it, on several lines as a shell takes it."""
    lines = textwrap.wrap(f"refblend {command}", 74, subsequent_indent="  ", break_on_hyphens=False)
    return "Example:\n\n\b\n" + " \\\n".join(lines)
