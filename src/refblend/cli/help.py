"""``--help``: panels of commands, and an example for each command.

Plain text, so that ``refblend --help`` loads no library for drawing boxes.
"""

import textwrap
from typing import Any

from typer.core import TyperGroup

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
    lines = textwrap.wrap(
        command, 74, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
    return "Example:\n\n\b\n" + " \\\n".join(lines)
