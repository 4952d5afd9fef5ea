"""All rows of the real GSM8K: REFBLEND_GSM8K_DIR names a folder with train.jsonl and test.jsonl."""

import os
from typing import Any

import pytest

from refblend.data.gsm8k import load_split
from refblend.data.schema import PromptRow
from refblend.data.splits import hold_out
from refblend.data.tokenizer import encode_chat
from refblend.embedded.stand_in import qwen_tokenizer
from refblend.rewards.rule import RuleReward
from refblend.scoring.clipping import plan_request
from refblend.scoring.prompts import PromptEncoder
from refblend.scoring.templates import load_templates

FOLDER = os.environ.get("REFBLEND_GSM8K_DIR", "")
pytestmark = pytest.mark.skipif(not FOLDER, reason="REFBLEND_GSM8K_DIR does not name GSM8K")


@pytest.fixture(scope="module")
def splits() -> dict[str, list[PromptRow]]:
    return {name: load_split(FOLDER, name) for name in ("train", "test")}


@pytest.fixture(scope="module")
def rows(splits: dict[str, list[PromptRow]]) -> list[PromptRow]:
    return [row for part in splits.values() for row in part]


@pytest.fixture(scope="module")
def tokenizer(rows: list[PromptRow]) -> Any:
    return qwen_tokenizer((f"{row.question}\n{row.solution}" for row in rows), 8192)


def test_every_row_is_converted_and_the_splits_are_disjoint(
    splits: dict[str, list[PromptRow]],
) -> None:
    assert {name: len(part) for name, part in splits.items()} == {"train": 7473, "test": 1319}
    steps = [row.extra["n_steps"] for part in splits.values() for row in part]
    assert (min(steps), max(steps)) == (2, 11)
    drawn = hold_out(splits["train"], splits["test"], 512, 64, seed=1)
    questions = [row.question for part in drawn.values() for row in part]
    assert len(questions) == len(set(questions)) == 8792


@pytest.mark.parametrize("method", ["strict", "flexible"])
def test_every_gold_solution_is_right(rows: list[PromptRow], method: Any) -> None:
    reward = RuleReward(method)
    wrong = [
        row.index
        for row in rows
        if reward(row.data_source, row.solution, row.ground_truth).score != 1.0
    ]
    assert wrong == []


def test_prompts_fit_scale_gpu(rows: list[PromptRow], tokenizer: Any) -> None:
    lengths = sorted(len(encode_chat(tokenizer, row.messages)) for row in rows)
    assert sum(length > 256 for length in lengths) <= 0.005 * len(lengths)


@pytest.mark.parametrize(("cap", "clipped"), [(2048, False), (512, True)])
def test_the_judge_sees_the_end_of_every_question_and_answer(
    rows: list[PromptRow], tokenizer: Any, cap: int, clipped: bool
) -> None:
    """At scale gpu's length all prompts are whole; under a cap that cuts, both ends survive."""
    encoder = PromptEncoder(tokenizer, load_templates("default"))
    cut = 0
    for row in rows:
        response = f"{row.solution}\n" * (1 if cap == 2048 else 4)
        request = plan_request(encoder, row.question, response, cap - 16 - 64)
        text = tokenizer.decode(request.token_ids)
        assert len(request.token_ids) <= cap - 16 - 64
        assert row.question[-20:] in text
        assert row.solution[-12:] in text
        cut += request.clipped
    assert (cut > 0) == clipped
