"""``--help``: panels of commands, and an example for each command.

Plain text, so that ``refblend --help`` loads no library for drawing boxes.
"""

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


def example(command: str, width: int = 74) -> str:
    """The epilog of a command: a call of it, on several lines as a shell takes it."""
    lines = [""]
    for word in command.split():
        if lines[-1] and len(lines[-1]) + len(word) > width:
            lines[-1] += " \\"
            lines.append(f"  {word}")
        else:
            lines[-1] = f"{lines[-1]} {word}" if lines[-1] else word
    return "Example:\n\n\b\n" + "\n".join(lines)
