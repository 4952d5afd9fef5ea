"""The limits that keep the code readable: short functions, few parameters."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "refblend"


def functions() -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{path.relative_to(SOURCE)}:{node.name}", node


def test_no_function_is_longer_than_a_page() -> None:
    lengths = {name: node.end_lineno - node.lineno + 1 for name, node in functions()}
    assert len(lengths) > 1000
    assert {name: length for name, length in lengths.items() if length > 60} == {}


def test_no_function_takes_more_than_seven_parameters() -> None:
    many = {}
    for name, node in functions():
        arguments = node.args
        taken = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        count = len([each for each in taken if each.arg not in ("self", "cls")])
        if count > 7 and not name.startswith("ppo/"):  # verl's keywords
            many[name] = count
    assert many == {}
