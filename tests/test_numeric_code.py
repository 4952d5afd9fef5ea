"""What the hashes of numeric code follow, on copies of the package's source."""

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from refblend import numeric_code
from refblend.errors import ConfigError
from refblend.numeric_code import PURPOSES, SAME_NUMBERS, WITHOUT_EFFECT, Source, syntax

EVERYTHING = set(PURPOSES)
TRAINED_MODELS = {"actor", "judge_pairs", "judge"}


@pytest.fixture(scope="module")
def original() -> dict[str, str]:
    source = Source()
    return {purpose: source.hash(purpose) for purpose in PURPOSES}


@pytest.fixture
def package(tmp_path: Path) -> Path:
    ignored = shutil.ignore_patterns("__pycache__")
    return shutil.copytree(numeric_code.PACKAGE, tmp_path / "refblend", ignore=ignored)


def changed(package: Path, original: dict[str, str]) -> set[str]:
    """The purposes whose hash is another one than before the change."""
    source = Source(package)
    return {purpose for purpose in PURPOSES if source.hash(purpose) != original[purpose]}


def with_constant(path: Path) -> None:
    """Add a constant at the end: the smallest change that could alter a number."""
    path.write_text(path.read_text() + "\n_SEVENTEEN = 17\n")


def test_a_copy_elsewhere_has_the_same_hashes(package: Path, original: dict[str, str]) -> None:
    assert changed(package, original) == set()
    assert len(set(original.values())) == len(PURPOSES)


def test_forms_that_count_as_earlier_ones_are_the_present_ones() -> None:
    """An entry that no module has any more would only mislead."""
    source, package = Source(), numeric_code.PACKAGE
    modules = [
        ".".join(path.relative_to(package).with_suffix("").parts) for path in package.rglob("*.py")
    ]
    present = {source.digest(name) for name in modules if not name.endswith("__init__")}
    assert set(SAME_NUMBERS) <= present
    assert not set(SAME_NUMBERS.values()) & present


def test_words_and_layout_change_nothing(package: Path, original: dict[str, str]) -> None:
    files = sorted(package.rglob("*.py"))
    for path in files:
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            # Docstrings get other words; ast.unparse drops comments and lays the text out anew.
            if numeric_code._is_bare_text(node):
                assert isinstance(node, ast.Expr)
                node.value = ast.Constant("other words")
        text = ast.unparse(tree)
        path.write_text(f'"""Other words."""\n# A comment.\n\n{text}\n')
    assert len(files) > 100
    assert changed(package, original) == set()


def test_a_removed_docstring_changes_nothing() -> None:
    with_words = 'def f(x):\n    """Half of x."""\n    return x / 2  # exact\nA = 1\n"""One."""\n'
    without = "def f( x ) :\n  return (x/2)\nA = 1"
    assert syntax(ast.parse(with_words)) == syntax(ast.parse(without))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("a = 1", "a = 1.0"),
        ("a = 1", "a = True"),
        ("a = 1", "a = '1'"),
        ("a = b'x'", "a = 'x'"),
        ("a = None", "a = ''"),
        ("a = x + y", "a = y + x"),
        ("a = -1", "a = +1"),
        ("f(a, b=1)", "f(a, c=1)"),
        ("f(*a)", "f(a)"),
        ("from a import b", "from a import c as b"),
        ("a = {**b, 'c': 1}", "a = {'c': 1, **b}"),
        ("return_ = 'text'", "return_ = 'Text'"),
    ],
)
def test_what_can_change_a_number_is_seen(first: str, second: str) -> None:
    assert syntax(ast.parse(first)) != syntax(ast.parse(second))


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        # The judge's options are read from the configuration, which lists the strategies.
        ("ppo/weights.py", {"train", "measure_judges", "test_accuracy", "reports"}),
        ("ppo/losses.py", {"train"}),
        ("workers/ranks.py", {"train"}),
        ("trainer/shaping.py", {"train"}),
        ("trainer/console.py", set()),
        ("cli/main.py", set()),
        ("lifecycle/guardian.py", set()),
        ("scoring/clipping.py", {"train", "measure_judges"}),
        ("scoring/measure/attacks.py", {"measure_judges"}),
        ("embedded/judge_training.py", {"judge"}),
        ("embedded/judge_data.py", {"judge_pairs", "judge"}),
        ("embedded/sft.py", {"actor", "judge"}),
        ("embedded/actor_quality.py", {"measure_actor"}),
        ("embedded/prepare.py", {"data"}),
        ("data/gsm8k.py", {"gsm8k"}),
        ("study/runs/evaluate.py", {"test_accuracy", "reports"}),
        ("study/report/m1/study.py", {"reports"}),
        # a reward and the problems of scale smollm read it, too
        ("data/splits.py", {"gsm8k", "train", "data", *TRAINED_MODELS}),
        ("rollout/vllm_engine.py", {"train", "measure_judges", "test_accuracy"}),
        ("seeding.py", EVERYTHING),
    ],
)
def test_a_constant_changes_what_depends_on_it(
    package: Path, original: dict[str, str], module: str, expected: set[str]
) -> None:
    with_constant(package / module)
    assert changed(package, original) - {"reports"} == expected - {"reports"}
    if "reports" in expected:
        assert Source(package).hash("reports") != original["reports"]


