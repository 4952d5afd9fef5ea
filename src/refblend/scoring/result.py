"""Typed results of the judge, their aggregate, and the guard that stops a run of failures."""

import math
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal, get_args

from refblend.errors import ScoringError
from refblend.secret import mask

ScorePath = Literal["text", "token", "logit", "oracle", "default", "overlength", "error"]
PATHS: tuple[ScorePath, ...] = get_args(ScorePath)
DIRECT_PATHS: tuple[ScorePath, ...] = ("text", "logit", "oracle")
"""Of scores that were read without a fallback."""


@dataclass(frozen=True)
class JudgeResult:
    """The judge's word on one response: the score, whether it counts, and how it came about."""

    score: float
    """In [0, 1]; the invalid score where ``valid`` is false."""
    valid: bool
    """Whether there is a score: read from the judge's own tokens or logit, or an oracle's."""
    path: ScorePath
    """The parser that found it (``text``, ``token``), ``logit`` (a reward model's), ``oracle``
    (partial credit), ``default`` (unreadable), ``overlength`` (too long to submit, or refused for
    its length) or ``error`` (the engine failed)."""
    raw: str = ""
    """The judge's text; for ``error`` and ``overlength`` the reason. Secrets in it are masked."""
    latency_s: float = 0.0
    """Seconds of the engine call divided by its samples; 0 if not submitted."""
    template: Literal["full", "compact"] = "full"
    clipped: bool = False
    """Whether response or question was cut to fit."""
    prompt_tokens: int = 0
    """As submitted, or refused."""
    new_tokens: int = 0
    prompt_tokens_unclipped: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "raw", mask(self.raw))


def score_metrics(results: Sequence[JudgeResult]) -> dict[str, float]:
    """A batch's metrics under their names in ``metrics.jsonl``; rates are shares of all results.

    Mean and population deviation include invalid scores, because these are blended too.
    """
    if not results:
        raise ValueError("no judge results to summarise")
    n, scores = len(results), [r.score for r in results]
    mean = fmean(scores)
    answered = [r.new_tokens for r in results if r.path not in ("overlength", "error")]
    paths = Counter(r.path for r in results)
    shares = {
        "nonzero_rate": sum(r.valid and r.score != 0.0 for r in results),
        "valid_rate": sum(r.valid for r in results),
        "fallback_rate": sum(r.path not in DIRECT_PATHS for r in results),
        "compact_rate": sum(r.template == "compact" for r in results),
        "clipped_rate": sum(r.clipped for r in results),
    }
    return {
        "actor/ref_quality/score_mean": mean,
        "actor/ref_quality/score_std": math.sqrt(fmean((s - mean) ** 2 for s in scores)),
        **{f"actor/ref_quality/{name}": count / n for name, count in shares.items()},
        "actor/ref_quality/new_tokens_mean": fmean(answered) if answered else 0.0,
        "incidents/overlength": float(paths["overlength"]),
        "incidents/judge_invalid": float(paths["default"]),
        "incidents/judge_error": float(paths["error"]),
    }


class InvalidRateGuard:
    """Stops the run when too many of the scores of the last ``window`` batches are invalid."""

    def __init__(self, max_invalid_rate: float, window: int) -> None:
        self.max_invalid_rate = max_invalid_rate
        self.window = window
        self._batches: deque[Counter[str]] = deque(maxlen=window)

    def _counts(self) -> Counter[str]:
        return sum(self._batches, Counter[str]())

    @property
    def rate(self) -> float:
        """Share of invalid results in the window; 0 before the first."""
        counts = self._counts()
        return (counts.total() - counts["valid"]) / max(1, counts.total())

    def update(self, results: Iterable[JudgeResult]) -> None:
        """Take in one step's results; ScoringError if the window's invalid rate is too high."""
        if batch := Counter("valid" if r.valid else r.path for r in results):
            self._batches.append(batch)
        if self.rate <= self.max_invalid_rate:
            return
        counts = self._counts()
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
        self._batches = deque(map(Counter, state["batches"]), maxlen=self.window)
