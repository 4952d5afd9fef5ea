"""The transformers engine: the plain sampling loop of :mod:`refblend.rollout.sampling`.

It starts at once and shares no code with vLLM. A request draws its noise from a generator of its
own, so neither the order nor the size of a batch changes a sample (but for two tokens within
rounding error of each other).

Guided decoding uses the library that vLLM's engine uses too: xgrammar turns a regular expression
into the set of tokens allowed next, and the sampling loop asks for each row's mask.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from refblend import runtime
from refblend.data.tokenizer import load_tokenizer
from refblend.errors import ModelError
from refblend.rollout.base import EngineOptions, Generation, GenerationRequest, check_lengths
from refblend.rollout.model_dir import check_model_dir, resolve_max_model_len, stop_token_ids
from refblend.rollout.sampling import sample_tokens


def guide_compiler(tokenizer: Any, vocab_size: int, stop_ids: Sequence[int]) -> Any:
    """What compiles expressions, each once, for logits of width ``vocab_size``."""
    import xgrammar  # not needed by free decoding, nor on a bare machine

    info = xgrammar.TokenizerInfo.from_huggingface(
        tokenizer, vocab_size=vocab_size, stop_token_ids=list(stop_ids)
    )
    return xgrammar.GrammarCompiler(info)


class Guide:
    """Keeps one answer within its expression, which it matches as a whole, token by token."""

    def __init__(self, compiler: Any, vocab_size: int, regex: str) -> None:
        import xgrammar

        self._matcher = xgrammar.GrammarMatcher(compiler.compile_regex(regex))
        self._mask = xgrammar.allocate_token_bitmask(1, vocab_size)
        self._apply = xgrammar.apply_token_bitmask_inplace

    def restrict(self, logits: Tensor) -> None:
        """Set the logits (V,) of tokens that may not come next to −∞, in place."""
        self._matcher.fill_next_token_bitmask(self._mask)
        self._apply(logits[None], self._mask.to(logits.device))

    def accept(self, token: int) -> None:
        """Move on by the chosen token, which :meth:`restrict` has allowed."""
        accepted = self._matcher.accept_token(token)
        assert accepted, f"token {token} is outside the guide"


class HfEngine:
    """A :class:`~refblend.rollout.base.RolloutEngine` on ``AutoModelForCausalLM``."""

    def __init__(self, options: EngineOptions) -> None:
        runtime.configure_process()
        directory = check_model_dir(options.model_path, "model path")
        self.max_model_len = resolve_max_model_len(directory, options.max_model_len)
        from transformers import AutoModelForCausalLM

        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._model: Any = AutoModelForCausalLM.from_pretrained(
            directory,
            dtype=getattr(torch, options.dtype),
            attn_implementation="sdpa",
            local_files_only=True,
            use_safetensors=True,
        )
        self._model.eval().to(self.device)
        self._directory = directory
        self._stop_ids = stop_token_ids(directory)
        self._max_rows = options.max_num_seqs
        self._max_tokens = options.kv_cache_memory_mb * 2**20 // self._cache_bytes_per_token()
        self.weight_version = 0

    def _cache_bytes_per_token(self) -> int:
        config = self._model.config
        heads, width = config.num_attention_heads, config.hidden_size
        size = getattr(config, "head_dim", None) or width // heads
        heads = getattr(config, "num_key_value_heads", None) or heads
        return int(2 * config.num_hidden_layers * heads * size * self._model.dtype.itemsize)

    def generate(self, requests: Sequence[GenerationRequest]) -> list[Generation]:
        """Answer all requests, in their order; see :class:`RolloutEngine`."""
        check_lengths(requests, self.max_model_len)
        answers: dict[int, Generation] = {}
        for rows in self._batches(requests):
            asked, size = [requests[i] for i in rows], self._model.config.vocab_size
            guides = [Guide(self._compiler, size, r.regex) if r.regex else None for r in asked]
            batch = _Batch(asked, guides, self.max_model_len, self.device)
            generations = batch.run(self._model, self._stop_ids, self.weight_version)
            answers.update(zip(rows, generations, strict=True))
        return [answers[i] for i in range(len(requests))]

    @cached_property
    def _compiler(self) -> Any:
        tokenizer, vocab_size = load_tokenizer(self._directory), self._model.config.vocab_size
        return guide_compiler(tokenizer, vocab_size, sorted(self._stop_ids))

    def _batches(self, requests: Sequence[GenerationRequest]) -> list[list[int]]:
        """Requests of like length together, each batch within the cache's memory.

        One request may exceed it alone: the bound is on batching, not on what can be answered.
        """
        sizes = [len(r.prompt_ids) + r.max_new_tokens for r in requests]
        batches: list[list[int]] = []
        for row in sorted(range(len(sizes)), key=lambda i: -len(requests[i].prompt_ids)):
            joined = [*batches[-1], row] if batches else []
            fits = len(joined) * max((sizes[i] for i in joined), default=0) <= self._max_tokens
            if joined and fits and len(joined) <= self._max_rows:
                batches[-1] = joined
            else:
                batches.append([row])
        return batches

    def load_weights(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Replace the weights; see :class:`RolloutEngine`."""
        tied = bool(getattr(self._model.config, "tie_word_embeddings", False))
        absent, unknown = self._model.load_state_dict(weights, strict=False)
        if tied:  # the head is the embeddings, which were replaced in place
            absent = [name for name in absent if name != "lm_head.weight"]
        if absent or unknown:
            raise ModelError(
                f"pushed weights lack {absent[:3]} and have unknown {unknown[:3]}",
                "Actor and engine must start from the same model directory.",
            )
        self.weight_version = version

    def reset_prefix_cache(self) -> None:
        """Nothing to forget: every call computes its prompts."""

    def shutdown(self) -> None:
        """Free the engine's memory."""
        self._model = None


