"""What judges share that make a request of every sample: equal ones are asked once, and counted."""

import time
from abc import abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from refblend.scoring.clipping import ScoringRequest
from refblend.scoring.judge import CallStats, Judge
from refblend.scoring.result import JudgeResult, ParsedScore


@dataclass(frozen=True)
class Reply:
    """What came of one request: a score with its text, or the reason why there is none."""

    parsed: ParsedScore
    raw: str = ""
    prompt_tokens: int | None = None
    """As what answered counts them; None: the request's own ids."""
    new_tokens: int = 0

    def length(self, token_ids: Sequence[int]) -> int:
        """Tokens of the prompt whose ids these are."""
        return len(token_ids) if self.prompt_tokens is None else self.prompt_tokens


class RequestJudge(Judge):
    """A judge that makes a request of every sample and answers equal ones once.

    A subclass sets ``invalid_score`` and ``greedy`` (the answer follows from the prompt alone) and
    implements :meth:`plan` and :meth:`answer`.
    """

    invalid_score: float
    greedy: bool = True

    @abstractmethod
    def plan(self, question: str, response: str) -> ScoringRequest:
        """The request for one sample, within the length limit or flagged overlength."""

    @abstractmethod
    def answer(self, requests: Sequence[ScoringRequest], seeds: Sequence[int]) -> list[Reply]:
        """A reply to every request, in their order; only the machine's failures may raise."""

    def prefix_cache_hit_rate(self) -> float | None:
        """Share of prompt tokens served by a cache since its last reset, where it is known."""
        return None

    def score(
        self,
        questions: Sequence[str],
        responses: Sequence[str],
        seeds: Sequence[int] | None = None,
    ) -> list[JudgeResult]:
        """As :meth:`Judge.score`; all requests go out together.

        Where the judge is greedy, samples with the same prompt are one request, so a policy that
        repeats itself costs less to judge.
        """
        seeds = [0] * len(questions) if seeds is None else seeds
        samples = zip(questions, responses, seeds, strict=True)
        plans = [self.plan(question, response) for question, response, _ in samples]
        first: dict[Hashable, int] = {}
        asked = {  # row → the row whose request answers it
            row: first.setdefault(tuple(plan.token_ids) if self.greedy else row, row)
            for row, plan in enumerate(plans)
            if not plan.overlength
        }
        rows = [row for row, of in asked.items() if row == of]
        start = time.perf_counter()
        answers = self.answer([plans[row] for row in rows], [seeds[row] for row in rows])
        replies = dict(zip(rows, answers, strict=True))
        submitted = {row: r for row, r in replies.items() if r.parsed.path != "overlength"}
        answered = any(reply.parsed.path != "error" for reply in submitted.values())
        self.last_call = CallStats(
            samples=len(asked),
            requests=len(submitted),
            seconds=time.perf_counter() - start,
            prompt_tokens=sum(r.length(plans[row].token_ids) for row, r in submitted.items()),
            new_tokens=sum(reply.new_tokens for reply in answers),
            prefix_cache_hit_rate=self.prefix_cache_hit_rate() if answered else None,
        )
        too_long = self.too_long()
        return [
            self._result(plan, replies[asked[row]] if row in asked else too_long)
            for row, plan in enumerate(plans)
        ]

    def _result(self, plan: ScoringRequest, reply: Reply) -> JudgeResult:
        own_count = reply.prompt_tokens is None
        answered = reply.parsed.path not in ("overlength", "error")
        return JudgeResult(
            **vars(reply.parsed),
            raw=reply.raw,
            latency_s=self.last_call.seconds_per_sample if answered else 0.0,
            template=plan.template,
            clipped=plan.clipped,
            prompt_tokens=reply.length(plan.token_ids),
            new_tokens=reply.new_tokens,
            prompt_tokens_unclipped=plan.unclipped_length if own_count else reply.length(()),
        )

    def too_long(self) -> Reply:
        """The reply to a request that is not submitted because it is too long."""
        return Reply(ParsedScore(self.invalid_score, False, "overlength"))

    def failed(self, reason: str, prompt_tokens: int | None = None) -> Reply:
        """The reply to a request whose call failed."""
        return Reply(ParsedScore(self.invalid_score, False, "error"), reason, prompt_tokens)
