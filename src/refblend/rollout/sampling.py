"""The sampling loop over a transformers model: one forward pass with a key-value cache per token.

Who draws, and how, is the caller's affair: the engine draws each request from a generator of its
own, the measurements of the embedded models want the entropy of every distribution.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

Choose = Callable[[Tensor, list[int]], tuple[Tensor, list[int]]]
"""(logits (R, V) in float32, numbers of the R live rows) → (tokens (R,), places that go on)."""


@torch.inference_mode()
def sample_tokens(
    model: Any,
    prompts: Sequence[Sequence[int]],
    choose: Choose,
    device: torch.device | str = "cpu",
) -> None:
    """Continue all prompts together until ``choose`` lets none go on.

    Row ``i`` of the batch is ``prompts[i]``, padded on the left; ``choose`` draws the next token of
    every live row and keeps it.
    """
    from transformers import DynamicCache  # takes seconds to import

    rows = [torch.as_tensor(prompt, dtype=torch.long) for prompt in prompts]
    ids, mask = (
        pad_sequence(part, batch_first=True, padding_side="left").to(device)
        for part in (rows, list(map(torch.ones_like, rows)))
    )
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    cache = DynamicCache(config=model.config)
    live = list(range(len(prompts)))
    while True:
        output = model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        chosen, keep = choose(output.logits[:, -1].float(), live)
        if not keep:
            return
        if len(keep) < len(live):
            index = torch.tensor(keep, device=device)
            cache.batch_select_indices(index)
            mask, positions, chosen = mask[index], positions[index], chosen[index]
            live = [live[place] for place in keep]
        ids = chosen[:, None]
        mask = torch.cat([mask, torch.ones_like(ids)], dim=1)
        positions = positions[:, -1:] + 1
