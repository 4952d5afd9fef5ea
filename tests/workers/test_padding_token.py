"""The token that pads is a token like any other wherever a model reads it."""

import json
from collections.abc import Callable
from pathlib import Path

import torch

from refblend.workers.networks import load_policy


def test_the_end_token_keeps_its_input_gradient_where_it_also_pads(
    make_tiny_model: Callable[..., Path],
) -> None:
    """torch drops it for an embedding's ``padding_idx``; the oracle embeds the tokens itself."""
    path = make_tiny_model(0, tie_word_embeddings=False)
    config = json.loads((path / "config.json").read_text())
    config["pad_token_id"] = end = config["eos_token_id"]
    (path / "config.json").write_text(json.dumps(config))
    lm = load_policy(str(path), 1.0).lm
    ids = torch.tensor([[5, end, 7, 3, end, 8]])
    table = lm.get_input_embeddings().weight

    embedded = table.detach()[ids].requires_grad_()
    lm(inputs_embeds=embedded).logits.square().sum().backward()
    right = embedded.grad[ids == end].sum(0)
    lm(input_ids=ids).logits.square().sum().backward()
    assert right.norm() > 0
    torch.testing.assert_close(table.grad[end], right)
