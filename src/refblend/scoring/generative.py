r"""The judge as the study uses it: a language model that we hold, on vLLM or on transformers.

All samples of a batch are one engine call; each gets one typed result.

Under ``scoring.decoding: guided`` an answer is a line of working, then one ``\box{x}`` with x =
0.dd, 1.00 or 1. The line is short enough for the box to fit: it is printable ASCII, of which a
token covers at least one character, so an answer of ``max_new_tokens`` tokens is never cut before
its box ends, whatever the judge would rather write.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from refblend.config.algorithm import RefQualityScoreConfig
from refblend.config.scoring import GUIDED_MIN_TOKENS, SCORING_KEY, ScoringConfig
from refblend.data.tokenizer import load_tokenizer
from refblend.errors import RefblendError
from refblend.lifecycle.faults import is_out_of_memory
from refblend.rollout.base import (
    EngineOptions,
    Generation,
    GenerationRequest,
    OverlengthError,
    RolloutEngine,
)
from refblend.rollout.factory import own_options, start_engine
from refblend.rollout.model_dir import check_model, resolve_max_model_len
from refblend.scoring.clipping import ScoringRequest, allowed_length, plan_request
from refblend.scoring.judge import RequestJudge
from refblend.scoring.parsing import answer_start, parse_score
from refblend.scoring.prompts import PromptEncoder
from refblend.scoring.result import JudgeResult
from refblend.scoring.templates import load_templates

_WORKING = r"[ -\[\]-z|~]"
"""Printable ASCII without backslash and braces, so that the working contains no box."""
_BOX = r"\\box\{(0\.[0-9][0-9]|1\.00|1)\}"


def guided_regex(max_new_tokens: int) -> str:
    """The expression for answers of at most that many tokens, ``GUIDED_MIN_TOKENS`` or more."""
    return _WORKING + f"{{0,{max_new_tokens - GUIDED_MIN_TOKENS}}}" + _BOX


def answer_regex(scoring: ScoringConfig) -> str | None:
    """What the answers of a configured judge must match; None: anything."""
    return guided_regex(scoring.max_new_tokens) if scoring.decoding == "guided" else None


ENGINE_FAILURES: tuple[type[BaseException], ...] = (
    RefblendError,
    TimeoutError,
    ConnectionError,
    RuntimeError,  # CUDA
    ValueError,  # a request that the engine refuses
)
"""What an engine call may raise without stopping the run, besides its library's errors."""

_LIBRARY_FAILURES = (("vllm.exceptions", "VLLMError"), ("ray.exceptions", "RayError"))

TOP_LOGPROBS = 20
"""Alternatives asked for at each position in ``expected`` mode; there are ten digits."""


def engine_failures() -> tuple[type[BaseException], ...]:
    """``ENGINE_FAILURES`` and the base errors of vLLM and Ray, where these are loaded."""
    loaded = [(sys.modules.get(module), name) for module, name in _LIBRARY_FAILURES]
    found = [getattr(module, name, None) for module, name in loaded if module is not None]
    return (*ENGINE_FAILURES, *(error for error in found if error is not None))


