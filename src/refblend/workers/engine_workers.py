"""The workers around an engine: rollout and judge. They need nothing of distributed training."""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from refblend import runtime
from refblend.config import RefblendConfig
from refblend.config.scoring import SCORING_KEY
from refblend.errors import ScoringError
from refblend.rollout.base import Generation, GenerationRequest, RolloutEngine
from refblend.rollout.factory import start_rollout
from refblend.rollout.vllm_engine import VllmEngine
from refblend.scoring.generative import GenerativeJudge
from refblend.scoring.judge import CallStats, Judge, start_judge
from refblend.scoring.result import JudgeResult
from refblend.seeding import derive_seed
from refblend.workers.weight_buffer import MappedWeights, PackedWeights


class Sleeper:
    """A worker whose engine gives its GPU memory back while others work there."""

    engine: Any
    level = 1
    """1: the weights wait on the host. 2: they are lost, for an engine that is pushed new ones."""
    _asleep = False

    def sleep(self) -> None:
        """Give the memory back, unless that has been done."""
        if not self._asleep:
            self.engine.sleep(self.level)
        self._asleep = True

    def wake_up(self, tags: list[str] | None = None) -> None:
        """Take the memory of ``tags`` again, ``kv_cache`` last; None: all of it."""
        if self._asleep:
            self.engine.wake_up(tags)
        self._asleep = tags == ["weights"] and self._asleep


class RolloutWorker(Sleeper):
    """The engine for the actor's responses, and maybe for the judge's."""

    level = 2

    def __init__(self, config: RefblendConfig) -> None:
        rollout = config.actor_rollout_ref.rollout
        runtime.prepare_process(rollout.num_threads)
        self._weights = MappedWeights()
        adapter = rollout.lora == "adapter"
        path = config.actor_rollout_ref.model.path
        self.engine = start_rollout(config, path, adapter=adapter)
        if config.shares_judge:  # the judge is this engine without the adapter
            judge = JudgeWorker(config, cast(VllmEngine, self.engine).base())
            self.generate_quality_score = judge.generate_quality_score
            self.last_call = judge.last_call

    def generate(self, requests: Sequence[GenerationRequest]) -> list[Generation]:
        """Answer all requests with the current weights."""
        return self.engine.generate(requests)

    def load_weights(
        self, packed: PackedWeights, version: int, received: NDArray[np.uint8] | None = None
    ) -> None:
        """Take over the actor's weights; ``received`` are those of an actor elsewhere."""
        self.engine.load_weights(self._weights.tensors(packed, received), version)


class JudgeWorker(Sleeper):
    """The judge of every response, of the configured kind; on a given ``engine`` or its own."""

    def __init__(self, config: RefblendConfig, engine: RolloutEngine | None = None) -> None:
        quality = config.algorithm.ref_quality_score
        self._kind = quality.scoring.kind
        self.judge: Judge
        if engine is not None:
            self.judge = GenerativeJudge.on_engine(quality, engine)
        else:
            runtime.prepare_process(quality.scoring.num_threads)
            self.judge = start_judge(quality, derive_seed(config.trainer.seed, "judge engine"))
        self.engine = getattr(self.judge, "engine", None)

    def generate_quality_score(
        self, questions: Sequence[str], responses: Sequence[str], seeds: Sequence[int]
    ) -> list[JudgeResult]:
        """Judge every response; ScoringError if a user's own judge returns something invalid."""
        results = self.judge.score(questions, responses, seeds)
        remedy = "Return one JudgeResult per response, its score in [0, 1]."
        if len(results) != len(responses):
            told = f"{len(results)} results for {len(responses)} responses"
            raise ScoringError(f"{SCORING_KEY}.kind={self._kind} gave {told}", remedy)
        for result in results:
            if not 0 <= result.score <= 1:
                raise ScoringError(
                    f"{SCORING_KEY}.kind={self._kind} gave the score {result.score}", remedy
                )
        return results

    def begin_run(self, seed: int) -> None:
        """Forget the prompts of an earlier run: a run must not depend on earlier ones."""
        del seed  # a judge's requests bring their own
        self.judge.begin_run()

    def last_call(self) -> CallStats:
        """Metrics of the last batch: requests, tokens and seconds."""
        return self.judge.last_call
