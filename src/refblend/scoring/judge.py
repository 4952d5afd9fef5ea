"""The judge as training uses it: many samples in, one engine call, one typed result each.

Nothing that a sample contains and nothing that the engine does, unless its memory runs out, makes
:meth:`Judge.score` raise or return a silent 0: a sample that was too long, could not be read or
whose call failed gets ``invalid_score`` with the path that says so. Whether too many did is the
business of :class:`refblend.scoring.result.InvalidRateGuard`.
"""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from refblend.config.algorithm import RefQualityScoreConfig
from refblend.errors import RefblendError
from refblend.lifecycle.faults import is_out_of_memory
from refblend.rollout.base import Generation, GenerationRequest, OverlengthError, RolloutEngine
from refblend.scoring.clipping import ScoringLimits
from refblend.scoring.parsing import ScoreMode
from refblend.scoring.prompts import PromptEncoder
from refblend.scoring.result import JudgeResult
from refblend.scoring.score import (
    ScoringRequest,
    check_templates,
    error_result,
    interpret,
    overlength_result,
    plan_encoded,
)
from refblend.scoring.templates import ScoringTemplates

ENGINE_FAILURES: tuple[type[BaseException], ...] = (
    RefblendError,
    TimeoutError,
    ConnectionError,
    RuntimeError,  # CUDA
    ValueError,  # a request that the engine refuses
)
"""What an engine call may raise without stopping the run, beside the errors of its library."""

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
    """How the judge is asked.

    Attributes:
        limits: length caps; ``max_new_tokens`` is among them.
        few_shot: full form first; otherwise the compact form only.
        hard_clip: cut what is too long; otherwise such a sample is not submitted.
        temperature: 0 is greedy.
        invalid_score: score of a sample that has no valid one.
        score_mode: ``text`` or ``expected`` (needs log-probabilities of the engine).
    """

    limits: ScoringLimits
    few_shot: bool = True
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
            few_shot=scoring.few_shot,
            hard_clip=scoring.hard_clip,
            temperature=scoring.temperature,
            invalid_score=config.invalid_score,
            score_mode=scoring.score_mode,
        )


@dataclass(frozen=True)
class CallStats:
    """Figures of the last engine call.

    Attributes:
        samples: that were to be judged and not too long.
        requests: submitted; fewer where samples were the same.
        seconds: wall time of the call.
        prompt_tokens: submitted.
        new_tokens: generated.
        prefix_cache_hit_rate: share of prompt tokens served by the cache since its last
            reset; None when the engine does not know.
    """

    samples: int = 0
    requests: int = 0
    seconds: float = 0.0
    prompt_tokens: int = 0
    new_tokens: int = 0
    prefix_cache_hit_rate: float | None = None

    def metrics(self) -> dict[str, float]:
        """The figures under their names in ``metrics.jsonl``."""
        figures = {
            "perf/ref_quality/seconds_per_response": self.seconds / max(self.samples, 1),
            "perf/ref_quality/prompt_tokens": float(self.prompt_tokens),
            "perf/ref_quality/asked_share": self.requests / max(self.samples, 1),
        }
        if self.prefix_cache_hit_rate is not None:
            figures["perf/ref_quality/prefix_cache_hit_rate"] = self.prefix_cache_hit_rate
        return figures


@dataclass
class Judge:
    """Scores responses with an engine that holds the reference model.

    Args:
        engine: generates; see :class:`refblend.rollout.base.RolloutEngine`.
        tokenizer: the reference model's.
        templates: the prompt's texts.
        options: lengths and modes.

    Raises:
        ScoringError: the templates cannot fit within the limits.
    """

    engine: RolloutEngine
    tokenizer: Any
    templates: ScoringTemplates
    options: JudgeOptions
    last_call: CallStats = field(default_factory=CallStats)

    def __post_init__(self) -> None:
        check_templates(self.tokenizer, self.templates, self.options.limits)
        self._encoder = PromptEncoder(self.tokenizer, self.templates)

    def plan(self, question: str, response: str) -> ScoringRequest:
        """The request for one sample, within the limits or flagged overlength."""
        o = self.options
        return plan_encoded(self._encoder, question, response, o.limits, o.few_shot, o.hard_clip)

    def score(
        self,
        questions: Sequence[str],
        responses: Sequence[str],
        seeds: Sequence[int] | None = None,
    ) -> list[JudgeResult]:
        """Results in the order of the samples; all requests go out in one engine call.

        A greedy answer follows from the prompt alone, so samples with the same prompt are one
        request then, and a policy that repeats itself costs less to judge.

        Args:
            questions: B problems.
            responses: B answers to judge.
            seeds: B seeds for sampling at a temperature above 0; zeros when None.

        Raises:
            ValueError: the three differ in length.
        """
        seeds = [0] * len(questions) if seeds is None else seeds
        plans = [
            self.plan(question, response)
            for question, response, _ in zip(questions, responses, seeds, strict=True)
        ]
        asked = self._asked_rows(plans)
        answers, refused, failure = self._ask(plans, seeds, asked)
        seconds = self.last_call.seconds / max(self.last_call.samples, 1)
        o = self.options
        results = []
        for row, plan in enumerate(plans):
            if plan.overlength or asked[row] in refused:
                results.append(overlength_result(plan, o.invalid_score))
            elif asked[row] in answers:
                answer = answers[asked[row]]
                results.append(
                    interpret(
                        answer.token_ids,
                        self.tokenizer,
                        answer.top_logprobs,
                        o.invalid_score,
                        o.score_mode,
                        plan,
                        seconds,
                    )
                )
            else:
                results.append(error_result(plan, o.invalid_score, failure))
        return results

    def _asked_rows(self, plans: Sequence[ScoringRequest]) -> dict[int, int]:
        """For each row that is not too long, the row whose request answers it."""
        rows = [row for row, plan in enumerate(plans) if not plan.overlength]
        if self.options.temperature > 0:
            return {row: row for row in rows}
        first: dict[tuple[int, ...], int] = {}
        return {row: first.setdefault(tuple(plans[row].token_ids), row) for row in rows}

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


def failed_results(count: int, reason: str, invalid_score: float = 0.5) -> list[JudgeResult]:
    """Results for a batch whose judge died or missed its deadline before it could answer."""
    return [JudgeResult(invalid_score, False, "error", reason) for _ in range(count)]