class GenerativeJudge(RequestJudge):
    """Scores responses with our own engine; ScoringError if the templates exceed its limits."""

    def __init__(
        self, engine: RolloutEngine, tokenizer: Any, config: RefQualityScoreConfig
    ) -> None:
        super().__init__(config)
        self.engine = engine
        self.tokenizer = tokenizer
        self.encoder = PromptEncoder(tokenizer, load_templates(config.scoring.templates))
        self.regex = answer_regex(config.scoring)
        compact = self.encoder.frame("compact")
        caps = engine.max_model_len, tokenizer.model_max_length
        self.allowed_length = allowed_length(compact, config.scoring, *caps)
        # A chat template may open the thought itself, and its tags may be special tokens.
        slot = tokenizer.decode(list(compact.suffix))
        self._opening = "<think>" if answer_start(slot) is None else ""
        added = getattr(tokenizer, "added_tokens_decoder", {}).values()
        hidden = [str(token) for token in added if token.special]
        self._skip_special = all(answer_start(token) == 0 for token in hidden)

    @classmethod
    def check(cls, config: RefQualityScoreConfig) -> None:
        """The model's directory has all that is needed, and the templates are valid."""
        scoring = config.scoring
        check_model(
            (f"{SCORING_KEY}.model_path", scoring.model_path or ""),
            (f"{SCORING_KEY}.max_model_len", scoring.max_model_len),
        )
        load_templates(scoring.templates)

    @classmethod
    def trial(
        cls, config: RefQualityScoreConfig, samples: Sequence[tuple[str, str]]
    ) -> list[ScoringRequest]:
        """With the judge's own tokenizer and limits; see :meth:`Judge.trial`."""
        directory = Path(config.scoring.model_path or "")
        length = resolve_max_model_len(directory, config.scoring.max_model_len)
        judge = cls.on_engine(config, cast("Any", SimpleNamespace(max_model_len=length)))
        return [judge.plan(question, answer) for question, answer in samples]

    @classmethod
    def start(cls, config: RefQualityScoreConfig, seed: int) -> "GenerativeJudge":
        """Start the engine that ``scoring.kind`` names."""
        scoring = config.scoring
        assert scoring.model_path is not None, "checked by the configuration"
        engine = start_engine(
            scoring.engine, EngineOptions(scoring.model_path, seed=seed, **own_options(scoring))
        )
        try:  # room for a sample is known only now; a refusal must not keep the engine's memory
            return cls.on_engine(config, engine)
        except BaseException:
            engine.shutdown()
            raise

    @classmethod
    def on_engine(cls, config: RefQualityScoreConfig, engine: RolloutEngine) -> "GenerativeJudge":
        """The judge of a configuration on an engine that runs already."""
        return cls(engine, load_tokenizer(Path(config.scoring.model_path or "")), config)

    def asked(self, **changes: Any) -> "GenerativeJudge":
        """The same judge on the same engine, with other values of keys of ``scoring``."""
        scoring = self.config.scoring.model_copy(update=changes)
        config = self.config.model_copy(update={"scoring": scoring})
        return GenerativeJudge(self.engine, self.tokenizer, config)

    def begin_run(self) -> None:
        """Clear the caches of an earlier run."""
        self.engine.reset_prefix_cache()

    def shutdown(self) -> None:
        """Free the engine's memory."""
        self.engine.shutdown()

    def plan(self, question: str, response: str) -> ScoringRequest:
        """The request for one sample, within the limits or flagged overlength."""
        how = self.allowed_length, self.config.scoring.form, self.config.scoring.hard_clip
        return plan_request(self.encoder, question, response, *how)

    def answer(self, requests: Sequence[ScoringRequest], seeds: Sequence[int]) -> list[JudgeResult]:
        """All requests in one engine call; if it fails, so does every request."""
        kept = list(range(len(requests)))
        try:
            try:
                found = self._generate(requests, seeds)
            except OverlengthError as error:
                # Only if the limits do not describe this engine: its refusal names the requests.
                kept = [i for i in kept if i not in error.indices]
                found = self._generate([requests[i] for i in kept], [seeds[i] for i in kept])
            read = {
                i: self.read(generation, len(requests[i].token_ids))
                for i, generation in zip(kept, found, strict=True)
            }
        except engine_failures() as error:
            # Another engine may have the memory: whoever started this one decides.
            if is_out_of_memory(error):
                raise
            reason = f"{type(error).__name__}: {error}"
            return [self.failed(reason, len(request.token_ids)) for request in requests]
        return [read.get(i) or self.too_long(request) for i, request in enumerate(requests)]

    def _generate(
        self, requests: Sequence[ScoringRequest], seeds: Sequence[int]
    ) -> list[Generation]:
        if not requests:
            return []
        scoring, expected = self.config.scoring, self.config.scoring.score_mode == "expected"
        return self.engine.generate(
            [
                GenerationRequest(
                    prompt_ids=request.token_ids,
                    max_new_tokens=scoring.max_new_tokens,
                    temperature=scoring.temperature,
                    seed=seed,
                    log_probs=expected,
                    top_logprobs=TOP_LOGPROBS if expected else 0,
                    regex=self.regex,
                )
                for request, seed in zip(requests, seeds, strict=True)
            ]
        )

    def read(self, answer: Generation, prompt_tokens: int) -> JudgeResult:
        """The score in one generation; only the judge's own tokens are looked at."""
        ids, mode = answer.token_ids, self.config.scoring.score_mode
        written = self.tokenizer.decode(list(ids), skip_special_tokens=self._skip_special)
        text = self._opening + written
        parsed = parse_score(
            text, ids, self.tokenizer, answer.top_logprobs, self.config.invalid_score, mode
        )
        return replace(parsed, raw=text, prompt_tokens=prompt_tokens, new_tokens=len(ids))
