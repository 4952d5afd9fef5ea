"""The interface of a judge: many samples in, one typed result each.

``scoring.kind`` names a subclass of :class:`Judge`, by a short name of
:data:`refblend.config.scoring.JUDGES` or as ``module:Class``. No content of a sample and no failure
of the engine makes :meth:`Judge.score` raise or return a silent 0: such a sample gets
``invalid_score`` and a path that says why.
"""

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from refblend import runtime
from refblend.config.algorithm import RefQualityScoreConfig
from refblend.config.loading import checked
from refblend.config.scoring import JUDGES, SCORING_KEY
from refblend.errors import ConfigError
from refblend.lookup import load_function
from refblend.scoring.clipping import ScoringRequest
from refblend.scoring.result import JudgeResult, ScorePath
from refblend.scoring.templates import find_templates


@dataclass(frozen=True)
class CallStats:
    """Statistics of the last call."""

    samples: int = 0
    """Samples that were to be judged and not too long."""
    requests: int = 0
    """Requests submitted; fewer where samples were the same."""
    seconds: float = 0.0
    prompt_tokens: int = 0
    new_tokens: int = 0

    @classmethod
    def merged(cls, calls: Sequence["CallStats"]) -> "CallStats":
        """The statistics of one batch that several engines judged side by side."""
        return cls(
            samples=sum(c.samples for c in calls),
            requests=sum(c.requests for c in calls),
            seconds=max((c.seconds for c in calls), default=0.0),
            prompt_tokens=sum(c.prompt_tokens for c in calls),
            new_tokens=sum(c.new_tokens for c in calls),
        )

    @property
    def seconds_per_sample(self) -> float:
        """Wall time divided by the samples."""
        return self.seconds / max(self.samples, 1)

    def metrics(self) -> dict[str, float]:
        """The call's metrics under their names in ``metrics.jsonl``."""
        return {
            "perf/ref_quality/seconds_per_response": self.seconds_per_sample,
            "perf/ref_quality/prompt_tokens": float(self.prompt_tokens),
            "perf/ref_quality/asked_share": self.requests / max(self.samples, 1),
        }


class Judge(ABC):
    """Scores responses: a context manager that :meth:`open` gives.

    Example::

        with Judge.open("models/cpu/judge_medium", engine="hf") as judge:
            (result,) = judge.score(["What is 2 + 3?"], ["2 + 3 = 5. #### 5"])
        print(result.score, result.valid, result.path)
    """

    last_call: CallStats = CallStats()
    """Of the last :meth:`score`."""

    @staticmethod
    def open(
        model: str | os.PathLike[str] | None = None,
        *,
        engine: str = "vllm",
        templates: str | os.PathLike[str] | None = None,
        invalid_score: float = 0.5,
        seed: int = 0,
        **scoring: Any,
    ) -> "Judge":
        """A judge that is ready to score, as training asks it; else a RefblendError.

        Args:
            model: the judge's directory; None for ``engine="http"``.
            engine: what answers, ``scoring.kind``.
            templates: ``default``, ``embedded`` or a YAML file; None: the judge's own.
            invalid_score: score of a sample that has no valid one, in [0, 1].
            seed: of an engine with random numbers of its own.
            scoring: further keys of ``algorithm.ref_quality_score.scoring``, e.g.
                ``max_new_tokens=32`` or ``http={"base_url": …, "model": …}``.
        """
        runtime.configure_process()
        config = judge_config(model, engine, templates, scoring, invalid_score)
        check_judge(config)
        return start_judge(config, seed)

    @classmethod
    @abstractmethod
    def check(cls, config: RefQualityScoreConfig) -> None:
        """Refuse (RefblendError) what :meth:`start` would, before any process starts."""

    @classmethod
    def trial(
        cls, config: RefQualityScoreConfig, samples: Sequence[tuple[str, str]]
    ) -> list[ScoringRequest]:
        """The prompts for (question, response) pairs, without starting; may be none."""
        return []

    @classmethod
    @abstractmethod
    def start(cls, config: RefQualityScoreConfig, seed: int) -> "Judge":
        """A judge that is ready to score, or RefblendError; ``seed`` is for engines that sample."""

    @abstractmethod
    def score(
        self, questions: Sequence[str], responses: Sequence[str], seeds: Sequence[int] | None = None
    ) -> list[JudgeResult]:
        """B results for B questions and responses; ``seeds``, B too, are for judges that sample."""

    def begin_run(self) -> None:  # noqa: B027 - most kinds keep nothing
        """Forget earlier runs: a run must not depend on what ran before it."""

    def shutdown(self) -> None:  # noqa: B027
        """Free the judge's resources."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()


OF_TRAINING = (
    "on_failure",
    "max_invalid_rate",
    "invalid_window",
    "timeout_s",
    "resource_pool",
    "node",
    "overlap",
    "num_engines",
    "num_threads",
    "num_gpus",
    "control",
)
"""Keys of ``scoring`` that the trainer and its workers read, and no judge."""


def judge_config(
    model: str | os.PathLike[str] | None,
    engine: str,
    templates: str | os.PathLike[str] | None,
    scoring: Mapping[str, Any],
    invalid_score: float = 0.5,
) -> RefQualityScoreConfig:
    """The configuration of :meth:`Judge.open`'s arguments; ConfigError names key and remedy."""
    if templates is None:
        templates = "default" if model is None else find_templates(model)
    given = {"kind": engine, "templates": os.fspath(templates), **scoring}
    if model is not None:
        given["model_path"] = os.fspath(model)
    section = {"scoring": given, "invalid_score": invalid_score}
    config = checked(RefQualityScoreConfig, section, "judge options: ")
    chosen, usual = config.scoring, type(config.scoring)()
    if useless := [key for key in OF_TRAINING if getattr(chosen, key) != getattr(usual, key)]:
        raise ConfigError(
            f"judge options: {', '.join(useless)} would have no effect: only training has it",
            "Leave it out; controls, deadlines and several engines are the caller's here.",
        )
    return config


