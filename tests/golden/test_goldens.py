"""The golden cases give the numbers that are stored for this processor.

``scripts/golden.py`` records them; CONTRIBUTING.md says what to do when one changes on purpose.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import golden_store as store
import pytest
from golden_cases import CASES

PURPOSES = {name: case.purposes for name, case in CASES.items()}


@pytest.fixture(scope="module")
def stored() -> dict[str, Mapping[str, Any]]:
    """The stored values that count in this tree on this processor."""
    record = store.load(store.path_of(store.processor_kind()))
    found = {name: store.stored_values(record, name, PURPOSES[name]) for name in CASES}
    return {name: values for name, values in found.items() if values is not None}


@pytest.fixture(scope="module")
def chosen(request: pytest.FixtureRequest) -> list[str]:
    """The cases of this session: all, or those of ``-k``."""
    calls = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
    return [name for name in CASES if name in [params.get("name") for params in calls]]


@pytest.fixture(scope="module")
def here(chosen: list[str]) -> dict[str, Any]:
    """The cases' results in this tree."""
    return store.run_cases(store.ROOT, chosen)


@pytest.fixture(scope="module")
def there(chosen: list[str], stored: dict[str, Any]) -> dict[str, Any]:
    """Results of the cases without stored values in the tree before the last recording."""
    with store.tree_of(store.base_commit()) as tree:
        return store.run_cases(tree, [name for name in chosen if name not in stored])


@pytest.mark.engine
@pytest.mark.parametrize("name", CASES)
def test_a_golden_case_gives_the_same_numbers(
    name: str,
    stored: dict[str, Mapping[str, Any]],
    here: dict[str, Any],
    request: pytest.FixtureRequest,
) -> None:
    result = here[name]
    assert "values" in result, result.get("failed") or result["skipped"]
    if name in stored:
        found = store.differences(stored[name], result["values"])
        assert not found, "\n".join(found)
        return
    before = request.getfixturevalue("there")[name]
    if "values" not in before:
        pytest.skip(f"{store.base_commit()[:12]} cannot run it: {next(iter(before.values()))}")
    found = store.differences(before["values"], result["values"])
    versions = store.json_at(store.base_commit(), store.NUMERICS)
    now = store.numerics()
    if all(versions.get(purpose) == now[purpose] for purpose in PURPOSES[name]):
        assert not found, "\n".join(found)


def test_goldens_and_versions_move_together() -> None:
    """Since the commit before the last recording, over the values of every processor."""
    base = store.base_commit()
    for path in sorted((store.ROOT / store.VALUES).glob("*.json")):
        before, now = store.json_at(base, f"{store.VALUES}/{path.name}"), store.load(path)
        if not before or before["libraries"] != now["libraries"]:
            continue
        changed = {
            name: bool(store.differences(values, now["cases"].get(name, {})))
            for name, values in before["cases"].items()
            if name in CASES
        }
        broken = store.broken_rule(PURPOSES, changed, before["numerics"], now["numerics"])
        assert not broken, "\n".join(broken)


def test_some_processor_has_values_of_every_version() -> None:
    records = [store.load(path) for path in (store.ROOT / store.VALUES).glob("*.json")]
    now = store.numerics()
    for name, purposes in PURPOSES.items():
        assert any(
            name in record["cases"] and all(record["numerics"].get(p) == now[p] for p in purposes)
            for record in records
        ), f"{name} is not recorded in the versions of {store.NUMERICS}: scripts/golden.py --record"


def test_every_purpose_that_a_case_names_exists() -> None:
    assert {purpose for pinned in PURPOSES.values() for purpose in pinned} <= set(store.numerics())


def test_the_cases_run_on_another_tree() -> None:
    """What a processor without stored values does, with two cheap cases."""
    names = ["reward_gsm8k", "bed"]
    with store.tree_of(store.base_commit()) as tree:
        results = store.run_cases(tree, names)
    assert [sorted(results[name]) for name in names] == [["seconds", "values"]] * 2


# --- the rule ---------------------------------------------------------------------------------

CASE_PURPOSES = {"one": ("train", "reward.math"), "two": ("train",), "three": ("judge.parse",)}
BEFORE = {"train": 1, "reward.math": 3, "judge.parse": 1}
SAME = {"one": False, "two": False, "three": False}


@pytest.mark.parametrize(
    ("changed", "now", "sentences"),
    [
        (SAME, BEFORE, []),
        (SAME | {"two": True}, BEFORE, ["two has changed, but no version of train"]),
        (SAME | {"two": True}, BEFORE | {"train": 2}, []),
        (SAME | {"one": True}, BEFORE | {"reward.math": 4}, []),
        (SAME | {"one": True}, BEFORE | {"judge.parse": 2}, ["one has", "of judge.parse has"]),
        (SAME, BEFORE | {"judge.parse": 2}, ["the version of judge.parse has changed"]),
        ({"one": False, "two": False}, BEFORE | {"judge.parse": 2}, []),  # "three" is new
        (SAME, BEFORE | {"bed": 1}, []),
    ],
)
def test_the_rule(changed: dict[str, bool], now: dict[str, int], sentences: list[str]) -> None:
    broken = store.broken_rule(CASE_PURPOSES, changed, BEFORE, now)
    assert len(broken) == len(sentences)
    assert all(part in text for part, text in zip(sentences, broken, strict=True))


def test_a_new_value_is_no_difference_and_a_lost_one_is() -> None:
    assert store.differences({"a": [1.0]}, {"a": [1.0], "b": 2}) == []
    assert store.differences({"a": [1.0], "b": 2}, {"a": [1.0]}) == ["b: 2 is gone"]
    assert store.differences({"a": 1.0}, {"a": 1.0 + 2**-52}) == ["a: 1.0 → 1.0000000000000002"]


def test_a_record_survives_its_file(tmp_path: Path) -> None:
    record = {"libraries": {"torch": "1"}, "numerics": {"train": 1}, "cases": {"a": {"x": [0.1]}}}
    path = tmp_path / "record.json"
    path.write_text(store.dump(record))
    assert store.load(path) == record


def test_stored_values_count_for_their_versions_only() -> None:
    record = {"libraries": store.libraries(), "numerics": store.numerics(), "cases": {"a": {}}}
    assert store.stored_values(record, "a", ["train"]) == {}
    assert store.stored_values(record, "b", ["train"]) is None
    older = record | {"numerics": store.numerics() | {"train": 0}}
    assert store.stored_values(older, "a", ["train"]) is None
    assert store.stored_values(older, "a", ["bed"]) == {}
    assert store.stored_values(record | {"libraries": {}}, "a", ["train"]) is None


def test_a_clone_without_the_commit_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import subprocess

    source = tmp_path / "source"
    (source / store.VALUES).mkdir(parents=True)
    (source / store.VALUES / "x.json").write_text("{}")
    author = ["-c", "user.name=a", "-c", "user.email=a@b.invalid"]
    for call in (["init", "-q"], ["add", "."], [*author, "commit", "-q", "-m", "values"]):
        subprocess.run(["git", *call], cwd=source, check=True)
    monkeypatch.setattr(store, "ROOT", source)
    with pytest.raises(store.GoldenError, match="git fetch --unshallow"):
        store.base_commit()
