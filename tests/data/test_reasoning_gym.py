"""Tasks of reasoning-gym: splits, options, the verifier; against the real library where it is."""

import io
import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from environments import needs_reasoning_gym
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from refblend.cli.data import app
from refblend.data import reasoning_gym as gym_module
from refblend.data import reasoning_gym_server
from refblend.data.reasoning_gym import ReasoningGym, find_python, make_splits
from refblend.data.schema import read_rows
from refblend.errors import DataError, RewardError
from refblend.rewards.reasoning_gym import compute_score

CONFIG = {"min_terms": 2, "max_terms": 3, "min_digits": 1, "max_digits": 2}


class FakeGym(ReasoningGym):
    """Ten different questions per seed, each twice."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def entries(
        self, task: str, size: int, seed: int, config: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        self.asked.append(seed)
        return [{"question": f"{task} {seed} {i % 10}", "answer": str(i)} for i in range(size)]


def test_splits_are_disjoint_and_drawn_again_until_full() -> None:
    gym = FakeGym()
    splits = make_splits(gym, "t", size=16, held_out=4, seed=7, config={})
    first = 60_000_001  # far from the entries of every other seed
    assert gym.asked == [first, first + 28, first + 56], "28 rows; closer ones would be shared"
    assert {name: len(rows) for name, rows in splits.items()} == {
        "train": 16,
        "validation": 4,
        "test": 4,
        "sanity": 4,
    }
    questions = [row.question for rows in splits.values() for row in rows]
    assert len(set(questions)) == len(questions)


def test_known_questions_are_left_out() -> None:
    known = [f"t 1 {i}" for i in range(5)]
    splits = make_splits(FakeGym(), "t", 6, 3, 1, {}, known)
    questions = {row.question for rows in splits.values() for row in rows}
    assert len(questions) == 15
    assert questions.isdisjoint(known)


def test_too_few_questions_are_refused() -> None:
    with pytest.raises(DataError, match="gave 40 different questions, 130 are asked for"):
        make_splits(FakeGym(), "t", 100, 10, 1, {})


@given(
    st.recursive(
        st.integers() | st.text() | st.booleans() | st.none(),
        lambda inner: (
            st.lists(inner)
            | st.tuples(inner, inner)
            | st.dictionaries(st.text() | st.integers() | st.tuples(st.integers()), inner)
        ),
    )
)
def test_entries_come_back_from_json_as_they_were(value: Any) -> None:
    text = json.dumps(reasoning_gym_server.packed(value))
    back = json.loads(text, object_hook=reasoning_gym_server.unpacked)
    assert back == value
    assert repr(back) == repr(value)


def test_the_library_is_missed_with_a_remedy(monkeypatch, tmp_path) -> None:
    monkeypatch.delenv(gym_module.PYTHON_VARIABLE, raising=False)
    monkeypatch.setattr(gym_module, "find_spec", lambda name: None)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="make reasoning-gym"):
        find_python()


def test_a_signal_to_the_group_leaves_the_server_to_its_trainer() -> None:
    """The trainer still scores the step that it finishes; the end of the input ends the server."""
    command = [sys.executable, "-P", str(Path(reasoning_gym_server.__file__))]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as server:
        gym = ReasoningGym(server)
        for number in (signal.SIGINT, signal.SIGTERM):
            with pytest.raises(DataError, match=r"No module named|unknown|create"):
                gym.entries("no_such_task", 1, 0, {})
            server.send_signal(number)
        with pytest.raises(DataError, match="reasoning-gym task no_such_task"):
            gym.entries("no_such_task", 1, 0, {})
        server.communicate(timeout=20)
    assert server.returncode == 0


def test_an_answer_that_keeps_the_verifier_busy_is_wrong(monkeypatch, capsys) -> None:
    """Even where the task catches every exception, as some of the library's do."""

    class Verifier:
        def score_answer(self, answer: str, entry: Mapping[str, Any]) -> float:
            while answer == "9**9**9":
                try:
                    sum(range(1000))
                except Exception:
                    return 1.0
            return 0.5

    monkeypatch.setattr(reasoning_gym_server, "LIMIT_S", 0.2)
    before = signal.getsignal(signal.SIGALRM)
    try:
        assert reasoning_gym_server.limited(Verifier(), "9**9**9", {}) == 0.0
        assert "no verdict on '9**9**9'" in capsys.readouterr().err
        assert reasoning_gym_server.limited(Verifier(), "8", {}) == 0.5
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_verifier_that_fails_on_an_answer_names_it() -> None:
    reply = io.StringIO('{"error": "ValueError: not a board"}\n')
    gym = ReasoningGym(SimpleNamespace(stdin=io.StringIO(), stdout=reply))  # type: ignore[arg-type]
    with pytest.raises(RewardError, match=r"task sudoku: ValueError: not a board \(.*'a riddle'\)"):
        gym.score("sudoku", "a riddle", {}, {})


@needs_reasoning_gym
def test_files_of_a_real_task_are_verified_by_the_library(tmp_path: Path) -> None:
    words = [f"--config={key}={value}" for key, value in CONFIG.items()]
    arguments = ["reasoning-gym", "--task", "chain_sum", "--size", "30", "--held-out", "5"]
    done = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path), *words])
    assert done.exit_code == 0, done.output
    rows = read_rows(tmp_path / "train.parquet")
    assert len(rows) == 30
    for row in rows[:5]:
        expression = json.loads(row.extra["entry"])["metadata"]["expression"]
        right = eval(expression)  # sums and differences of the library's own making
        assert row.ground_truth == str(right)
        extra = {**row.extra, "index": row.index}
        told = compute_score(row.data_source, f"steps\n#### {right}", row.ground_truth, extra)
        assert (told.score, told.acc_strict, told.acc_flexible) == (1.0, 1.0, 1.0)
        wrong = compute_score(row.data_source, f"#### {right + 1}", row.ground_truth, extra)
        assert wrong.score < 1.0
        assert wrong.acc_strict == 0.0
        loose = compute_score(row.data_source, f"it is\n{right}", row.ground_truth, extra)
        assert (loose.score, loose.acc_strict, loose.acc_flexible) == (0.0, 0.0, 1.0)