def judge_class(kind: str) -> type[Judge]:
    """The class that ``scoring.kind`` names, imported now; ConfigError if there is none."""
    found = load_function(JUDGES.get(kind, kind), f"{SCORING_KEY}.kind")
    if not (isinstance(found, type) and issubclass(found, Judge)):
        raise ConfigError(
            f"{SCORING_KEY}.kind={kind} is not a kind of judge",
            "Name a subclass of refblend.scoring.judge.Judge.",
        )
    return found


def check_judge(config: RefQualityScoreConfig) -> None:
    """Refuse a judge that cannot start; see :meth:`Judge.check`."""
    judge_class(config.scoring.kind).check(config)


def start_judge(config: RefQualityScoreConfig, seed: int = 0) -> Judge:
    """The judge of a configuration, ready to score; see :meth:`Judge.start`."""
    return judge_class(config.scoring.kind).start(config, seed)


class RequestJudge(Judge):
    """A judge that makes one request per sample; at temperature 0 equal ones are sent once."""

    def __init__(self, config: RefQualityScoreConfig) -> None:
        self.config = config

    @abstractmethod
    def plan(self, question: str, response: str) -> ScoringRequest:
        """The request for one sample, within the length limit or flagged overlength."""

    @abstractmethod
    def answer(self, requests: Sequence[ScoringRequest], seeds: Sequence[int]) -> list[JudgeResult]:
        """One result per request, in order; raises only if the machine fails."""

    def score(
        self, questions: Sequence[str], responses: Sequence[str], seeds: Sequence[int] | None = None
    ) -> list[JudgeResult]:
        """As :meth:`Judge.score`; all requests go out together."""
        seeds = [0] * len(questions) if seeds is None else seeds
        samples = zip(questions, responses, seeds, strict=True)
        plans = [self.plan(question, response) for question, response, _ in samples]
        greedy = self.config.scoring.temperature == 0
        first: dict[Hashable, int] = {}
        asked = {  # row → the row whose request answers it
            row: first.setdefault(tuple(plan.token_ids) if greedy else row, row)
            for row, plan in enumerate(plans)
            if not plan.overlength
        }
        rows = [row for row, of in asked.items() if row == of]
        start = time.perf_counter()
        answers = self.answer([plans[row] for row in rows], [seeds[row] for row in rows])
        found = dict(zip(rows, answers, strict=True))
        submitted = [result for result in answers if result.path != "overlength"]
        self.last_call = CallStats(
            samples=len(asked),
            requests=len(submitted),
            seconds=time.perf_counter() - start,
            prompt_tokens=sum(result.prompt_tokens for result in submitted),
            new_tokens=sum(result.new_tokens for result in answers),
        )
        return [
            self._result(plan, found[asked[row]] if row in asked else self.too_long(plan))
            for row, plan in enumerate(plans)
        ]

    def _result(self, plan: ScoringRequest, found: JudgeResult) -> JudgeResult:
        answered = found.path not in ("overlength", "error")
        # An endpoint counts its own tokens, and only as they were submitted.
        own_count = found.prompt_tokens == len(plan.token_ids)
        return replace(
            found,
            latency_s=self.last_call.seconds_per_sample if answered else 0.0,
            template=plan.template,
            clipped=plan.clipped,
            prompt_tokens_unclipped=plan.unclipped_length if own_count else found.prompt_tokens,
        )

    def too_long(self, plan: ScoringRequest, reason: str = "") -> JudgeResult:
        """The result of a request that is too long, or that was refused as too long."""
        return self._invalid("overlength", reason, len(plan.token_ids))

    def failed(self, reason: str, prompt_tokens: int) -> JudgeResult:
        """The result of a request whose call failed."""
        return self._invalid("error", reason, prompt_tokens)

    def _invalid(self, path: ScorePath, raw: str, prompt_tokens: int) -> JudgeResult:
        invalid = self.config.invalid_score
        return JudgeResult(invalid, False, path, raw, prompt_tokens=prompt_tokens)
