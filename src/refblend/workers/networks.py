"""The networks: token log-probs with entropy, and token values, on Hugging Face causal models.

Both read hidden states through :mod:`refblend.workers.layout`, which decides how the tokens of a
micro-batch are laid out; the networks' results do not depend on it.

The head is applied to response positions only and in chunks, whose logits are computed again in
the backward pass: peak memory grows with tokens, not with tokens × vocabulary. There a chunk's
logits turn, in place, into their own gradient. With π = softmax(z / T), H its entropy and y the
label::

    d log π(y) / d z = (1[y] − π) / T          d H / d z = −π (log π + H) / T
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear
from transformers import AutoModelForCausalLM, AutoModelForTokenClassification
from transformers.modeling_layers import GradientCheckpointingLayer

from refblend.ppo.entropy import log_probs_and_entropy
from refblend.ppo.masking import upcast
from refblend.rollout.model_dir import check_model_dir
from refblend.workers.layout import SHARED_ATTENTION, PaddedBatch, response_states


def chunked_log_probs(
    head: nn.Linear, hidden: Tensor, labels: Tensor, temperature: float, size: int
) -> tuple[Tensor, Tensor]:
    """Log-probs (M,) of ``labels`` (M,) and entropies (M,) of the head's distributions, in float32.

    ``hidden`` (M, H) are the states that predict the labels; logits of ``size`` tokens are held.
    """
    kind = hidden.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else hidden.dtype
    bias = None if head.bias is None else head.bias.to(dtype)
    values: tuple[Tensor, Tensor] = _ChunkedHead.apply(
        hidden.to(dtype), head.weight.to(dtype), bias, labels, temperature, size
    )
    return values


class _ChunkedHead(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        temperature: float,
        size: int,
    ) -> tuple[Tensor, Tensor]:
        parts = [
            log_probs_and_entropy(linear(part, weight, bias), of_part, temperature)
            for part, of_part in zip(hidden.split(size), labels.split(size), strict=True)
        ]
        log_probs, entropy = (torch.cat(column) for column in zip(*parts, strict=True))
        ctx.save_for_backward(hidden, weight, bias, labels, entropy)
        ctx.temperature, ctx.size = temperature, size
        ctx.set_materialize_grads(False)
        return log_probs, entropy

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_log_probs: Tensor | None, of_entropy: Tensor | None) -> Any:
        hidden, weight, bias, labels, entropy = ctx.saved_tensors
        if of_log_probs is None:
            of_log_probs = torch.zeros_like(entropy)
        of_hidden = torch.empty_like(hidden)
        of_weight = upcast(torch.zeros_like(weight))
        of_bias = None if bias is None else upcast(torch.zeros_like(bias))
        for start in range(0, len(hidden), ctx.size):
            rows = slice(start, start + ctx.size)
            # (tokens of the chunk, V): log π, which becomes the gradient of the logits.
            z = upcast(linear(hidden[rows], weight, bias)).div_(ctx.temperature)
            z.sub_(z.logsumexp(-1, keepdim=True))
            if of_entropy is None:
                z.exp_().mul_(-of_log_probs[rows, None])
            else:
                p = z.exp()
                # A forbidden token adds nothing: 0 · log 0.
                z.masked_fill_(p == 0, 0.0).add_(entropy[rows, None]).mul_(of_entropy[rows, None])
                z.add_(of_log_probs[rows, None]).mul_(p).neg_()
            z.scatter_add_(1, labels[rows, None], of_log_probs[rows, None])
            z = z.div_(ctx.temperature).to(weight.dtype)
            torch.mm(z, weight, out=of_hidden[rows])
            if z.dtype == of_weight.dtype:
                of_weight.addmm_(z.T, hidden[rows])
            else:
                of_weight.add_(z.T @ hidden[rows])
            if of_bias is not None:
                of_bias.add_(z.sum(0))
        if of_bias is not None:
            of_bias = of_bias.to(weight.dtype)
        return of_hidden, of_weight.to(weight.dtype), of_bias, None, None, None


MAX_CHUNK_LOGITS = 2**24
"""Logits held at once by the head (64 MiB in float32)."""


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

        With ``pooled``: instead, the mean hidden state (R, H) of each row's response tokens and
        their number (R,). One method for both, because FSDP gathers parameters around ``forward``.
        """
        found = response_states(self.lm, batch)
        if pooled:
            states = found.spread(found.hidden[found.own]).float()
            counts = torch.bincount(batch.rows, minlength=len(batch.input_ids))
            sums = states.new_zeros(len(batch.input_ids), states.shape[-1])
            sums.index_add_(0, batch.rows, states)
            return sums / counts.clamp(min=1)[:, None], counts
        log_probs, entropy = self._log_probs(found.predicting, found.labels)
        return found.spread(log_probs), found.spread(entropy)

    def _log_probs(self, hidden: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Head, log-probs and entropies of M tokens, chunk by chunk."""
        size = max(1, MAX_CHUNK_LOGITS // self.lm.config.vocab_size)
        if len(hidden) <= size:
            return log_probs_and_entropy(self.lm.lm_head(hidden), labels, self.temperature)
        return chunked_log_probs(self.lm.lm_head, hidden, labels, self.temperature, size)


class ValueNetwork(LmNetwork):
    """A causal model with a scalar head: V of the state before each response token."""

    def __init__(self, lm: nn.Module) -> None:
        super().__init__()
        self.lm = lm

    def forward(self, batch: PaddedBatch) -> Tensor:
        """Values (N,) in float32."""
        found = response_states(self.lm, batch)
        return found.spread(self.lm.score(found.predicting).squeeze(-1).float())


def load_policy(path: str, temperature: float, **loading: bool) -> PolicyNetwork:
    """The causal model of a directory, with the options of :func:`_load`, or ModelError."""
    check_model_dir(path, "model path")
    return PolicyNetwork(_load(AutoModelForCausalLM, path, **loading)[0], temperature)


def load_value(path: str, **loading: bool) -> ValueNetwork:
    """The same model with a scalar head; if the checkpoint has none, the head starts at zero.

    A zero head predicts 0 everywhere, a neutral start that needs no seed.
    """
    check_model_dir(path, "critic model path")
    lm, missing = _load(AutoModelForTokenClassification, path, num_labels=1, **loading)
    if any(name.startswith("score.") for name in missing):
        for parameter in lm.score.parameters():
            nn.init.zeros_(parameter)
    return ValueNetwork(lm)


def _load(
    kind: Any,
    path: str,
    *,
    checkpointing: bool = False,
    trust_remote_code: bool = False,
    shared_prefix: bool = True,
    **more: Any,
) -> tuple[Any, set[str]]:
    """A model in float32 and eval mode, and the names of weights that its files lack.

    Dropout would make old and new log-probs differ without an update. transformers recomputes
    activations only for layers in training mode, so with ``checkpointing`` the layers (but not the
    dropout modules inside them) are set back to it. ``shared_prefix`` computes a prompt once for
    all its responses in a micro-batch; ``more`` is for transformers.
    """
    lm, info = kind.from_pretrained(
        path,
        dtype=torch.float32,
        attn_implementation=SHARED_ATTENTION if shared_prefix else "sdpa",
        trust_remote_code=trust_remote_code,
        use_safetensors=True,
        output_loading_info=True,
        **more,
    )
    lm.eval()
    if checkpointing:
        lm.gradient_checkpointing_enable({"use_reentrant": False})
        for module in lm.modules():
            if isinstance(module, GradientCheckpointingLayer):
                module.training = True
    return lm, set(info["missing_keys"])
