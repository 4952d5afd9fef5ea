"""The judge as the study uses it: a language model that we hold, on vLLM or on transformers.

All samples of a batch are one engine call; each gets one typed result.
"""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from refblend.config.algorithm import RefQualityScoreConfig
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
from refblend.rollout.factory import start_engine
from refblend.rollout.model_dir import check_model
from refblend.scoring.clipping import ScoringLimits, check_frame
from refblend.scoring.judge import CallStats, Judge, first_of_equals
from refblend.scoring.parsing import ScoreMode, TopLogprobs, parse_score
from refblend.scoring.prompts import PromptEncoder
from refblend.scoring.request import ScoringRequest, plan_request
from refblend.scoring.result import JudgeResult
from refblend.scoring.templates import PromptForm, ScoringTemplates, load_templates

SCORING_KEY = "algorithm.ref_quality_score.scoring"

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
    """``ENGINE_FAILURES`` and the base errors of vLLM and Ray, where these are loaded.

    A library that is not loaded cannot raise, and importing it here would cost seconds.
    """
    loaded = [(sys.modules.get(module), name) for module, name in _LIBRARY_FAILURES]
    found = [getattr(module, name, None) for module, name in loaded if module is not None]
    return (*ENGINE_FAILURES, *(error for error in found if error is not None))


@dataclass(frozen=True)
class JudgeOptions:
    """Options of the judge's prompts and answers.

    Attributes:
        limits: length caps; ``max_new_tokens`` is among them.
        form: ``full``: with examples where they fit; ``compact``: that form only.
        hard_clip: cut what is too long; otherwise such a sample is not submitted.
        temperature: 0 is greedy.
        invalid_score: score of a sample that has no valid one.
        score_mode: ``text`` or ``expected`` (needs log-probabilities of the engine).
    """

    limits: ScoringLimits
    form: PromptForm = "full"
    hard_clip: bool = True
    temperature: float = 0.0
    invalid_score: float = 0.5
    score_mode: ScoreMode = "text"

    @classmethod
    def from_config(
        cls, config: RefQualityScoreConfig, model_cap: int, tokenizer_cap: int | None
    ) -> "JudgeOptions":
        """Options of ``algorithm.ref_quality_score`` for an engine of length ``model_cap``."""
        scoring = config.scoring
        limits = ScoringLimits(
            model_cap=model_cap,
            tokenizer_cap=tokenizer_cap,
            fallback_max_length=scoring.fallback_max_length,
            safety_margin=scoring.safety_margin,
            max_new_tokens=scoring.max_new_tokens,
        )
        return cls(
            limits=limits,
            form="full" if scoring.few_shot else "compact",
            hard_clip=scoring.hard_clip,
            temperature=scoring.temperature,
            invalid_score=config.invalid_score,
            score_mode=scoring.score_mode,
        )


