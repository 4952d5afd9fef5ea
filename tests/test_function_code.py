"""Which definitions count for a function, shown on a small package written for the purpose."""

from pathlib import Path

import pytest

from refblend.errors import ConfigError
from refblend.function_code import Functions
from refblend.numeric_code import Source

MODULES = {
    "a.py": """
from refblend import b
from refblend.c import LIMIT, Shape

REPORT = object()
SIZE = 3

@REPORT.figure("one", preview=False)
def one(shape: Shape):
    '''Draw.'''
    return SIZE + b.scale(2)

@REPORT.figure("two")
def two():
    from refblend.d import late
    return late() + LIMIT
""",
    "b.py": "FACTOR = 2\ndef scale(x):\n    return x * FACTOR\ndef unused():\n    return 1\n",
    "c.py": "LIMIT = 1\nclass Shape:\n    def area(self):\n        return LIMIT\n",
    "d.py": "from refblend.b import unused\ndef late():\n    return unused()\n",
}


def functions(root: Path, **changes: tuple[str, str]) -> Functions:
    """The package, each module named in ``changes`` with one text replaced by another."""
    root.mkdir(exist_ok=True)
    for name, text in MODULES.items():
        old, new = changes.get(name.removesuffix(".py"), ("", ""))
        assert old in text
        (root / name).write_text(text.replace(old, new, 1) if old else text)
    return Functions(Source(root))


def test_a_function_stands_for_all_that_it_names(tmp_path: Path) -> None:
    assert functions(tmp_path).used("a.one") == [
        ("a", "SIZE"),
        ("a", "one"),
        ("b", "FACTOR"),
        ("b", "scale"),
        ("c", "LIMIT"),
        ("c", "Shape"),
    ]
    late = [("a", "two"), ("b", "unused"), ("c", "LIMIT"), ("d", "late")]
    assert functions(tmp_path).used("a.two") == late


@pytest.mark.parametrize(
    ("module", "old", "new", "changed"),
    [
        ("a", "'''Draw.'''", "'''Draws.'''", set()),
        ("a", "SIZE = 3", "SIZE = 3  # a remark", set()),
        ("a", "preview=False", "preview=True", set()),
        ("a", "SIZE = 3", "SIZE = 4", {"a.one"}),
        ("b", "FACTOR = 2", "FACTOR = 5", {"a.one"}),
        ("b", "return 1", "return 2", {"a.two"}),
        ("c", "LIMIT = 1", "LIMIT = 9", {"a.one", "a.two"}),
        ("d", "late():", "late(x=0):", {"a.two"}),
    ],
)
def test_what_changes_a_hash(
    tmp_path: Path, module: str, old: str, new: str, changed: set[str]
) -> None:
    before = functions(tmp_path / "before")
    after = functions(tmp_path / "after", **{module: (old, new)})
    names = ("a.one", "a.two")
    assert {name for name in names if before.hash(name) != after.hash(name)} == changed


def test_what_is_not_defined_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"a\.three is not a definition"):
        functions(tmp_path).used("a.three")
