"""A pretrained start on sums: problems with worked steps, the warm start, the pairs."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from refblend.data.equations import equations_true
from refblend.data.gsm8k import INSTRUCTION
from refblend.data.schema import PromptRow
from refblend.embedded import prepare
from refblend.embedded.actor import taught, train_actor
from refblend.embedded.actor_quality import measure_actor
from refblend.embedded.architecture import build_model, fingerprint_of, load_model, save_model
from refblend.embedded.judge_data import build_pairs
from refblend.embedded.judge_format import label_of
from refblend.embedded.prepare import sum_problem, sum_rows
from refblend.embedded.recipe import EmbeddedConfig, PhaseRecipe
from refblend.embedded.sft import train
from refblend.errors import DataError


class FakeGym:
    """Sums of two numbers, in the form of the library's entries, whatever the task."""

    def entries(
        self, task: str, size: int, seed: int, config: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        found = []
        for i in range(seed, seed + size):
            left, right = i % 10, 3 * i % 17
            expression = f"{left} {'+-'[i % 2]} {right}"
            value = left + right if i % 2 == 0 else left - right
            entry = {"question": f"{task} {i}: {expression} =", "answer": str(value)}
            found.append(entry | {"metadata": {"expression": expression}})
        return found


@pytest.fixture
def gym(monkeypatch) -> None:
    @contextmanager
    def start() -> Iterator[FakeGym]:
        yield FakeGym()

    monkeypatch.setattr(prepare, "reasoning_gym", start)


def row(expression: str, answer: str) -> PromptRow:
    return PromptRow(
        index=0,
        data_source="reasoning_gym/chain_sum",
        messages=[{"role": "user", "content": f"{expression} = {INSTRUCTION}"}],
        question=f"{expression} =",
        ground_truth=answer,
        solution="",
        extra={"entry": json.dumps({"metadata": {"expression": expression}})},
    )


@pytest.mark.parametrize(
    ("expression", "answer", "solution"),
    [
        ("4 - 1", "3", "4-1=3.\n#### 3"),
        ("98 + 93 - 77", "114", "98+93=191. 191-77=114.\n#### 114"),
        ("5 - 9 + 2", "-2", "5-9=-4. -4+2=-2.\n#### -2"),
    ],
)
def test_a_sum_is_a_problem_with_worked_steps(expression, answer, solution) -> None:
    source = row(expression, answer)
    problem = sum_problem(source)
    assert problem.solution == solution
    assert str(problem.answer) == answer
    assert problem.prompt == source.messages[0]["content"]
    assert all(equations_true(solution))
    assert len(equations_true(solution)) == len(problem.steps)
    assert label_of(problem, solution) == 1.0
    assert label_of(problem, f"#### {answer}") == 0.7
    assert label_of(problem, solution.replace(f"#### {answer}", "#### 55")) == 0.35


@pytest.mark.parametrize("answer", ["1,200", "3.5", r"\frac{1}{2}"])
def test_no_actor_is_measured_where_gold_answers_count_as_wrong(answer) -> None:
    with pytest.raises(DataError, match="index 0 of reasoning_gym/chain_sum"):
        measure_actor(None, None, [row("4 - 1", answer)], 1, 1)


@pytest.mark.usefixtures("gym")
def test_warm_start_from_a_pretrained_model(recipe, tokenizer, model, tmp_path) -> None:
    base = tmp_path / "base"
    save_model(base, model, tokenizer, {})
    tree = recipe.model_dump() | {"pretrained": {"model": str(base), "dtype": "float32"}}
    tree["actor"]["sloppy"] = None
    tree["actor"]["clean"] |= {"steps": 1, "learning_rate": 1e-6, "warmup_steps": 0}
    settings = EmbeddedConfig.model_validate(tree)
    rows = sum_rows(settings)
    assert {name: len(found) for name, found in rows.items()} == {
        "train": 24,
        "validation": 6,
        "test": 8,
        "sanity": 4,
    }
    assert len({r.question for found in rows.values() for r in found}) == 42
    sources = {name: {r.data_source for r in found} for name, found in rows.items()}
    assert sources.pop("sanity") == {"reasoning_gym/gsm_symbolic"}
    assert set.union(*sources.values()) == {"reasoning_gym/chain_sum"}
    _, sloppy = train_actor(settings, tokenizer, tmp_path / "clean", tmp_path / "actor")
    assert sloppy is None
    start, clean, actor = (
        load_model(tmp_path / n).state_dict() for n in ("base", "clean", "actor")
    )
    for name, value in start.items():
        assert torch.equal(clean[name], actor[name])
        torch.testing.assert_close(clean[name], value, atol=1e-5, rtol=0)  # one step of 1e-6
    assert any(not torch.equal(clean[name], value) for name, value in start.items())
    models = {name: load_model(tmp_path / name) for name in ("actor", "clean")}
    actors = {"actor": models["actor"], "actor_clean": models["clean"]}
    pairs = build_pairs(settings, "test", tokenizer, actors)
    asked = {pair.problem.question for pair in pairs}
    assert asked == {r.question for r in rows["test"][:6]}
    assert not any(INSTRUCTION in question for question in asked)


def test_the_pretrained_model_and_its_problems_are_part_of_the_fingerprint(recipe, tokenizer):
    """Its demonstrations are the train split: with other data they could be test problems."""

    def mark(**parts: Any) -> str:
        tree = recipe.model_dump() | parts
        return fingerprint_of(EmbeddedConfig.model_validate(tree), tokenizer, "actor")

    models = (None, {"model": "a"}, {"model": "b"}, {"model": "a", "dtype": "float32"})
    assert len({mark(pretrained=model) for model in models}) == 4
    data = recipe.model_dump()["data"]
    others = (data, data | {"seed": 77}, data | {"test_rows": data["test_rows"] + 1})
    assert len({mark(pretrained={"model": "a"}, data=other) for other in others}) == 3


def test_bfloat16_passes_keep_float32_weights(recipe, tokenizer) -> None:
    """Updates smaller than bfloat16 can hold beside a weight still add up."""
    prompt = tokenizer("1 + 1 =")["input_ids"]

    def stream(number: int) -> Any:
        return taught(tokenizer, prompt, f"1+1=2.\n#### {2 + number % 2}")

    trained = {}
    for bfloat16 in (False, True):
        model = build_model(recipe.architecture, tokenizer, seed=1)
        before = {name: value.clone() for name, value in model.state_dict().items()}
        schedule = PhaseRecipe(steps=8, batch_size=4, learning_rate=1e-5, warmup_steps=0)
        result, optimizer = train(model, stream, schedule, "test", bfloat16)
        assert all(p.dtype == torch.float32 for p in model.parameters())
        assert all(s["exp_avg"].dtype == torch.float32 for s in optimizer.state.values())
        changes = [model.state_dict()[name] - value for name, value in before.items()]
        trained[bfloat16] = torch.cat([change.flatten() for change in changes]), result.losses
    plain, rounded = trained[False][0], trained[True][0]
    assert 0 < rounded.abs().max() < 1e-3
    assert torch.cosine_similarity(plain, rounded, dim=0) > 0.8
    torch.testing.assert_close(
        torch.tensor(trained[True][1]), torch.tensor(trained[False][1]), rtol=0.01, atol=0.01
    )
    assert not torch.equal(plain, rounded)