class GenerativeJudge(Judge):
    """Scores responses with an engine that holds the reference model.

    Args:
        engine: generates; see :class:`refblend.rollout.base.RolloutEngine`.
        tokenizer: the reference model's.
        templates: the prompt's texts.
        options: lengths and modes.

    Raises:
        ScoringError: the templates cannot fit within the limits.
    """

    def __init__(
        self,
        engine: RolloutEngine,
        tokenizer: Any,
        templates: ScoringTemplates,
        options: JudgeOptions,
    ) -> None:
        self.engine = engine
        self.tokenizer = tokenizer
        self.encoder = PromptEncoder(tokenizer, templates)
        self.options = options
        check_frame(self.encoder.frame("compact"), options.limits)

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
    def start(cls, config: RefQualityScoreConfig, seed: int) -> "GenerativeJudge":
        """Start the engine that ``scoring.kind`` names."""
        scoring = config.scoring
        assert scoring.model_path is not None, "checked by the configuration"
        engine = start_engine(
            scoring.kind,
            EngineOptions(
                model_path=scoring.model_path,
                max_model_len=scoring.max_model_len,
                dtype=scoring.dtype,
                kv_cache_memory_mb=scoring.kv_cache_memory_mb,
                gpu_memory_utilization=scoring.gpu_memory_utilization,
                seed=seed,
            ),
        )
        tokenizer = load_tokenizer(Path(scoring.model_path))
        caps = engine.max_model_len, tokenizer.model_max_length
        options = JudgeOptions.from_config(config, *caps)
        return cls(engine, tokenizer, load_templates(scoring.templates), options)

    def with_options(self, options: JudgeOptions) -> "GenerativeJudge":
        """The same judge on the same engine, asked in another way."""
        return GenerativeJudge(self.engine, self.tokenizer, self.encoder.templates, options)

    def begin_run(self) -> None:
        """Forget the prompts of an earlier run."""
        self.engine.reset_prefix_cache()

    def shutdown(self) -> None:
        """Free the engine's memory."""
        self.engine.shutdown()

    def plan(self, question: str, response: str) -> ScoringRequest:
        """The request for one sample, within the limits or flagged overlength."""
        o = self.options
        allowed = o.limits.allowed_length
        return plan_request(self.encoder, question, response, allowed, o.form, o.hard_clip)

    def score(
        self,
        questions: Sequence[str],
        responses: Sequence[str],
        seeds: Sequence[int] | None = None,
    ) -> list[JudgeResult]:
        """Results in the order of the samples; all requests go out in one engine call.

        A greedy answer follows from the prompt alone, so samples with the same prompt are one
        request then, and a policy that repeats itself costs less to judge.
        """
        seeds = [0] * len(questions) if seeds is None else seeds
        plans = [
            self.plan(question, response)
            for question, response, _ in zip(questions, responses, seeds, strict=True)
        ]
        asked = self._asked_rows(plans)
        answers, refused, failure = self._ask(plans, seeds, asked)
        seconds, invalid_score = self.last_call.seconds_per_sample, self.options.invalid_score
        results = []
        for row, plan in enumerate(plans):
            if plan.overlength or asked[row] in refused:
                results.append(plan.too_long(invalid_score))
            elif asked[row] in answers:
                answer = answers[asked[row]]
                results.append(interpret(answer, self.tokenizer, self.options, plan, seconds))
            else:
                results.append(plan.failed(invalid_score, failure))
        return results

    def _asked_rows(self, plans: Sequence[ScoringRequest]) -> dict[int, int]:
        """For each row that is not too long, the row whose request answers it."""
        if self.options.temperature > 0:
            return {row: row for row, plan in enumerate(plans) if not plan.overlength}
        return first_of_equals([None if p.overlength else tuple(p.token_ids) for p in plans])

    def _ask(
        self, plans: Sequence[ScoringRequest], seeds: Sequence[int], asked: dict[int, int]
    ) -> tuple[dict[int, Generation], set[int], str]:
        """Answers by row, the rows that the engine refused as too long, and why it failed."""
        rows = [row for row, of in asked.items() if row == of]
        refused: set[int] = set()
        start = time.perf_counter()
        answers: dict[int, Generation] = {}
        failure = "the engine gave no answer"
        try:
            try:
                answers = self._generate(plans, seeds, rows)
            except OverlengthError as error:
                # Only if the limits do not describe this engine: its refusal names the rows.
                refused = {rows[i] for i in error.indices}
                rows = [row for row in rows if row not in refused]
                answers = self._generate(plans, seeds, rows)
        except engine_failures() as error:
            # Another engine may have the memory: whoever started this one decides.
            if is_out_of_memory(error):
                raise
            failure = f"{type(error).__name__}: {error}"
        rate = getattr(self.engine, "prefix_cache_hit_rate", None)
        self.last_call = CallStats(
            samples=len(asked),
            requests=len(rows),
            seconds=time.perf_counter() - start,
            prompt_tokens=sum(len(plans[row].token_ids) for row in rows),
            new_tokens=sum(len(answer.token_ids) for answer in answers.values()),
            prefix_cache_hit_rate=rate() if answers and rate is not None else None,
        )
        return answers, refused, failure

    def _generate(
        self, plans: Sequence[ScoringRequest], seeds: Sequence[int], rows: Sequence[int]
    ) -> dict[int, Generation]:
        if not rows:
            return {}
        expected = self.options.score_mode == "expected"
        requests = [
            GenerationRequest(
                prompt_ids=plans[row].token_ids,
                max_new_tokens=self.options.limits.max_new_tokens,
                temperature=self.options.temperature,
                seed=seeds[row],
                log_probs=expected,
                top_logprobs=TOP_LOGPROBS if expected else 0,
            )
            for row in rows
        ]
        return dict(zip(rows, self.engine.generate(requests), strict=True))


def interpret(
    answer: Generation,
    tokenizer: Any,
    options: JudgeOptions,
    request: ScoringRequest,
    latency_s: float = 0.0,
) -> JudgeResult:
    """Result of one generation; only the judge's own tokens are looked at.

    Args:
        answer: what the judge generated, without the prompt.
        tokenizer: the judge's.
        options: how scores are read, and the score where nothing can be read.
        request: the request that it answers.
        latency_s: seconds of the generation.
    """
    ids = answer.token_ids
    text = tokenizer.decode(list(ids), skip_special_tokens=True)
    top: TopLogprobs | None = answer.top_logprobs
    parsed = parse_score(text, ids, tokenizer, top, options.invalid_score, options.score_mode)
    return request.result(parsed, text, latency_s, len(ids))
