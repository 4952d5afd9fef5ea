"""The memory layout of a micro-batch, and how sequences with a common prefix share its tokens.

From outside the layout is plain: R rows, one sequence each, padded on the right. Under causal
attention padding on the right cannot reach a real token, so no mask is needed and positions are
0, 1, 2, ….

A network may compute it with less work. Under causal attention the state at a token depends only on
the tokens up to it, so sequences with a common prefix have the same states there: all responses to
a prompt share the prompt, many their first words, and a confident policy repeats whole responses.
:class:`PrefixTree` keeps each distinct prefix once, in one packed row without padding, for
everything that treats tokens one by one (embedding, projections, norms, MLP, head). Only attention
mixes tokens: there queries, keys and values are put back into plain rows, one for each distinct
sequence, which keeps the fast causal kernel. States and gradients equal those of the plain layout
up to rounding: a shared token sums the gradients of all its sequences.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from refblend.errors import ModelError
from refblend.ppo.masking import upcast
from refblend.workers.types import Sequences

SHARED_ATTENTION = "refblend_shared_prefix"
"""Name of :func:`shared_attention` among transformers' attention implementations."""


@dataclass(frozen=True)
class PaddedBatch:
    """A micro-batch: R rows, L longest sequence, N response tokens in row-major order."""

    input_ids: Tensor
    """(R, L), padded on the right with 0."""
    rows: Tensor
    """(N,) row of each response token."""
    positions: Tensor
    """(N,) position of the token *before* each response token: the one that predicts it."""
    columns: Tensor
    """(N,) index of each response token within its response."""
    labels: Tensor
    """(N,) the response tokens."""
    lengths: Tensor
    """(R,) tokens of each row, prompt and response."""
    order: Tensor
    """(R,) the rows in lexicographic order, so that rows with a common prefix are neighbours."""


def pad_batch(sequences: Sequences, rows: Sequence[int], device: torch.device) -> PaddedBatch:
    """Lay out these rows for one forward pass."""
    chosen = sequences.select(rows)
    texts = [p + r for p, r in zip(chosen.prompt_ids, chosen.response_ids, strict=True)]
    input_ids = torch.zeros(len(rows), max(1, *map(len, texts)), dtype=torch.long)
    where: list[Tensor] = []
    for i, (text, response) in enumerate(zip(texts, chosen.response_ids, strict=True)):
        input_ids[i, : len(text)] = torch.as_tensor(text, dtype=torch.long)
        columns = torch.arange(len(response))
        position = columns + len(text) - len(response) - 1
        where.append(torch.stack([torch.full_like(columns, i), position, columns]))
    row, position, column = torch.cat(where, dim=1)
    labels = input_ids[row, position + 1]
    order = sorted(range(len(texts)), key=texts.__getitem__)
    sizes = torch.tensor([chosen.lengths, order])
    return PaddedBatch(*(t.to(device) for t in (input_ids, row, position, column, labels, *sizes)))


def scatter_tokens(values: Tensor, batch: PaddedBatch, num_rows: int, width: int) -> Tensor:
    """Token values (N,) as a zero-padded matrix (num_rows, width)."""
    matrix = values.new_zeros(num_rows, width)
    return matrix.index_put((batch.rows, batch.columns), values)


