"""The code behind single functions: a hash over them and everything in the package that they use.

:mod:`refblend.numeric_code` works on modules, which is right for training. Figures need a finer
resolution: many share a module, and a change of one must not redraw the others. Here a function
represents itself and every function, class and constant of the package that it names, directly or
indirectly, as read from the source without importing anything. Docstrings and comments do not
count, nor do decorators that only register (``@REPORT.figure(...)``).
"""

import ast
import functools
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from refblend.errors import ConfigError
from refblend.numeric_code import Source, installed, syntax, without_effect

REGISTRY = "REPORT"
"""Name of the object whose decorators only register."""


@dataclass(frozen=True)
class Module:
    """Definitions and imports at a module's top level."""

    definitions: dict[str, list[ast.stmt]] = field(default_factory=dict)
    imports: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Name → (module, name within it); an empty name within it: the module itself."""


class Functions:
    """Definitions of the package and what they use."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._modules: dict[str, Module] = {}
        self._used: dict[tuple[str, str], set[tuple[str, str]]] = {}
        self._texts: dict[tuple[str, str], bytes] = {}

    def used(self, *entries: str) -> list[tuple[str, str]]:
        """Sorted (module, name) behind e.g. ``study.runs.collect.collect``, or ConfigError."""
        found: set[tuple[str, str]] = set()
        waiting = [self._entry(entry) for entry in entries]
        while waiting:
            module, name = waiting.pop()
            if (module, name) in found or without_effect(module) or not self.source.has(module):
                continue
            known = self._module(module)
            if name in known.definitions:
                found.add((module, name))
                waiting += self._uses(module, name)
            elif name in known.imports:  # handed on by a module that imports it
                waiting.append(known.imports[name])
        return sorted(found)

    def hash(self, *entries: str) -> str:
        """SHA-256 over the definitions behind entries."""
        digest = hashlib.sha256()
        for module, name in self.used(*entries):
            digest.update(self._text(module, name))
        return digest.hexdigest()

    def _text(self, module: str, name: str) -> bytes:
        """The definitions of a name as text."""
        if (module, name) not in self._texts:
            statements = self._module(module).definitions[name]
            lines = [f"{module}\0{name}\0{syntax(_undecorated(s))}\n" for s in statements]
            self._texts[module, name] = "".join(lines).encode()
        return self._texts[module, name]

    def _entry(self, entry: str) -> tuple[str, str]:
        module, _, name = entry.rpartition(".")
        if not self.source.has(module) or name not in self._module(module).definitions:
            raise ConfigError(
                f"{entry} is not a definition of refblend", "Name it as module.function."
            )
        return module, name

    def _module(self, module: str) -> Module:
        if module not in self._modules:
            known = Module()
            for statement in self.source.tree(module).body:
                for name in _defined(statement):
                    known.definitions.setdefault(name, []).append(statement)
                known.imports.update(self._imported(ast.walk(statement)))
            self._modules[module] = known
        return self._modules[module]

    def _imported(self, nodes: Iterable[ast.AST]) -> Iterator[tuple[str, tuple[str, str]]]:
        """Names that nodes of a tree import from the package."""
        for node in nodes:
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("refblend"):
                base = (node.module or "").partition(".")[2]
                for alias in node.names:
                    submodule = f"{base}.{alias.name}".lstrip(".")
                    inner = (submodule, "") if self.source.has(submodule) else (base, alias.name)
                    yield alias.asname or alias.name, inner

    def _uses(self, module: str, name: str) -> set[tuple[str, str]]:
        """Definitions that those of a name refer to."""
        if (module, name) not in self._used:
            statements = self._module(module).definitions[name]
            self._used[module, name] = set(self._named(module, statements))
        return self._used[module, name]

    def _named(self, module: str, statements: list[ast.stmt]) -> Iterator[tuple[str, str]]:
        """Definitions that statements name: of the same module, imported, or of a module."""
        known = self._module(module)
        for statement in map(_undecorated, statements):
            nodes = list(ast.walk(statement))
            imports = known.imports | dict(self._imported(nodes))
            for node in nodes:
                if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                    base, name = imports.get(node.value.id, ("", "x"))
                    if base and not name:
                        yield base, node.attr
                if isinstance(node, ast.Name):
                    if node.id in imports:
                        yield imports[node.id]
                    elif node.id in known.definitions:
                        yield module, node.id


def functions_hash(*entries: str) -> str:
    """Hash of this installation's code behind functions; see :meth:`Functions.used`."""
    return _installed().hash(*entries)


@functools.cache
def _installed() -> Functions:
    return Functions(installed())


def _defined(statement: ast.stmt) -> list[str]:
    """Names that a statement at the top level defines."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [statement.name]
    if isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        nodes = [node for target in targets for node in ast.walk(target)]
        return [node.id for node in nodes if isinstance(node, ast.Name)]
    return []


def _undecorated(statement: ast.stmt) -> ast.stmt:
    """A function without the decorators that only register it."""
    if isinstance(statement, ast.FunctionDef):
        kept = [d for d in statement.decorator_list if not ast.unparse(d).startswith(REGISTRY)]
        if len(kept) < len(statement.decorator_list):
            fields = {name: getattr(statement, name) for name in statement._fields}
            return ast.FunctionDef(**fields | {"decorator_list": kept})
    return statement