def test_a_new_module_of_the_study_changes_no_number(
    package: Path, original: dict[str, str]
) -> None:
    (package / "study" / "later.py").write_text("ANSWER = 42\n")
    assert changed(package, original) == {"reports"}


def test_a_new_file_of_the_scoring_is_covered_without_being_named(
    package: Path, original: dict[str, str]
) -> None:
    new = package / "scoring" / "later.py"
    new.write_text("ANSWER = 42\n")
    assert "train" in changed(package, original)
    # Once something of the judges' training imports it, it counts there too.
    prompts = package / "scoring" / "prompts.py"
    prompts.write_text(f"{prompts.read_text()}\nfrom refblend.scoring import later  # noqa\n")
    before = Source(package).hash("judge")
    with_constant(new)
    assert Source(package).hash("judge") != before
    assert Source(package).hash("actor") == original["actor"]


def test_imports_within_functions_count_and_those_for_type_checkers_do_not(package: Path) -> None:
    (package / "embedded" / "actor.py").write_text(
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from refblend.ppo.kl import kl_penalty\n"
        "def f():\n    if True:\n        from refblend import seeding\n    return seeding\n"
    )
    assert Source(package).modules("actor") == ["embedded.actor", "seeding"]


def interpreted(*modules: str) -> set[str]:
    """Names below refblend of all modules that a new process has after importing these."""
    code = f"import sys, {', '.join(modules)}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {name.removeprefix("refblend.") for name in done.stdout.split()}


@pytest.mark.parametrize(
    ("purpose", "entries"),
    [
        ("judge", ("refblend.embedded.judge_training",)),
        ("train", ("refblend.trainer.ray_trainer", "refblend.workers.fsdp_workers")),
        (
            "measure_judges",
            ("refblend.scoring.measure.attacks",),
        ),
    ],
)
def test_whatever_python_imports_is_covered(purpose: str, entries: tuple[str, ...]) -> None:
    """The oracle is the interpreter, which loads all of `config` to read one base class in it."""
    loaded = interpreted(*entries)
    files = {
        ".".join(path.relative_to(numeric_code.PACKAGE).with_suffix("").parts)
        for path in numeric_code.PACKAGE.rglob("*.py")
        if path.name != "__init__.py"
    }
    missing = (loaded & files) - set(Source().modules(purpose))
    unused = interpreted("refblend.config") if purpose != "train" else set()
    assert {name for name in missing - unused if not numeric_code.without_effect(name)} == set()


def test_every_name_of_the_lists_exists() -> None:
    source = Source()
    for name in [*WITHOUT_EFFECT, *(entry for names in PURPOSES.values() for entry in names)]:
        assert source._path(name) is not None, f"{name} has moved"


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ConfigError, match="tran is neither a purpose nor a module"):
        Source().hash("tran")


def test_hashes_are_written_for_dvc(tmp_path: Path, original: dict[str, str]) -> None:
    out = tmp_path / "build" / "code.json"
    code = [sys.executable, "-m", "refblend.numeric_code", str(out)]
    subprocess.run(code, check=True)
    assert json.loads(out.read_text()) == original
