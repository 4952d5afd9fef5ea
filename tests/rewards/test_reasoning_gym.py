"""The verifiers of reasoning-gym: four tasks with stored entries, and every task of the library."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from environments import needs_reasoning_gym
from hypothesis import given
from hypothesis import strategies as st

from refblend.data.reasoning_gym import SOURCE_PREFIX, find_python, make_splits, reasoning_gym
from refblend.data.schema import PromptRow
from refblend.rewards.reasoning_gym import compute_score, extract_answers
from refblend.rewards.result import RewardResult

ODD = [
    "",
    "####",
    "#### ",
    "I think it is 5.",
    "#### I think it is 5.",
    "#### None",
    "#### 1e999",
    "#### -0",
    "#### [[1, 2], [3]",
    '#### {"a": [1,\n2]}\n\n#### (',
    "#### \u221e \u00bd \U0001d7d8 \x00",
    "#### " + "9" * 5000,
]
STORED = json.loads(Path(__file__).with_name("reasoning_gym.json").read_text(encoding="utf-8"))


def judged(row: dict[str, Any], response: str) -> RewardResult:
    extra = {"entry": json.dumps(row["entry"]), "task_config": json.dumps(row["config"])}
    return compute_score(SOURCE_PREFIX + row["task"], response, row["answer"], extra)


def check(row: dict[str, Any], answer: str) -> None:
    """The task's own answer is right with and without the mark; odd ones never raise."""
    assert judged(row, f"So\n#### {answer}") == RewardResult(1.0, 1.0, 1.0)
    assert judged(row, f"So\n####\n{answer}\n") == RewardResult(1.0, 1.0, 1.0)
    if row["answer"]:
        assert judged(row, f"#### {answer}\nI am sure.") == RewardResult(1.0, 1.0, 1.0)
        assert judged(row, f"It is\n{answer}") == RewardResult(0.0, 0.0, 1.0)
    for odd in ODD:
        assert judged(row, odd).acc_strict in (0.0, 1.0)


@pytest.mark.parametrize("row", STORED, ids=lambda row: row["task"])
def test_answers_of_several_lines_are_read_whole(row: dict[str, Any]) -> None:
    """Without the library: what its verifier is asked."""
    answer = row["answer"]
    lines = len(answer.splitlines())
    for response in (f"#### {answer}", f"####\n{answer}\n", f"#### {answer}\nI am sure."):
        strict, flexible = extract_answers(response, lines)
        assert strict[0] == flexible[0] == answer
    assert extract_answers(f"It is\n{answer}", lines)[1][0] == answer


@given(st.text(alphabet="#ab 4\n\r\t\x0b\u2028", max_size=30))
def test_an_answer_of_one_line_is_what_version_1_read(text: str) -> None:
    """So runs on tasks like ``chain_sum`` keep their numbers."""
    _, mark, after = text.rpartition("####")
    lines = [line.strip() for line in (after if mark else text).splitlines() if line.strip()]
    flexible = lines[:1] if mark else lines[-1:]
    assert extract_answers(text) == (flexible if mark else [], flexible)


@needs_reasoning_gym
@pytest.mark.parametrize("row", STORED, ids=lambda row: row["task"])
def test_stored_entries(row: dict[str, Any]) -> None:
    check(row, row["answer"])


@needs_reasoning_gym
def test_a_verifier_that_fails_on_an_answer_scores_0_and_says_so() -> None:
    row = next(row for row in STORED if row["task"] == "prime_factorization")
    result = judged(row, "#### I think it is 5.")
    assert (result.score, result.acc_flexible) == (0.0, 0.0)
    assert "'I think it is 5.'" in result.error


def all_tasks() -> list[str]:
    code = "import json, reasoning_gym.factory as f; print(json.dumps(sorted(f.DATASETS)))"
    command = [find_python(), "-P", "-W", "ignore", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [task for task in json.loads(done.stdout.splitlines()[-1]) if task != "composite"]


def own_answer(row: PromptRow) -> str | None:
    """The task's; those that take many answers have an example in the metadata, or none."""
    if row.ground_truth:
        return row.ground_truth
    metadata = json.loads(row.extra["entry"])["metadata"]
    if "possible_answer" in metadata:
        return json.dumps(
            {str(key): value for key, value in metadata["possible_answer"]["__items__"]}
        )
    return metadata.get("example_correct_answer")


@needs_reasoning_gym
@pytest.mark.slow
def test_every_task_takes_its_own_answer_and_no_odd_one_breaks_it() -> None:
    failed = {}
    with reasoning_gym() as gym:
        for task in all_tasks():
            (made,) = make_splits(gym, task, 1, 1, 3, {})["train"]
            answer = own_answer(made)
            row = {
                "task": task,
                "config": {},
                "answer": made.ground_truth,
                "entry": json.loads(made.extra["entry"]),
            }
            try:
                if answer is None:
                    assert not made.ground_truth
                    assert all(judged(row, odd).acc_strict == 0.0 for odd in ODD)
                else:
                    check(row, answer)
            except AssertionError as error:
                failed[task] = str(error)[:300]
    assert failed == {}
