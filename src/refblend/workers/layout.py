"""How a micro-batch lies in memory, and how the responses of a prompt share its tokens.

The layout that everyone sees is plain: R rows, one sequence each, padded on the right. Under
causal attention padding on the right cannot reach a real token, so no mask is needed and
positions are 0, 1, 2, ….

A network may compute it in less work. The first tokens of the n responses of a prompt are the
same, and so are their states; :class:`SharedPrefix` keeps each distinct token once, in one packed
row without padding, for all that treats tokens one by one (projections, norms, MLP, embedding).
Only attention mixes tokens: there queries, keys and values are put back into the plain rows, so
that each response sees its prompt and itself and the fast causal kernel is kept. The states equal
those of the plain layout up to rounding, and so do the gradients: what the prompt's tokens
receive from all responses is summed where they were put back.
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
    """(N,) place of each response token in its response."""
    labels: Tensor
    """(N,) the response tokens."""
    lengths: Tensor
    """(R,) tokens of each row, prompt and response."""
    prompt_lengths: Tensor
    """(R,) tokens of each row's prompt."""
    owners: Tensor
    """(R,) the first row with the same prompt."""


def pad_batch(sequences: Sequences, rows: Sequence[int], device: torch.device) -> PaddedBatch:
    """Lay out these rows for one forward pass."""
    chosen = sequences.select(rows)
    width = max([1, *chosen.lengths])
    input_ids = torch.zeros(len(rows), width, dtype=torch.long)
    where: list[Tensor] = []
    first_of: dict[tuple[int, ...], int] = {}
    owners: list[int] = []
    for i, (prompt, response) in enumerate(
        zip(chosen.prompt_ids, chosen.response_ids, strict=True)
    ):
        ids = torch.as_tensor([*prompt, *response], dtype=torch.long)
        input_ids[i, : len(ids)] = ids
        columns = torch.arange(len(response))
        where.append(torch.stack([torch.full_like(columns, i), columns + len(prompt) - 1, columns]))
        owners.append(first_of.setdefault(tuple(prompt), i))
    row, position, column = torch.cat(where, dim=1)
    labels = input_ids[row, position + 1]
    sizes = torch.tensor([chosen.lengths, [len(p) for p in chosen.prompt_ids], owners])
    return PaddedBatch(*(t.to(device) for t in (input_ids, row, position, column, labels, *sizes)))


def scatter_tokens(values: Tensor, batch: PaddedBatch, num_rows: int, width: int) -> Tensor:
    """Token values (N,) as a zero-padded matrix (num_rows, width)."""
    matrix = values.new_zeros(num_rows, width)
    return matrix.index_put((batch.rows, batch.columns), values)


class SharedPrefix:
    """The K distinct tokens of a batch, and the way between them and its R × L places.

    Attributes:
        keep: (K,) place of each distinct token, in row-major order: every token of a prompt's
            first row, and the responses' tokens of the others.
        source: (R · L,) the distinct token at each place; 0 at padding, which nothing reads.
    """

    def __init__(self, batch: PaddedBatch) -> None:
        rows, width = batch.input_ids.shape
        column = torch.arange(width, device=batch.input_ids.device)[None, :]
        row = torch.arange(rows, device=batch.input_ids.device)[:, None]
        borrowed = (column < batch.prompt_lengths[:, None]) & (batch.owners[:, None] != row)
        kept = ((column < batch.lengths[:, None]) & ~borrowed).flatten()
        owner = torch.where(borrowed, batch.owners[:, None], row) * width + column
        self.shape = (rows, width)
        self.keep = kept.nonzero()[:, 0]
        self.source = (kept.cumsum(0) - 1).clamp(min=0)[owner.flatten()]
        self.calls = 0
        """Attention layers that used it."""

    def model_inputs(self, batch: PaddedBatch) -> dict[str, Any]:
        """The packed row for a Hugging Face model: tokens and positions (1, K), and itself."""
        return {
            "input_ids": batch.input_ids.flatten()[self.keep][None],
            "position_ids": (self.keep % self.shape[1])[None],
            "shared_prefix": self,
        }

    def to_rows(self, packed: Tensor) -> Tensor:
        """Heads of distinct tokens (1, heads, K, D) at all places, (R, heads, L, D)."""
        heads, _, size = packed.shape[1:]
        flat = packed[0].transpose(0, 1).reshape(-1, heads * size)
        return _lookup(flat, self.source).view(*self.shape, heads, size).transpose(1, 2)

    def to_packed(self, placed: Tensor) -> Tensor:
        """Vectors at all places (R, L, heads, D) for the distinct tokens, (1, K, heads, D)."""
        return _lookup(placed.flatten(2).flatten(0, 1), self.keep).view(1, -1, *placed.shape[2:])


def _lookup(table: Tensor, index: Tensor) -> Tensor:
    """Rows of a matrix; unlike ``index_select`` its backward is deterministic on GPUs as well."""
    return embedding(index, table)


def shared_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    shared_prefix: SharedPrefix | None = None,
    sliding_window: int | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Causal attention (transformers' signature) on packed tokens: each response sees its prompt.

    Without ``shared_prefix`` it is plain causal attention.

    Raises:
        ModelError: the model asks for a mask or a window shorter than the sequences.
    """
    width = query.shape[2] if shared_prefix is None else shared_prefix.shape[1]
    if attention_mask is not None or (sliding_window is not None and width > sliding_window):
        raise ModelError(f"{type(module).__name__} attends to a part of the sequence only", _REMEDY)
    if shared_prefix is None:
        return sdpa_attention_forward(module, query, key, value, None, **options)
    shared_prefix.calls += 1
    rows = (shared_prefix.to_rows(tensor) for tensor in (query, key, value))
    output, _ = sdpa_attention_forward(module, *rows, None, **options)
    return shared_prefix.to_packed(output), None


_REMEDY = "set actor_rollout_ref.model.use_shared_prefix=false"

AttentionInterface.register(SHARED_ATTENTION, shared_attention)


def hidden_states(lm: Any, batch: PaddedBatch, positions: Tensor) -> Tensor:
    """Last hidden states (N, H) at these positions of ``batch.rows``.

    The model's attention implementation, chosen when it was loaded, says which layout it computes.

    Args:
        lm: a Hugging Face model with a head.
        batch: the micro-batch.
        positions: (N,) positions of real tokens, one for each entry of ``batch.rows``.

    Raises:
        ModelError: layers of the model do not attend through transformers' interface, so they
            would mix packed tokens of different sequences.
    """
    if lm.config._attn_implementation != SHARED_ATTENTION:
        states: Tensor = lm.model(input_ids=batch.input_ids, use_cache=False).last_hidden_state
        return states[batch.rows, positions]
    shared = SharedPrefix(batch)
    packed = lm.model(**shared.model_inputs(batch), use_cache=False).last_hidden_state
    layers = lm.config.get_text_config().num_hidden_layers
    if shared.calls != layers:
        raise ModelError(
            f"{type(lm).__name__} does not pass packed sequences to the attention of each of its "
            f"{layers} layers",
            _REMEDY,
        )
    return _lookup(packed[0], shared.source[batch.rows * shared.shape[1] + positions])
