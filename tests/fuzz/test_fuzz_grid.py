"""Experiment files (params/study), and the grids that they give."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from fuzz_support import attempt, folder
from fuzz_trees import YAML_ONLY, mutated, mutated_bytes, mutated_text
from hypothesis import given
from hypothesis import strategies as st

from refblend.documents import flatten
from refblend.study.design.grid import build_grid

BASE = "data: {train_files: [a], val_files: [b]}\nactor_rollout_ref: {model: {path: m}}\n"
TEXT = Path(__file__).with_name("experiment.yaml").read_text(encoding="utf-8")
SPEC: dict[str, Any] = yaml.safe_load(TEXT)
SNIPPETS = (
    *("!!int ''", "2020-01-01", "!!binary aGk=", "!!set {a}", ".nan", ".inf", "&x {a: *x}", "1: 2"),
    *("off: {trainer.seed: 3}", "plain: {}", "linear: {algorithm.gamma: 0.5}", "arms: {}"),
    *("cpu: [1, 1]", "cpu: [true]", "cpu: [-1]", "cpu: ['1']", "cpu: [1.5]", "cpu: []", "cpu: 5"),
    *("seeds: []", "baseline: none", "overlay: 5", "overlay: ../x.yaml", "a=b: 1", "[" * 400),
    *("'data.truncation=left #': 1", "trainer.seed: [1]", "trainer.sed: 1", "\x00", '"\\ud800"'),
)


def place(path: Path, content: str | bytes | dict[str, Any]) -> None:
    """A tree of parameters with one experiment, X."""
    for name in ("study", "scale"):
        (path / name).mkdir()
    (path / "ppo.yaml").write_text(BASE)
    for scale in ("cpu", "smoke"):
        (path / "scale" / f"{scale}.yaml").write_text("{}")
    if isinstance(content, dict):
        content = yaml.safe_dump(content, allow_unicode=True, sort_keys=False)
    file = path / "study" / "X.yaml"
    file.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))


def check_grid_of(grid: pd.DataFrame, tree: dict[str, Any], scale: str) -> None:
    """The grid is every arm with every seed, with the overrides of the file."""
    chosen = (tree.get("arms_at") or {}).get(scale, list(tree["arms"]))
    arms = [arm for arm in tree["arms"] if arm in chosen]
    seeds = [str(int(seed)) for seed in tree["seeds"][scale]]
    assert [(r.arm, r.seed) for r in grid.itertuples()] == [(a, s) for a in arms for s in seeds]
    for row in grid.itertuples():
        wanted = (tree.get("common") or {}) | flatten(tree["arms"][row.arm])
        read = json.loads(str(row.overrides))
        assert set(read) == set(wanted)
        for key, value in wanted.items():
            value = value.replace("{scale}", scale) if isinstance(value, str) else value
            assert json.dumps(read[key]) == json.dumps(value)


@given(
    mutated(SPEC, YAML_ONLY) | mutated_text(TEXT, SNIPPETS) | mutated_bytes(TEXT.encode()),
    st.sampled_from(("cpu", "smoke")),
)
def test_experiment(content: Any, scale: str) -> None:
    with folder() as path:
        place(path, content)
        accepted, grid = attempt(lambda: build_grid(["X"], scale, path), "X.yaml", where=path)
        if accepted:
            check_grid_of(grid, yaml.safe_load((path / "study" / "X.yaml").read_bytes()), scale)
