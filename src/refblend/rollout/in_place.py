"""Weights into a running vLLM engine on the CPU, without rebuilding its layers.

vLLM's own reload makes every layer anew, fills it from the pushed tensors, packs it and copies it
over. Here the tensors that a fused layer joins (q, k, v; gate, up) are packed straight from where
they lie: one read and one write of every weight.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn


@torch.no_grad()
def load_in_place(model: Any, weights: Mapping[str, Tensor]) -> bool:
    """Replace all weights of vLLM's ``model``; afterwards nothing in it refers to ``weights``.

    False, with the model untouched, where it has something else than plain linear layers,
    embeddings and vectors under the names of ``weights``: vLLM's reload serves any model.
    """
    steps = _plan(model, weights)
    for step in steps or ():
        step()
    return steps is not None


def _plan(model: Any, weights: Mapping[str, Tensor]) -> list[Callable[[], None]] | None:
    """What to do for every parameter; None where one is not understood."""
    fused = getattr(model, "packed_modules_mapping", {})
    head = getattr(model, "lm_head", None)
    steps: list[Callable[[], None]] = []
    used: set[str] = set()
    seen: set[int] = set()
    for path, module in model.named_modules():
        parent, _, own = path.rpartition(".")
        for key, parameter in module.named_parameters(recurse=False):
            if id(parameter) in seen:  # a tied head: the embeddings
                continue
            seen.add(id(parameter))
            names = [".".join(filter(None, (parent, p, key))) for p in fused.get(own, [own])]
            parts = [weights[name] for name in names if name in weights]
            step = _step(module, key, parameter, parts) if len(parts) == len(names) else None
            if step is None:
                return None
            steps.append(step)
            used.update(names)
        if module is not head and hasattr(module, "embedding_dim"):
            # vLLM's packed copy of the embeddings: only the head multiplies by them.
            steps.append(partial(setattr, module, "cpu_linear", None))
    if used != set(weights):
        return None
    if head is not None:
        steps.append(partial(_pack, head))
    return steps


def _step(
    module: nn.Module, key: str, parameter: Tensor, parts: Sequence[Tensor]
) -> Callable[[], None] | None:
    """What replaces one parameter by its joined ``parts``; None where their shapes do not fit."""
    from vllm.model_executor.layers.linear import UnquantizedLinearMethod
    from vllm.model_executor.layers.vocab_parallel_embedding import VocabParallelEmbedding

    rows = sum(len(part) for part in parts)
    linear = isinstance(getattr(module, "quant_method", None), UnquantizedLinearMethod)
    if linear and key == "weight":
        # Packing on the CPU frees the weight; where it does not, the layer computes from it.
        shape = (_size(module, "output_size"), _size(module, "input_size"))
        fits = parameter.numel() == 0 and shape == (rows, parts[0].shape[1])
        return partial(_pack_linear, module, parameter.dtype, parts) if fits else None
    if isinstance(module, VocabParallelEmbedding) and key == "weight":
        # vLLM rounds the vocabulary up; the rows behind it stay zero.
        fits = rows == module.org_vocab_size and parts[0].shape[1:] == parameter.shape[1:]
        return partial(_copy, parameter[:rows], parts) if fits else None
    return partial(_copy, parameter, parts) if parameter.shape[0] == rows else None


def _size(module: Any, name: str) -> int | None:
    return getattr(module, f"{name}_per_partition", None) or getattr(module, name, None)


def _copy(target: Tensor, parts: Sequence[Tensor]) -> None:
    target.copy_(_joined(parts))


def _pack_linear(module: Any, dtype: torch.dtype, parts: Sequence[Tensor]) -> None:
    module.cpu_linear = None  # its memory serves the new weights
    module.weight = nn.Parameter(_joined(parts).to(dtype), requires_grad=False)
    _pack(module)


def _pack(module: Any) -> None:
    module.quant_method.process_weights_after_loading(module)


def _joined(parts: Sequence[Tensor]) -> Tensor:
    """The parts below one another; a view where they lie so in memory already."""
    first, *rest = parts
    end = first.data_ptr() + first.nbytes
    for part in rest:
        same = part.untyped_storage().data_ptr() == first.untyped_storage().data_ptr()
        if not same or part.data_ptr() != end:
            return torch.cat(list(parts))
        end += part.nbytes
    rows = sum(len(part) for part in parts)
    return first.as_strided((rows, *first.shape[1:]), first.stride())
