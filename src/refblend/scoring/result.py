"""Typed results of the judge, their aggregate, and the guard that stops a run of failures."""

import math
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from refblend.errors import ScoringError

ScorePath = Literal["text", "token", "logit", "default", "overlength", "error"]
PATHS: tuple[ScorePath, ...] = get_args(ScorePath)
DIRECT_PATHS: tuple[ScorePath, ...] = ("text", "logit")
"""Of scores that were read without a fallback."""


@dataclass(frozen=True)
class ParsedScore:
    """What a parser made of the judge's output.

    Attributes:
        score: in [0, 1]; the invalid score where ``valid`` is false.
        valid: whether one of the parsers found a score in range.
        path: ``text`` or ``token`` (the parser that found it), ``default`` (neither did); see
            :class:`JudgeResult` for the others.
    """

    score: float
    valid: bool
    path: ScorePath


@dataclass(frozen=True)
class JudgeResult:
    """The judge's word on one response.

    Attributes:
        score: in [0, 1]; the invalid score where ``valid`` is false.
        valid: whether the score was read from the judge's own tokens.
        path: ``text``, ``token``, ``logit`` (a reward model's), ``default`` (unreadable),
            ``overlength`` (never submitted) or ``error`` (the engine failed).
        raw: the judge's text; empty for ``overlength``, the reason for ``error``.
        latency_s: seconds of the engine call divided by the requests in it; 0 if not submitted.
        template: form of the prompt, ``full`` or ``compact``.
        clipped: whether response or question was cut to fit.
        prompt_tokens: length of the prompt as submitted (or refused).
        new_tokens: tokens that the judge generated.
        prompt_tokens_unclipped: length before clipping.
    """

    score: float
    valid: bool
    path: ScorePath
    raw: str = ""
    latency_s: float = 0.0
    template: Literal["full", "compact"] = "full"
    clipped: bool = False
    prompt_tokens: int = 0
    new_tokens: int = 0
    prompt_tokens_unclipped: int = 0


@dataclass(frozen=True)
class ScoreSummary:
    """Counts and means over a batch of :class:`JudgeResult`; rates are shares of all results.

    Attributes:
        count: number of results.
        score_mean: mean over all results, invalid scores included (that is what is blended).
        score_std: population standard deviation of the same.
        valid_score_mean: mean over the valid results; NaN when there is none.
        nonzero_rate: share that is valid and not zero.
        valid_rate: share that is valid.
        fallback_rate: share that could not be read at once (all paths but ``DIRECT_PATHS``).
        paths: count for every path, zeros included.
        compact_rate: share scored with the compact template.
        clipped_rate: share whose prompt was clipped.
        prompt_tokens_mean: mean prompt length.
        new_tokens_mean: mean generated length over the submitted ones.
        latency_s_mean: mean seconds per submitted response.
    """

    count: int
    score_mean: float
    score_std: float
    valid_score_mean: float
    nonzero_rate: float
    valid_rate: float
    fallback_rate: float
    paths: dict[str, int]
    compact_rate: float
    clipped_rate: float
    prompt_tokens_mean: float
    new_tokens_mean: float
    latency_s_mean: float

    def metrics(self) -> dict[str, float]:
        """The batch's metrics under their names in ``metrics.jsonl``."""
        return {
            "actor/ref_quality/score_mean": self.score_mean,
            "actor/ref_quality/score_std": self.score_std,
            "actor/ref_quality/nonzero_rate": self.nonzero_rate,
            "actor/ref_quality/valid_rate": self.valid_rate,
            "actor/ref_quality/fallback_rate": self.fallback_rate,
            "actor/ref_quality/compact_rate": self.compact_rate,
            "actor/ref_quality/clipped_rate": self.clipped_rate,
            "actor/ref_quality/new_tokens_mean": self.new_tokens_mean,
            "incidents/overlength": float(self.paths["overlength"]),
            "incidents/judge_invalid": float(self.paths["default"]),
            "incidents/judge_error": float(self.paths["error"]),
        }


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan


