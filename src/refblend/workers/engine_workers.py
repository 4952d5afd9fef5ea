"""The workers around a vLLM engine: rollout and judge.

Separate from the networks' workers, because their processes need nothing of distributed training.
"""

from collections.abc import Sequence

from torch import Tensor

from refblend import runtime
from refblend.config import RefblendConfig
from refblend.data.tokenizer import load_tokenizer
from refblend.rollout.base import (
    EngineOptions,
    Generation,
    GenerationRequest,
    RolloutEngine,
    start_engine,
)
from refblend.scoring.judge import CallStats, Judge, JudgeOptions
from refblend.scoring.result import JudgeResult
from refblend.scoring.templates import load_templates
from refblend.seeding import derive_seed


class RolloutWorker:
    """The engine that generates the actor's responses."""

    def __init__(self, config: RefblendConfig) -> None:
        rollout = config.actor_rollout_ref.rollout
        runtime.prepare_process(rollout.num_threads)
        self.engine: RolloutEngine = start_engine(
            rollout.name,
            EngineOptions(
                model_path=config.actor_rollout_ref.model.path,
                max_model_len=rollout.max_model_len,
                dtype=rollout.dtype,
                kv_cache_memory_mb=rollout.kv_cache_memory_mb,
                gpu_memory_utilization=rollout.gpu_memory_utilization,
                tensor_parallel_size=rollout.tensor_model_parallel_size,
                enforce_eager=rollout.enforce_eager,
                enable_prefix_caching=rollout.enable_prefix_caching,
                seed=rollout.seed or derive_seed(config.trainer.seed, "rollout engine"),
            ),
        )

    def generate(self, requests: Sequence[GenerationRequest]) -> list[Generation]:
        """Answer all requests with the current weights."""
        return self.engine.generate(requests)

    def load_weights(self, weights: dict[str, Tensor], version: int) -> None:
        """Take over the actor's weights after its update."""
        self.engine.load_weights(weights, version)


class JudgeWorker:
    """The reference model that judges every response."""

    def __init__(self, config: RefblendConfig) -> None:
        quality = config.algorithm.ref_quality_score
        scoring = quality.scoring
        runtime.prepare_process(scoring.num_threads)
        assert scoring.model_path is not None, "checked by the configuration"
        self.engine = start_engine(
            "vllm",
            EngineOptions(
                model_path=scoring.model_path,
                max_model_len=scoring.max_model_len,
                dtype=scoring.dtype,
                kv_cache_memory_mb=scoring.kv_cache_memory_mb,
                gpu_memory_utilization=scoring.gpu_memory_utilization,
                seed=derive_seed(config.trainer.seed, "judge engine"),
            ),
        )
        tokenizer = load_tokenizer(scoring.model_path)
        self.judge = Judge(
            self.engine,
            tokenizer,
            load_templates(scoring.templates),
            JudgeOptions.from_config(
                quality, self.engine.max_model_len, tokenizer.model_max_length
            ),
        )

    def generate_quality_score(
        self, questions: Sequence[str], responses: Sequence[str], seeds: Sequence[int]
    ) -> list[JudgeResult]:
        """Judge every response; failures come back as results, never as a score of 0."""
        return self.judge.score(questions, responses, seeds)

    def begin_run(self) -> None:
        """Forget the prompts of an earlier run: a run must not depend on earlier ones."""
        self.engine.reset_prefix_cache()

    def last_call(self) -> CallStats:
        """Figures of the last batch: tokens, seconds, prefix-cache hit rate."""
        return self.judge.last_call
