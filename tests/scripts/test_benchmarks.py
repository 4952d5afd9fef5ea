"""Benchmarks run for minutes and seldom: here they are only imported, all in one process."""

import subprocess
import sys
from pathlib import Path

import pytest
import run_all

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


def test_every_benchmark_can_be_imported() -> None:
    names = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "peer_trl")
    assert "bench_step" in names
    code = f"import sys; sys.path.insert(0, {str(FOLDER)!r})\nimport {', '.join(names)}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_all_are_run_and_one_that_cannot_run_fails_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bench_a.py").write_text("raise SystemExit('Not run: no peer')")
    (tmp_path / "bench_b.py").write_text("print('measured')")
    (tmp_path / "helper.py").write_text("raise ValueError")
    found = run_all.scripts([], tmp_path)
    monkeypatch.setattr(run_all, "scripts", lambda names: found)
    with pytest.raises(SystemExit) as ended:
        run_all.main()
    assert ended.value.code == 1
    output, errors = capfd.readouterr()
    assert "Not run: no peer" in errors
    assert "measured" in output
    *rows, last = output.splitlines()[-3:]
    assert [row.split()[0] for row in rows] == ["a", "b"]
    assert rows[0].endswith("min  failed with status 1")
    assert rows[1].endswith(" min")
    assert last.endswith(" min, 1 of 2 failed")


def test_benchmarks_are_chosen_by_name() -> None:
    assert [path.name for path in run_all.scripts(["step", "peers"])] == [
        "bench_step.py",
        "bench_peers.py",
    ]
    assert run_all.scripts([]) == sorted(FOLDER.glob("bench_*.py"))
    with pytest.raises(SystemExit, match="no benchmark stepp; there are "):
        run_all.scripts(["stepp"])


@pytest.mark.parametrize("home", [None, "nowhere"])
def test_without_trl_nothing_is_measured(home: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    from peers import trl_python

    monkeypatch.delenv("TRL_ENV", raising=False)
    if home is not None:
        monkeypatch.setenv("TRL_ENV", home)
    with pytest.raises(SystemExit, match=r"Not run: .*make \.tools/trl"):
        trl_python()


def test_every_benchmark_that_cannot_run_says_so_by_its_status() -> None:
    for path in FOLDER.glob("*.py"):
        if path.stem != "reliability":
            assert 'print("Not run' not in path.read_text(), path
