import json
import math
import os
from pathlib import Path

import pytest

from refblend.files import atomic_path, how_to_get, read_object, sha256_tree, write_json, write_text


def test_atomic_path_replaces_whole(tmp_path: Path) -> None:
    target = tmp_path / "new" / "file.txt"
    write_text(target, "first")
    write_text(target, "zweite ü")
    assert target.read_text(encoding="utf-8") == "zweite ü"
    assert [p.name for p in target.parent.iterdir()] == ["file.txt"]
    assert target.stat().st_mode & 0o777 == 0o644


def test_atomic_path_failure_keeps_the_old(tmp_path: Path) -> None:
    target = tmp_path / "file.txt"
    write_text(target, "old")
    with pytest.raises(KeyboardInterrupt), atomic_path(target) as temporary:  # noqa: PT012
        temporary.write_text("half")
        assert target.read_text() == "old"
        raise KeyboardInterrupt
    assert target.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["file.txt"]


def test_json_round_trip(tmp_path: Path) -> None:
    value = {"b": [1, 2.5, None], "a": "×"}
    write_json(tmp_path / "v.json", value)
    assert read_object(tmp_path / "v.json") == value
    assert list(json.loads((tmp_path / "v.json").read_text())) == ["a", "b"]
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "v.json", math.nan)
    assert read_object(tmp_path / "v.json") == value


def test_sha256_tree_sees_names_and_contents_only(tmp_path: Path) -> None:
    def tree(name: str, files: dict[str, str]) -> Path:
        for relative, text in files.items():
            path = tmp_path / name / relative
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path / name

    base = sha256_tree(tree("a", {"x.py": "1", "sub/y.py": "2", "z.txt": "3"}))
    assert base == sha256_tree(tree("b", {"z.txt": "3", "sub/y.py": "2", "x.py": "1"}))
    assert base != sha256_tree(tree("c", {"x.py": "1", "sub/y.py": "4", "z.txt": "3"}))
    assert base != sha256_tree(tree("d", {"x.py": "1", "y.py": "2", "z.txt": "3"}))
    rest = sha256_tree(tmp_path / "a", without=["z.txt"])
    (tmp_path / "a" / "z.txt").write_text("changed")
    assert rest == sha256_tree(tmp_path / "a", without=["z.txt"])


def test_a_link_is_followed_and_what_is_no_file_is_refused(tmp_path: Path) -> None:
    target, link = tmp_path / "target.txt", tmp_path / "link.txt"
    write_text(target, "old")
    link.symlink_to(target)
    write_text(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    os.mkfifo(tmp_path / "pipe")
    folder = tmp_path / "folder"
    folder.mkdir()
    (tmp_path / "to_folder").symlink_to(folder)
    for name in ("pipe", "folder", "to_folder"):
        with pytest.raises(FileExistsError, match="no regular file"):
            write_text(tmp_path / name, "new")
    assert (tmp_path / "pipe").is_fifo()
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("missing", "command"),
    [
        ("models/smoke/actor", "make prepare"),
        ("models/cpu/judge_weak", "make prepare SCALE=cpu"),
        ("data/smollm/test.parquet", "make prepare SCALE=smollm"),
        ("data/gpu/train.parquet", "make prepare SCALE=gpu"),
        ("models/smollm/base", "make pretrained"),
        ("models/gpu/judge_weak", ""),  # the user's own
        ("models/mine/actor", ""),
        ("data/smoke/mine.parquet", ""),
        ("elsewhere/data/smoke/train.parquet", ""),
    ],
)
def test_a_missing_input_is_made_by_a_command_in_a_checkout(
    missing: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    otherwise = "Give another."
    monkeypatch.chdir(tmp_path)
    assert how_to_get(Path(missing), otherwise) == otherwise
    monkeypatch.chdir(Path(__file__).parents[1])
    made = f"Make it with `{command}`, or give another." if command else otherwise
    assert how_to_get(Path(missing), otherwise) == made
