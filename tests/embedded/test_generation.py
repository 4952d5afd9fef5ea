from typing import Any
from unittest import mock

import pytest
import torch

from refblend.embedded import generation

PROMPTS = [[5, 6, 7, 8], [9], [10, 11, 12, 13, 14, 15, 16], [20, 21]]


def run(model: Any, tokenizer: Any, **options: Any) -> Any:
    eos_id = options.pop("eos_id", tokenizer.eos_token_id)
    with mock.patch.object(generation, "BATCH_SIZE", options.pop("batch_size")):
        return generation.generate(model, PROMPTS, eos_id, 9, **options)


def slow_greedy(model: Any, prompt: list[int], eos_id: int, limit: int) -> tuple[list[int], list]:
    """No cache, no batch, no padding."""
    ids, entropies = list(prompt), []
    while len(ids) < len(prompt) + limit and (len(ids) == len(prompt) or ids[-1] != eos_id):
        probs = torch.softmax(model(input_ids=torch.tensor([ids])).logits[0, -1], -1)
        entropies.append(-(probs * probs.log()).sum().item())
        ids.append(int(probs.argmax()))
    return ids[len(prompt) :], entropies


@pytest.mark.parametrize("batch_size", [1, 2, 4])
def test_greedy_equals_the_slow_loop(model, tokenizer, batch_size) -> None:
    model.eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3.0)  # sharper, so that different prompts end differently
        first, _ = slow_greedy(model, PROMPTS[0], -1, 9)
        eos_id = first[4]  # an end token that is certainly met
        outputs = run(model, tokenizer, eos_id=eos_id, batch_size=batch_size)
        for prompt, output in zip(PROMPTS, outputs, strict=True):
            ids, entropies = slow_greedy(model, prompt, eos_id, 9)
            assert output.token_ids == ids
            assert output.entropies == pytest.approx(entropies, abs=1e-4)
            assert output.finished == (ids[-1] == eos_id)


def test_entropies_are_those_of_the_tempered_distribution(model, tokenizer) -> None:
    """Every sampled token again, without cache, batch or padding."""
    model.eval()
    outputs = run(model, tokenizer, temperature=0.7, seed=3, batch_size=3)
    for prompt, output in zip(PROMPTS, outputs, strict=True):
        with torch.no_grad():
            ids = torch.tensor([[*prompt, *output.token_ids]])
            logits = model(input_ids=ids).logits[0, len(prompt) - 1 : -1]
        expected = torch.distributions.Categorical(logits=logits / 0.7).entropy().tolist()
        assert output.entropies == pytest.approx(expected, abs=1e-4)
        assert output.mean_entropy == pytest.approx(sum(expected) / len(expected), abs=1e-4)