def summarise(results: Iterable[JudgeResult]) -> ScoreSummary:
    """Aggregate a batch.

    Raises:
        ValueError: the batch is empty.
    """
    results = list(results)
    if not results:
        raise ValueError("no judge results to summarise")
    n = len(results)
    scores = [r.score for r in results]
    mean = _mean(scores)
    paths = Counter(r.path for r in results)
    submitted = [r for r in results if r.path not in ("overlength", "error")]
    return ScoreSummary(
        count=n,
        score_mean=mean,
        score_std=math.sqrt(_mean([(s - mean) ** 2 for s in scores])),
        valid_score_mean=_mean([r.score for r in results if r.valid]),
        nonzero_rate=sum(r.valid and r.score != 0.0 for r in results) / n,
        valid_rate=sum(r.valid for r in results) / n,
        fallback_rate=sum(r.path not in DIRECT_PATHS for r in results) / n,
        paths={path: paths.get(path, 0) for path in PATHS},
        compact_rate=sum(r.template == "compact" for r in results) / n,
        clipped_rate=sum(r.clipped for r in results) / n,
        prompt_tokens_mean=_mean([float(r.prompt_tokens) for r in results]),
        new_tokens_mean=_mean([float(r.new_tokens) for r in submitted]) if submitted else 0.0,
        latency_s_mean=_mean([r.latency_s for r in submitted]) if submitted else 0.0,
    )


class InvalidRateGuard:
    """Stops the run when too many of the scores of the last steps are invalid.

    Args:
        max_invalid_rate: highest share of invalid results, in [0, 1].
        window: number of latest batches (steps) looked at; the first ones count alone.

    Raises:
        ScoringError: an argument is out of range (on construction).
    """

    def __init__(self, max_invalid_rate: float, window: int) -> None:
        if not 0.0 <= max_invalid_rate <= 1.0:
            raise ScoringError(
                f"scoring.max_invalid_rate is {max_invalid_rate}", "Give a share between 0 and 1."
            )
        if window < 1:
            raise ScoringError(f"scoring.invalid_window is {window}", "Give at least 1.")
        self.max_invalid_rate = max_invalid_rate
        self.window = window
        self._batches: deque[dict[str, int]] = deque(maxlen=window)

    @property
    def rate(self) -> float:
        """Share of invalid results in the window; 0 before the first."""
        total = sum(sum(batch.values()) for batch in self._batches)
        valid = sum(batch.get("valid", 0) for batch in self._batches)
        return (total - valid) / total if total else 0.0

    def update(self, results: Iterable[JudgeResult]) -> None:
        """Take in one step's results; an empty batch is ignored.

        Raises:
            ScoringError: the invalid rate of the window is above the limit.
        """
        batch = Counter("valid" if r.valid else r.path for r in results)
        if batch:
            self._batches.append(dict(batch))
        if self.rate <= self.max_invalid_rate:
            return
        counts = sum((Counter(b) for b in self._batches), Counter[str]())
        detail = ", ".join(f"{path} {counts[path]}" for path in PATHS if counts[path])
        raise ScoringError(
            f"{self.rate:.1%} of the judge scores of the last {len(self._batches)} steps are "
            f"invalid ({detail}), above scoring.max_invalid_rate {self.max_invalid_rate:.1%}",
            "Check the judge and scoring.max_new_tokens, or raise scoring.max_invalid_rate.",
        )

    def state_dict(self) -> dict[str, list[dict[str, int]]]:
        """The window's content, for a checkpoint."""
        return {"batches": [dict(batch) for batch in self._batches]}

    def load_state_dict(self, state: dict[str, list[dict[str, int]]]) -> None:
        """Restore :meth:`state_dict`."""
        self._batches = deque((dict(b) for b in state["batches"]), maxlen=self.window)