class PrefixTree:
    """The K distinct prefixes of a batch's sequences, and their positions in its rows.

    A node is a token together with the tokens before it. In lexicographic order a row repeats the
    nodes of its common prefix with the previous row and adds the others.

    Attributes:
        shape: (D, L): the number of distinct rows, and the longest.
        keep: (K,) the position among these D × L where each node was added, in row-major order.
        source: (R, L) the node at each position of the batch; arbitrary at padding, never read.
    """

    def __init__(self, batch: PaddedBatch) -> None:
        ids, lengths = batch.input_ids[batch.order], batch.lengths[batch.order]
        rows, width = ids.shape
        column = torch.arange(width, device=ids.device)
        row = torch.arange(rows, device=ids.device)[:, None]
        real = column < lengths[:, None]
        alike = (ids[1:] == ids[:-1]) & real[1:] & real[:-1]
        shared = nn.functional.pad(alike.long().cumprod(1).sum(1), (1, 0))[:, None]
        added = real & (column >= shared)
        # A repeated node was added by the nearest row above that does not repeat it.
        adder = torch.where(column >= shared, row, 0).cummax(0).values
        number = (added.flatten().cumsum(0) - 1).clamp(min=0)
        different = added.any(1)
        sorted_source = number[adder * width + column]
        self._ids = ids[different].flatten()
        self._placed = sorted_source[different].flatten()
        self.keep = added[different].flatten().nonzero()[:, 0]
        self.source = sorted_source[batch.order.argsort()]
        self.shape = (len(self._ids) // width, width)
        self.calls = 0
        """Attention layers that used it."""

    def model_inputs(self) -> dict[str, Any]:
        """The packed row for a Hugging Face model: tokens and positions (1, K), and itself."""
        return {
            "input_ids": self._ids[self.keep][None],
            "position_ids": (self.keep % self.shape[1])[None],
            "prefix_tree": self,
        }

    def to_rows(self, packed: Tensor) -> Tensor:
        """Heads of the nodes (1, heads, K, E) at all positions, (D, heads, L, E)."""
        heads, _, size = packed.shape[1:]
        flat = packed[0].transpose(0, 1).reshape(-1, heads * size)
        return _lookup(flat, self._placed).view(*self.shape, heads, size).transpose(1, 2)

    def to_packed(self, placed: Tensor) -> Tensor:
        """Vectors at all positions (D, L, heads, E) for the nodes, (1, K, heads, E)."""
        return _lookup(placed.flatten(2).flatten(0, 1), self.keep).view(1, -1, *placed.shape[2:])


def _lookup(table: Tensor, index: Tensor) -> Tensor:
    """Rows of a matrix; on CUDA torch calls ``index_select``'s gradient random, not this one."""
    return embedding(index, table)


def shared_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    prefix_tree: PrefixTree | None = None,
    sliding_window: int | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Causal attention (transformers' signature) on packed tokens: each sees its predecessors.

    Without ``prefix_tree`` it is plain causal attention. ModelError for a mask or a window shorter
    than the sequences.
    """
    width = query.shape[2] if prefix_tree is None else prefix_tree.shape[1]
    if attention_mask is not None or (sliding_window is not None and width > sliding_window):
        raise ModelError(f"{type(module).__name__} attends to a part of the sequence only", _REMEDY)
    if prefix_tree is None:
        return _causal(module, query, key, value, **options), None
    prefix_tree.calls += 1
    rows = (prefix_tree.to_rows(tensor) for tensor in (query, key, value))
    return prefix_tree.to_packed(_causal(module, *rows, **options)), None


def _causal(module: nn.Module, *rows: Tensor, **options: Any) -> Tensor:
    """Causal attention of plain rows; on the CPU in at least float32.

    There torch's fused kernel has a slow backward pass in bfloat16.
    """
    kind = rows[0].device.type
    if kind != "cpu":
        output: Tensor = sdpa_attention_forward(module, *rows, None, **options)[0]
        return output
    with torch.autocast(kind, enabled=False):
        output = sdpa_attention_forward(module, *map(upcast, rows), None, **options)[0]
    return output.to(rows[-1].dtype)


_REMEDY = "set actor_rollout_ref.model.use_shared_prefix=false"

AttentionInterface.register(SHARED_ATTENTION, shared_attention)


@dataclass(frozen=True)
class ResponseStates:
    """States of a micro-batch at its M different response tokens; N response tokens in all."""

    hidden: Tensor
    """(K, H) last hidden states of the computed tokens."""
    own: Tensor
    """(M,) the state at each token."""
    before: Tensor
    """(M,) the state at the preceding token, which predicts it."""
    labels: Tensor
    """(M,) the tokens."""
    which: Tensor
    """(N,) for each response token of the batch, its index among the M."""

    @property
    def predicting(self) -> Tensor:
        """(M, H) the states that predict the tokens."""
        return _lookup(self.hidden, self.before)

    def spread(self, values: Tensor) -> Tensor:
        """Values (M,) or vectors (M, H) of the different tokens for all response tokens."""
        if values.dim() > 1:
            return _lookup(values, self.which)
        return _lookup(values[:, None], self.which)[:, 0].clone()  # of a view FSDP2 warns


def response_states(lm: Any, batch: PaddedBatch) -> ResponseStates:
    """Run a model's layers over a micro-batch, in the layout of its attention implementation.

    ModelError if layers do not attend through transformers' interface.
    """
    width = batch.input_ids.shape[1]
    place = batch.rows * width + batch.positions
    if lm.config._attn_implementation != SHARED_ATTENTION:
        states: Tensor = lm.model(input_ids=batch.input_ids, use_cache=False).last_hidden_state
        every = torch.arange(len(place), device=place.device)
        return ResponseStates(states.flatten(0, 1), place + 1, place, batch.labels, every)
    tree = PrefixTree(batch)
    packed = lm.model(**tree.model_inputs(), use_cache=False).last_hidden_state
    layers = lm.config.get_text_config().num_hidden_layers
    if tree.calls != layers:
        raise ModelError(
            f"{type(lm).__name__} does not pass packed sequences to the attention of each of its "
            f"{layers} layers",
            _REMEDY,
        )
    source = tree.source.flatten()
    own, which = source[place + 1].unique(return_inverse=True)
    # All positions of a node agree about it and about the node before it.
    before, labels = torch.empty_like(own), torch.empty_like(own)
    before[which], labels[which] = source[place], batch.labels
    return ResponseStates(packed[0], own, before, labels, which)
