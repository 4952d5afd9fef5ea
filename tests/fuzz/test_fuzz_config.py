"""Configuration files and overrides: trees, YAML texts, bytes, scalars."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import yaml
from fuzz_support import attempt, folder, yaml_file
from fuzz_trees import HOSTILE, YAML_ONLY, get, mutated, mutated_bytes, mutated_text, places
from hypothesis import given
from hypothesis import strategies as st

from refblend.config import RefblendConfig, load_config
from refblend.errors import ConfigError
from refblend.study.design.grid import override_arguments

ROOT = Path(__file__).parents[2]
BASE = yaml.safe_load((ROOT / "params" / "ppo.yaml").read_text(encoding="utf-8"))
TEXT = Path(__file__).with_name("config.yaml").read_text(encoding="utf-8")
SMALL: dict[str, Any] = yaml.safe_load(TEXT)
DOTTED = [
    ".".join(path)
    for path in places(BASE)
    if all(isinstance(part, str) for part in path) and not isinstance(get(BASE, path), dict)
]
BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
REQUIRED = [
    "data.train_files=[a.parquet]",
    "data.val_files=[b.parquet]",
    "actor_rollout_ref.model.path=models/actor",
    "algorithm.ref_quality_score.scoring.model_path=models/judge",
]
SNIPPETS = (
    *("!!python/object/apply:os.system ['true']", "!!python/name:os.system", "!!int ''"),
    *("!!int _", "!!float ''", "!!float x", "!!bool maybe", "!!timestamp x", "!!binary é"),
    *("!!null x", "!!set {a, b}", "!!omap [a]", "!!pairs [a]", "!!map [a]", "!!seq {a: 1}"),
    *("!!str [a]", "!unknown x", "2020-13-45", "0x_", "0b_", "1:99", "9" * 5000, ".nan", "-.inf"),
    *("&x {trainer: *x}", "&y [*y]", "*missing", "<<: 5", "<<: [1]", "<<: {seed: 2}", "? [a]"),
    *("[" * 400, "{a: " * 400, "- " * 400, "---", "...", "%YAML 9.9", "\x00", "\x07", "\ufeff"),
    *('"\\ud800"', '"\\x00"', '"\\N"', "'", '"', "|", ">9", ": :", "a: b: c", "@", "`", "trainer:"),
    *("trainer: {seed: 2}", "seed: 3", "1: 2", "null: 1", "true: 1", "? {a: 1}\n: 2", "[a]: 1"),
)
WORDS = dict.fromkeys(("true", "t", "yes", "y", "on", "1"), True)
WORDS |= dict.fromkeys(("false", "f", "no", "n", "off", "0"), False)


def agrees(written: Any, read: Any) -> bool:
    """Whether a value of the configuration is the one in the file.

    Numbers may be written as text (YAML 1.1 reads ``1e-4`` as text); a boolean is not a number.
    """
    if isinstance(written, dict):
        return all(agrees(value, getattr(read, key)) for key, value in written.items())
    if isinstance(written, list):
        same = isinstance(read, list | tuple) and len(written) == len(read)
        return same and all(map(agrees, written, read))
    if isinstance(written, bool) or isinstance(read, bool):
        if isinstance(written, bool) or written in (0, 1):
            return isinstance(read, bool) and read == bool(written)
        return WORDS.get(str(written).strip().lower()) == read
    if isinstance(read, int | float):
        number = written if isinstance(written, int) else float(written)
        return math.isfinite(read) and number == read
    return type(written) is type(read) and written == read


@given(mutated(SMALL, YAML_ONLY) | mutated_text(TEXT, SNIPPETS) | mutated_bytes(TEXT.encode()))
def test_file(content: Any) -> None:
    """What is accepted is what the file says, and its record reads back equal."""
    with folder() as path:
        file = yaml_file(path, content)
        accepted, config = attempt(lambda: load_config([file]), where=path)
        if accepted:
            assert agrees(yaml.safe_load(file.read_bytes().decode("utf-8")), config)
            record = json.loads(json.dumps(config.resolved(), allow_nan=False))
            assert RefblendConfig.model_validate(record) == config


@given(st.sampled_from(DOTTED), st.sampled_from(HOSTILE) | st.text(max_size=12) | st.floats())
def test_override(key: str, value: Any) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        value = json.dumps(value)  # YAML reads NaN and Infinity as text
    (text,) = override_arguments({key: value})
    accepted, config = attempt(lambda: load_config((), [*REQUIRED, text]))
    if accepted:
        read: Any = config
        for part in key.split("."):
            read = getattr(read, part)
        assert agrees(value, read), (value, read)


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (BOMB, r"hostile\.yaml: not valid YAML \(its aliases expand"),
        ("trainer: {seed: 2}\n", r"hostile\.yaml, line \d+: .*'trainer' is given twice"),
    ],
)
def test_refused_file(tmp_path: Path, more: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        load_config([yaml_file(tmp_path, TEXT + more)])
