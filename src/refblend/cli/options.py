"""Options that commands share, and groups of options: a command takes a dataclass, Typer sees one
option per field."""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from refblend.study.design import names

Scale = Annotated[names.Scale, typer.Option(help="Scale of the study.")]
Recipe = Annotated[Path, typer.Option(help="Recipe file, e.g. params/embedded/cpu.yaml.")]
Needed = Annotated[Path, typer.Option()]
"""Of the hidden commands, which only the workflow calls."""


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of each parameter that is a dataclass.

    Typer sees one option per field; the command receives the objects.
    """
    own = inspect.signature(command).parameters.values()
    groups: dict[str, Callable[..., Any]] = {
        p.name: p.annotation
        for p in own
        if isinstance(p.annotation, type) and dataclasses.is_dataclass(p.annotation)
    }
    fields = {name: inspect.signature(group).parameters for name, group in groups.items()}

    @functools.wraps(command)
    def run(**values: Any) -> None:
        objects = {
            name: group(**{field: values.pop(field) for field in fields[name]})
            for name, group in groups.items()
        }
        command(**objects, **values)

    shown = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for p in own
        for parameter in (fields[p.name].values() if p.name in fields else [p])
    ]
    run.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
    return run
