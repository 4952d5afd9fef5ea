"""The interface of a judge: many samples in, one typed result each.

Each kind of judge is one subclass of :class:`Judge`, chosen by ``scoring.kind`` (see
:mod:`refblend.scoring.kinds`). Nothing that a sample contains, and no failure of what answers,
makes :meth:`Judge.score` raise or return a silent 0: such a sample gets ``invalid_score`` with the
path that says why. Whether too many did is the business of
:class:`refblend.scoring.result.InvalidRateGuard`.
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from refblend.config.algorithm import RefQualityScoreConfig
from refblend.scoring.result import JudgeResult


@dataclass(frozen=True)
class CallStats:
    """Statistics of the last call.

    Attributes:
        samples: that were to be judged and not too long.
        requests: submitted; fewer where samples were the same.
        seconds: wall time of the call.
        prompt_tokens: submitted.
        new_tokens: generated.
        prefix_cache_hit_rate: share of prompt tokens served by the cache since its last
            reset; None when it is not known.
    """

    samples: int = 0
    requests: int = 0
    seconds: float = 0.0
    prompt_tokens: int = 0
    new_tokens: int = 0
    prefix_cache_hit_rate: float | None = None

    @property
    def seconds_per_sample(self) -> float:
        """Wall time divided by the samples."""
        return self.seconds / max(self.samples, 1)

    def metrics(self) -> dict[str, float]:
        """The call's metrics under their names in ``metrics.jsonl``."""
        metrics = {
            "perf/ref_quality/seconds_per_response": self.seconds_per_sample,
            "perf/ref_quality/prompt_tokens": float(self.prompt_tokens),
            "perf/ref_quality/asked_share": self.requests / max(self.samples, 1),
        }
        if self.prefix_cache_hit_rate is not None:
            metrics["perf/ref_quality/prefix_cache_hit_rate"] = self.prefix_cache_hit_rate
        return metrics


class Judge(ABC):
    """Scores responses. A new kind implements ``check``, ``start`` and ``score``."""

    last_call: CallStats = CallStats()
    """Of the last :meth:`score`."""

    @classmethod
    @abstractmethod
    def check(cls, config: RefQualityScoreConfig) -> None:
        """Refuse, before any process is started, what :meth:`start` would refuse.

        Raises:
            RefblendError: names the key or file and the remedy.
        """

    @classmethod
    @abstractmethod
    def start(cls, config: RefQualityScoreConfig, seed: int) -> "Judge":
        """A judge that is ready to score.

        Args:
            config: that :meth:`check` accepted.
            seed: of an engine with its own random numbers.

        Raises:
            RefblendError: the judge cannot be started.
        """

    @abstractmethod
    def score(
        self,
        questions: Sequence[str],
        responses: Sequence[str],
        seeds: Sequence[int] | None = None,
    ) -> list[JudgeResult]:
        """Results in the order of the samples.

        Args:
            questions: B problems.
            responses: B answers to judge.
            seeds: B seeds, for judges that sample; zeros when None.

        Raises:
            ValueError: the three differ in length.
        """

    def begin_run(self) -> None:  # noqa: B027 - most kinds keep nothing
        """Forget earlier runs: a run must not depend on what ran before it."""

    def shutdown(self) -> None:  # noqa: B027
        """Free the judge's resources."""


def first_of_equals(keys: Sequence[Hashable | None]) -> dict[int, int]:
    """For each row with a key, the first row with the same key: whose answer it shares."""
    first: dict[Hashable, int] = {}
    return {row: first.setdefault(key, row) for row, key in enumerate(keys) if key is not None}


def failed_results(count: int, reason: str, invalid_score: float = 0.5) -> list[JudgeResult]:
    """Results for a batch whose judge died or missed its deadline before it could answer."""
    return [JudgeResult(invalid_score, False, "error", reason) for _ in range(count)]
