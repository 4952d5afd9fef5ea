"""The networks: token log-probs with entropy, and token values, on Hugging Face causal models.

Sequences are padded on the right only. Under causal attention padding on the right cannot reach
a real token, so no attention mask is passed and the fast attention path is kept; positions are
the plain 0, 1, 2, … of every row.

The head is applied to response positions only and in chunks, whose logits are computed again in
the backward pass: peak memory grows with tokens, not with tokens × vocabulary.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import AutoModelForCausalLM, AutoModelForTokenClassification
from transformers.modeling_layers import GradientCheckpointingLayer

from refblend.ppo.entropy import log_probs_and_entropy
from refblend.rollout.base import check_model_dir
from refblend.workers.types import Sequences

MAX_CHUNK_LOGITS = 2**24
"""Logits held at once by the head (64 MiB in float32)."""


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


def pad_batch(sequences: Sequences, rows: Sequence[int], device: torch.device) -> PaddedBatch:
    """Lay out these rows for one forward pass."""
    chosen = sequences.select(rows)
    width = max([1, *chosen.lengths])
    input_ids = torch.zeros(len(rows), width, dtype=torch.long)
    where: list[Tensor] = []
    for i, (prompt, response) in enumerate(
        zip(chosen.prompt_ids, chosen.response_ids, strict=True)
    ):
        ids = torch.as_tensor([*prompt, *response], dtype=torch.long)
        input_ids[i, : len(ids)] = ids
        columns = torch.arange(len(response))
        where.append(torch.stack([torch.full_like(columns, i), columns + len(prompt) - 1, columns]))
    row, position, column = torch.cat(where, dim=1)
    labels = input_ids[row, position + 1]
    return PaddedBatch(*(t.to(device) for t in (input_ids, row, position, column, labels)))


def scatter_tokens(values: Tensor, batch: PaddedBatch, num_rows: int, width: int) -> Tensor:
    """Token values (N,) as a zero-padded matrix (num_rows, width)."""
    matrix = values.new_zeros(num_rows, width)
    return matrix.index_put((batch.rows, batch.columns), values)


class LmNetwork(nn.Module):
    """A network around a Hugging Face model, whose classes transformers types loosely."""

    lm: Any


class PolicyNetwork(LmNetwork):
    """A causal language model that returns log-probs and entropies of response tokens."""

    def __init__(self, lm: nn.Module, temperature: float) -> None:
        super().__init__()
        self.lm = lm
        self.temperature = temperature

    def forward(self, batch: PaddedBatch, pooled: bool = False) -> tuple[Tensor, Tensor]:
        """Log-probs (N,) and entropies in nats (N,), both float32, at the rollout temperature.

        With ``pooled``, instead the mean hidden state (R, H) of each row's response tokens and
        their number (R,). One method for both, because FSDP gathers parameters around ``forward``.
        """
        states = self.lm.model(input_ids=batch.input_ids, use_cache=False).last_hidden_state
        if pooled:
            of_tokens = states[batch.rows, batch.positions + 1].float()
            counts = torch.bincount(batch.rows, minlength=len(batch.input_ids))
            sums = states.new_zeros(len(batch.input_ids), states.shape[-1], dtype=torch.float32)
            sums.index_add_(0, batch.rows, of_tokens)
            return sums / counts.clamp(min=1)[:, None], counts
        return self._log_probs(states[batch.rows, batch.positions], batch.labels)

    def _log_probs(self, hidden: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Head, log-probs and entropies of N positions, chunk by chunk."""
        size = max(1, MAX_CHUNK_LOGITS // self.lm.config.vocab_size)
        if len(hidden) <= size:
            return self._chunk(hidden, labels)
        parts = [
            checkpoint(self._chunk, part, of_part, use_reentrant=False, preserve_rng_state=False)
            for part, of_part in zip(hidden.split(size), labels.split(size), strict=True)
        ]
        return torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts])

    def _chunk(self, hidden: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.lm.lm_head(hidden)
        return log_probs_and_entropy(
            logits, labels, temperature=self.temperature, chunk_tokens=max(1, len(labels))
        )


class ValueNetwork(LmNetwork):
    """A causal model with a scalar head: V of the state before each response token."""

    def __init__(self, lm: nn.Module) -> None:
        super().__init__()
        self.lm = lm

    def forward(self, batch: PaddedBatch) -> Tensor:
        """Values (N,) in float32."""
        states = self.lm.model(input_ids=batch.input_ids, use_cache=False).last_hidden_state
        return self.lm.score(states[batch.rows, batch.positions]).squeeze(-1).float()


def load_policy(
    path: str, temperature: float, *, checkpointing: bool = False, trust_remote_code: bool = False
) -> PolicyNetwork:
    """Load a causal model in float32 from a local directory, with dropout off.

    Raises:
        ModelError: the directory holds no model.
    """
    check_model_dir(path, "model path")
    lm = AutoModelForCausalLM.from_pretrained(
        path,
        dtype=torch.float32,
        attn_implementation="sdpa",
        trust_remote_code=trust_remote_code,
        use_safetensors=True,
    )
    return PolicyNetwork(_without_dropout(lm, checkpointing), temperature)


def load_value(
    path: str, *, checkpointing: bool = False, trust_remote_code: bool = False
) -> ValueNetwork:
    """Load a model with a scalar head; a head that the checkpoint lacks starts at zero.

    A zero head predicts 0 everywhere, a neutral start that needs no seed.
    """
    directory = check_model_dir(path, "critic model path")
    lm, info = AutoModelForTokenClassification.from_pretrained(
        directory,
        num_labels=1,
        dtype=torch.float32,
        attn_implementation="sdpa",
        trust_remote_code=trust_remote_code,
        use_safetensors=True,
        output_loading_info=True,
    )
    if any(name.startswith("score.") for name in info["missing_keys"]):
        for parameter in lm.score.parameters():
            nn.init.zeros_(parameter)
    return ValueNetwork(_without_dropout(lm, checkpointing))


def _without_dropout(lm: Any, checkpointing: bool) -> Any:
    """The model in eval mode: dropout would make old and new log-probs differ without an update.

    transformers recomputes activations only of layers in training mode, so the layers alone (not
    the dropout modules inside them) are put back to it when ``checkpointing`` is asked for.
    """
    lm.eval()
    if checkpointing:
        lm.gradient_checkpointing_enable({"use_reentrant": False})
        for module in lm.modules():
            if isinstance(module, GradientCheckpointingLayer):
                module.training = True
    return lm


def trainable_parameters(network: LmNetwork) -> Iterator[nn.Parameter]:
    """Parameters that receive gradients."""
    return (p for p in network.parameters() if p.requires_grad)