class _Batch:
    """Requests sampled together: left-padded prompts, one generator and one answer each."""

    def __init__(
        self,
        requests: Sequence[GenerationRequest],
        guides: Sequence[Guide | None],
        limit: int,
        device: torch.device,
    ) -> None:
        self.requests = requests
        self.guides = guides
        self.device = device
        self.room = [min(r.max_new_tokens, limit - len(r.prompt_ids)) for r in requests]
        # Greedy log-probs are those of softmax(logits), as vLLM's are.
        self.temperatures = torch.tensor(
            [r.temperature if r.temperature > 0 else 1.0 for r in requests], device=device
        )
        self.generators = [
            torch.Generator(device).manual_seed(r.seed) if r.temperature > 0 else None
            for r in requests
        ]
        self.top = max(r.top_logprobs for r in requests)
        self.tokens: list[list[int]] = [[] for _ in requests]
        self.log_probs: list[list[float]] = [[] for _ in requests]
        self.alternatives: list[list[dict[int, float]]] = [[] for _ in requests]
        self.stopped = [False] * len(requests)

    def run(self, model: Any, stop_ids: frozenset[int], version: int) -> list[Generation]:
        """Sample until every request has stopped or has no room left."""

        def choose(logits: Tensor, live: list[int]) -> tuple[Tensor, list[int]]:
            chosen = self._sample(logits, live)
            keep = []
            for place, row in enumerate(live):
                goes_on = self.requests[row].ignore_eos
                self.stopped[row] = not goes_on and self.tokens[row][-1] in stop_ids
                if not self.stopped[row] and len(self.tokens[row]) < self.room[row]:
                    keep.append(place)
            return chosen, keep

        sample_tokens(model, [r.prompt_ids for r in self.requests], choose, self.device)
        return [self._generation(row, version) for row in range(len(self.requests))]

    def _sample(self, logits: Tensor, live: list[int]) -> Tensor:
        """One token for each live row (R,) from logits (R, V), recorded with its log-prob.

        argmax(log p − log E) with E ~ Exp(1) draws from p (the Gumbel-max trick), and takes a
        fixed number of draws from a row's generator whatever the other rows do.
        """
        for place, row in enumerate(live):
            if (guide := self.guides[row]) is not None:
                guide.restrict(logits[place])
        log_p = torch.log_softmax(logits / self.temperatures[live, None], dim=-1)
        keys = log_p.clone()
        for place, row in enumerate(live):
            generator = self.generators[row]
            if generator is not None:
                noise = torch.empty_like(keys[place]).exponential_(generator=generator)
                keys[place] -= noise.clamp(min=torch.finfo(noise.dtype).tiny).log()
        chosen = keys.argmax(dim=-1)
        picked = log_p.gather(1, chosen[:, None])[:, 0].tolist()
        top_values, top_ids = (t.tolist() for t in log_p.topk(min(self.top, log_p.shape[1])))
        for place, (row, token) in enumerate(zip(live, chosen.tolist(), strict=True)):
            self.tokens[row].append(token)
            if (guide := self.guides[row]) is not None:
                guide.accept(token)
            self.log_probs[row].append(picked[place])
            count = self.requests[row].top_logprobs
            found = zip(top_ids[place][:count], top_values[place][:count], strict=True)
            self.alternatives[row].append({token: picked[place]} | dict(found))
        return chosen

    def _generation(self, row: int, version: int) -> Generation:
        return Generation(
            token_ids=self.tokens[row],
            log_probs=self.log_probs[row] if self.requests[row].log_probs else [],
            finish_reason="stop" if self.stopped[row] else "length",
            weight_version=version,
            top_logprobs=self.alternatives[row] if self.requests[row].top_logprobs else None,
        )
