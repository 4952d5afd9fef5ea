"""The networks: token log-probs with entropy, and token values, on Hugging Face causal models.

Both read hidden states through :mod:`refblend.workers.layout`. The head is applied to response
positions only, in chunks: peak memory grows with tokens, not with tokens × vocabulary.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForTokenClassification
from transformers.modeling_layers import GradientCheckpointingLayer

from refblend.errors import ModelError
from refblend.ppo.entropy import log_probs_and_entropy
from refblend.rollout.model_dir import check_model_dir
from refblend.workers.chunked_head import chunked_log_probs
from refblend.workers.layout import SHARED_ATTENTION, PaddedBatch, response_states

MAX_CHUNK_LOGITS = {"cpu": 2**24, "cuda": 2**29}
"""Logits held at once by the head, by kind of device: 64 MiB and 2 GiB in float32."""


class LmNetwork(nn.Module):
    """A network around a Hugging Face model, whose classes transformers types loosely."""

    def __init__(self, lm: Any) -> None:
        super().__init__()
        self.lm = lm


class PolicyNetwork(LmNetwork):
    """A causal language model that returns log-probs and entropies of response tokens."""

    def __init__(self, lm: Any, temperature: float) -> None:
        super().__init__(lm)
        self.temperature = temperature

    def forward(self, batch: PaddedBatch, pooled: bool = False) -> tuple[Tensor, Tensor]:
        """Log-probs (N,) and entropies in nats (N,), both float32, at the rollout temperature.

        ``pooled``: instead each row's mean hidden state (R, H) over its response tokens and their
        number (R,); here as well, because FSDP gathers parameters around ``forward``.
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
        size = max(1, MAX_CHUNK_LOGITS[hidden.device.type] // self.lm.config.vocab_size)
        if len(hidden) <= size and hidden.device.type == "cpu":
            return log_probs_and_entropy(self.lm.lm_head(hidden), labels, self.temperature)
        return chunked_log_probs(self.lm.lm_head, hidden, labels, self.temperature, size)


class ValueNetwork(LmNetwork):
    """A causal model with a scalar head: V of the state before each response token."""

    def forward(self, batch: PaddedBatch) -> Tensor:
        """Values (N,) in float32."""
        found = response_states(self.lm, batch)
        return found.spread(self.lm.score(found.predicting).squeeze(-1).float())


def load_policy(path: str, temperature: float, **loading: bool) -> PolicyNetwork:
    """The causal model of a directory, with the options of :func:`_load`, or ModelError."""
    check_model_dir(path, "model path")
    lm = _load(AutoModelForCausalLM, path, **loading)[0]
    if not loading.get("empty"):
        _check_logits(lm, path)
    return PolicyNetwork(lm, temperature)


@torch.no_grad()
def _check_logits(lm: Any, path: str) -> None:
    """Refuse (ModelError) a model whose logits, which engines sample, are not its head's."""
    ids = torch.arange(min(4, lm.config.get_text_config().vocab_size))[None]
    states = lm.model(input_ids=ids, use_cache=False).last_hidden_state
    expected, found = lm(input_ids=ids, use_cache=False).logits, lm.lm_head(states)
    capped = getattr(lm.config.get_text_config(), "attn_logit_softcapping", None)
    if capped is not None or not torch.allclose(expected, found, rtol=1e-3, atol=1e-3):
        raise ModelError(
            f"{path}: {type(lm).__name__} scales or caps its logits or the scores of its "
            "attention, which the trainer does not compute",
            "Choose a model whose logits are its head's, such as Qwen's or Llama's.",
        )


def load_value(path: str, **loading: bool) -> ValueNetwork:
    """The same model with a scalar head, which starts at zero if the checkpoint has none."""
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
    empty: bool = False,
    **config: Any,
) -> tuple[Any, set[str]]:
    """A model in float32 and eval mode (no dropout), and the names of weights that its files lack.

    With ``empty`` it has shapes alone, on torch's meta device, and lacks none.
    transformers recomputes activations only for layers in training mode, so ``checkpointing`` sets
    the layers, but not the dropout modules inside them, back to it.
    """
    attention = SHARED_ATTENTION if shared_prefix else "sdpa"
    made = {"dtype": torch.float32, "attn_implementation": attention}
    info: dict[str, Any] = {"missing_keys": []}
    if empty:
        with torch.device("meta"):
            lm = kind.from_config(AutoConfig.from_pretrained(path, **config), **made)
    else:
        lm, info = kind.from_pretrained(
            path,
            trust_remote_code=trust_remote_code,
            use_safetensors=True,
            output_loading_info=True,
            **made,
            **config,
        )
    lm.eval()
    # Padding is masked. A padding index would drop the gradient of that token wherever it is input,
    # which is wrong if it is the end token, too, or a word.
    for module in lm.modules():
        if isinstance(module, nn.Embedding):
            module.padding_idx = None
    if checkpointing:
        lm.gradient_checkpointing_enable({"use_reentrant": False})
        for module in lm.modules():
            if isinstance(module, GradientCheckpointingLayer):
                module.training = True
    return lm, set(info["missing_keys"])
