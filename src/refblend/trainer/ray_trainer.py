"""The single-controller PPO trainer with entropy-aware blending of a reference quality score.

:meth:`RayPPOTrainer.fit` is section 2.1 of the spec, one line a stage. Departures from verl:

* Q is blended into the token-level rewards before the KL penalty: R'' = (1 − w)R + wQ − βKL.
* The judge, the rule reward, old and reference log-probs and values are launched together.
* Every sample has a seed of its own, so batches can be cut differently without changing it.
* A step leaves no hidden state: a run is its checkpoint, its configuration and its seed.
"""

import contextlib
import json
import logging
import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from refblend.config import RefblendConfig
from refblend.data.dataset import PromptSampler
from refblend.files import atomic_path
from refblend.ppo.blending import (
    blend_rewards,
    compute_avg_response_entropy,
    expand_quality,
)
from refblend.ppo.correction import importance_weights, mismatch_metrics
from refblend.ppo.estimators import AdvantageInputs, get_advantage
from refblend.ppo.kl import make_kl_controller
from refblend.ppo.weights import (
    entropy_to_weight_cosine,
    entropy_to_weight_exp,
    entropy_to_weight_linear,
    entropy_to_weight_piecewise,
)
from refblend.rewards.alignment import alignment_bonus, alignment_weight, cosine_similarity
from refblend.rewards.rule import RuleReward
from refblend.rollout.base import Generation, GenerationRequest
from refblend.scoring.result import InvalidRateGuard, JudgeResult
from refblend.seeding import derive_generator, derive_seed
from refblend.trainer.batch import Advantages, PromptBatch, Rollout, Scores
from refblend.trainer.checkpoint import CheckpointManager, write_state
from refblend.trainer.datasets import RunData
from refblend.trainer.drift import DriftGuard
from refblend.trainer.metrics import data_metrics, memory_metrics, timing_metrics
from refblend.trainer.shaping import Moment, blend, penalise_kl, reward_length_correlation
from refblend.trainer.tracking import MetricsLog, Trackers
from refblend.trainer.validation import validation_metrics, validation_requests
from refblend.trainer.worker_set import WorkerSet
from refblend.workers.shards import as_log_probs, merge_shards
from refblend.workers.types import PolicyTargets, Sequences, ValueTargets, pad_rows, response_mask

__all__ = [
    "RayPPOTrainer",
    "blend_rewards",
    "compute_avg_response_entropy",
    "entropy_to_weight_cosine",
    "entropy_to_weight_exp",
    "entropy_to_weight_linear",
    "entropy_to_weight_piecewise",
    "expand_quality",
]

logger = logging.getLogger(__name__)


class RayPPOTrainer:
    """Trains one run on workers that are up.

    Args:
        config: the resolved configuration.
        data: prompts of training and validation, and the tokenizer.
        workers: the running worker groups.
        checkpoints: where states are written and found.
        log: the canonical metrics.
        trackers: views of the metrics.
        total_steps: last training step.
    """

    def __init__(
        self,
        config: RefblendConfig,
        data: RunData,
        workers: WorkerSet,
        checkpoints: CheckpointManager,
        log: MetricsLog,
        trackers: Trackers,
        total_steps: int,
    ) -> None:
        self.config = config
        self.data = data
        self.workers = workers
        self.checkpoints = checkpoints
        self.log = log
        self.trackers = trackers
        self.total_steps = total_steps
        self.run_dir = Path(config.trainer.default_local_dir)
        self.seed = config.trainer.seed
        self.step = 0
        self.reward = RuleReward(config.reward.method, config.reward.custom_reward_function)
        self.estimator = get_advantage(config.algorithm.adv_estimator)
        kl = config.algorithm.kl_ctrl
        self.kl_controller = make_kl_controller(kl.type, kl.kl_coef, kl.target_kl, kl.horizon)
        self.sampler = PromptSampler(
            len(data.train), config.data.train_batch_size, config.data.shuffle, self.seed
        )
        scoring = config.algorithm.ref_quality_score.scoring
        self.invalid_guard = InvalidRateGuard(scoring.max_invalid_rate, scoring.invalid_window)
        self.drift = DriftGuard(config.trainer.drift_guard)
        self._metrics: dict[str, float] = {}
        self._seconds: dict[str, float] = {}

    def fit(self) -> None:
        """Train from the restored state to the last step."""
        self.restore()
        if self.step == 0 and self.config.trainer.val_before_train:
            self._record(0, self.validate())
        while self.step < self.total_steps:
            self._metrics, self._seconds = {}, {}
            with self._timed("step"):
                prompts = self.next_prompts()
                rollout = self.generate(prompts)
                scores = self.score(prompts, rollout)
                rewards = self.blend(rollout, scores)
                rewards = self.penalise_kl(rewards, rollout, scores)
                rewards = self.add_alignment_bonus(rewards, rollout, scores)
                advantages = self.estimate_advantages(rewards, prompts, rollout, scores)
                self.update_critic(rollout, scores, advantages)
                self.update_actor(rollout, scores, advantages)
                self.push_weights()
            self.step += 1
            self.finish_step(prompts, rollout, scores, advantages)

    # --- the stages of a step, in the order of fit -------------------------------------------

    def next_prompts(self) -> PromptBatch:
        """The next prompts, each replicated ``rollout.n`` times."""
        n = self.config.actor_rollout_ref.rollout.n
        uids = [uid for uid in self.sampler.next_batch() for _ in range(n)]
        return PromptBatch(
            rows=[self.data.train.rows[uid] for uid in uids],
            prompt_ids=[self.data.train.prompt_ids[uid] for uid in uids],
            uids=uids,
            sample_index=[i % n for i in range(len(uids))],
        )

    def generate(self, prompts: PromptBatch) -> Rollout:
        """Sample one response a row, and greedy baselines when the estimator wants them."""
        rollout = self.config.actor_rollout_ref.rollout
        longest = self.config.data.max_response_length
        step = self.step + 1
        requests = [
            GenerationRequest(
                ids, longest, rollout.temperature, derive_seed(self.seed, "rollout", step, uid, k)
            )
            for ids, uid, k in zip(
                prompts.prompt_ids, prompts.uids, prompts.sample_index, strict=True
            )
        ]
        if self.estimator.needs_reward_baselines:
            requests += [
                GenerationRequest(ids, longest, temperature=0.0)
                for ids in prompts.prompt_ids[:: rollout.n]
            ]
        with self._timed("gen"):
            answers = self.workers.generate(requests, version=self.step)
        sampled, greedy = answers[: len(prompts.uids)], answers[len(prompts.uids) :]
        sequences = Sequences(prompts.prompt_ids, [a.token_ids for a in sampled])
        mask = response_mask(sequences.response_lengths, sequences.response_width)
        return Rollout(
            sequences=sequences,
            texts=[self.data.decode(a.token_ids) for a in sampled],
            finished=[a.finish_reason == "stop" for a in sampled],
            response_mask=mask,
            log_probs=pad_rows([a.log_probs for a in sampled], mask.shape[1]),
            baseline_texts=[self.data.decode(a.token_ids) for a in greedy for _ in range(rollout.n)]
            or None,
        )

    def score(self, prompts: PromptBatch, rollout: Rollout) -> Scores:
        """Everything that can be said about the responses without the others: launched at once."""
        workers, sequences, rows = self.workers, rollout.sequences, len(prompts.rows)
        judging = self._compute_ref_quality_score(prompts, rollout)
        old = workers.forward(workers.actor, "compute_log_prob", sequences)
        critic, reference = workers.critic, workers.reference
        values = critic and workers.forward(critic, "compute_values", sequences)
        ref = reference and workers.forward(reference, "compute_log_prob", sequences)
        with self._timed("reward"):
            results = [
                self.reward(row.data_source, text, row.ground_truth, row.extra)
                for row, text in zip(prompts.rows, rollout.texts, strict=True)
            ]
            baselines = [
                self.reward(row.data_source, text, row.ground_truth, row.extra).score
                for row, text in zip(prompts.rows, rollout.baseline_texts or [], strict=False)
            ]
        strict = self.reward.method == "strict"
        scores = Scores(
            rule=torch.tensor([r.score for r in results]),
            accuracy=torch.tensor([r.acc_strict if strict else r.acc_flexible for r in results]),
            old=as_log_probs(old.results(), rows),
            reference=as_log_probs(ref.results(), rows).log_probs if ref else None,
            values=merge_shards(values.results(), rows)[0] if values else None,
            quality=judging.result() if judging else None,
            baselines=torch.tensor(baselines) if baselines else None,
            alignment=self._alignment(prompts, rollout),
        )
        waits = {"old_log_prob": old, "ref": ref, "values": values, "ref_quality_score": judging}
        self._seconds |= {name: wait.seconds for name, wait in waits.items() if wait}
        correction = self.config.algorithm.rollout_correction
        self._metrics |= mismatch_metrics(
            rollout.log_probs, scores.old.log_probs, rollout.response_mask, correction.threshold
        )
        if scores.quality is not None:
            assert workers.judge is not None, "it gave the scores"
            self._metrics |= workers.judge.call("last_call").result().metrics()
            self.invalid_guard.update(scores.quality)
        return scores

    def _compute_ref_quality_score(self, prompts: PromptBatch, rollout: Rollout) -> Any:
        """Launch the judge on all responses (spec, 2.3); None when no judge runs."""
        if self.workers.judge is None:
            return None
        seeds = [
            derive_seed(self.seed, "judge", self.step + 1, uid, k)
            for uid, k in zip(prompts.uids, prompts.sample_index, strict=True)
        ]
        questions = [row.question for row in prompts.rows]
        return self.workers.judge_responses(questions, rollout.texts, seeds)

    def _alignment(self, prompts: PromptBatch, rollout: Rollout) -> torch.Tensor | None:
        """Cosine between the reference model's states of the response and the gold solution."""
        if not self.config.algorithm.repr_align.enable:
            return None
        assert self.workers.reference is not None, "configured together"
        group, rows = self.workers.reference, len(prompts.rows)
        gold = Sequences(prompts.prompt_ids, [self.data.encode(r.solution) for r in prompts.rows])
        pending = [
            self.workers.forward(group, "compute_pooled_states", sequences)
            for sequences in (rollout.sequences, gold)
        ]
        return cosine_similarity(*(merge_shards(p.results(), rows)[0] for p in pending))

    def blend(self, rollout: Rollout, scores: Scores) -> torch.Tensor:
        """avg_entropy → w → R' = (1 − w)R + wQ; (B, T)."""
        control = derive_generator(self.seed, "judge control", self.step + 1)
        moment = Moment(self.step + 1, self.total_steps)
        quality = self.config.algorithm.ref_quality_score
        rewards, figures = blend(quality, rollout, scores, moment, control)
        self._metrics |= figures
        return rewards

    def penalise_kl(self, rewards: torch.Tensor, rollout: Rollout, scores: Scores) -> torch.Tensor:
        """R'' = R' − βKL."""
        rewards, figures = penalise_kl(self.config, rewards, rollout, scores, self.kl_controller)
        self._metrics |= figures
        return rewards

    def add_alignment_bonus(
        self, rewards: torch.Tensor, rollout: Rollout, scores: Scores
    ) -> torch.Tensor:
        """The optional entropy-triggered bonus, spread over the response tokens."""
        if scores.alignment is None:
            return rewards
        config = self.config.algorithm.repr_align
        weight = alignment_weight(
            compute_avg_response_entropy(scores.old.entropy, rollout.response_mask),
            self.step + 1,
            config.weight,
            config.weight_warmup_steps,
            config.entropy_high_threshold,
        )
        self._metrics |= {
            "actor/repr_align/weight": weight,
            "actor/repr_align/similarity": float(scores.alignment.mean()),
        }
        return rewards + alignment_bonus(scores.alignment, rollout.response_mask, weight)

    def estimate_advantages(
        self, rewards: torch.Tensor, prompts: PromptBatch, rollout: Rollout, scores: Scores
    ) -> Advantages:
        """Advantages and returns by the configured estimator."""
        algorithm = self.config.algorithm
        with self._timed("adv"):
            advantages, returns = self.estimator(
                AdvantageInputs(
                    token_level_rewards=rewards,
                    response_mask=rollout.response_mask,
                    index=prompts.uids,
                    values=scores.values,
                    reward_baselines=scores.baselines,
                    gamma=algorithm.gamma,
                    lam=algorithm.lam,
                    norm_adv_by_std_in_grpo=algorithm.norm_adv_by_std_in_grpo,
                )
            )
        self._metrics |= reward_length_correlation(rewards, rollout.response_mask)
        return Advantages(rewards, advantages, returns)

    def update_critic(self, rollout: Rollout, scores: Scores, advantages: Advantages) -> None:
        """One round of value updates, when there is a critic."""
        if scores.values is None:
            return
        targets = ValueTargets(rollout.response_mask, scores.values, advantages.returns)
        with self._timed("update_critic"):
            figures = self.workers.update_critic(rollout.sequences, targets, self.step + 1)
        self._take("critic", figures)

    def update_actor(self, rollout: Rollout, scores: Scores, advantages: Advantages) -> None:
        """One round of policy updates, once the critic is warmed up."""
        if self.step < self.config.trainer.critic_warmup:
            return
        correction = self.config.algorithm.rollout_correction
        old = scores.old.log_probs
        mask = rollout.response_mask
        targets = PolicyTargets(
            response_mask=mask,
            old_log_probs=old,
            advantages=advantages.advantages,
            ref_log_probs=scores.reference,
            importance_weights=importance_weights(
                rollout.log_probs, old, mask, correction.mode, correction.threshold
            ),
        )
        with self._timed("update_actor"):
            figures = self.workers.update_actor(rollout.sequences, targets, self.step + 1)
        self._take("actor", figures)

    def push_weights(self) -> None:
        """The engine samples the next step with the updated weights."""
        with self._timed("update_weights"):
            self.workers.push_weights(version=self.step + 1)

    # --- after the step ----------------------------------------------------------------------

    def finish_step(
        self, prompts: PromptBatch, rollout: Rollout, scores: Scores, advantages: Advantages
    ) -> None:
        """Validate, save and record, each by its schedule."""
        trainer = self.config.trainer
        self._metrics |= data_metrics(
            rollout, scores, advantages, self.config.data.max_response_length
        )
        self._metrics |= {
            "training/global_step": float(self.step),
            "training/epoch": float(self.sampler.epoch),
        }
        for name in ("oom", "nonfinite", "overlength"):
            self._metrics.setdefault(f"incidents/{name}", 0.0)
        last = self.step == self.total_steps
        if last or (trainer.test_freq > 0 and self.step % trainer.test_freq == 0):
            with self._timed("testing"):
                self._metrics |= self.validate()
        if trainer.rollout_dump_freq and (self.step % trainer.rollout_dump_freq == 0 or last):
            self._dump(prompts, rollout, scores)
        if trainer.save_freq and (
            last or (trainer.save_freq > 0 and self.step % trainer.save_freq == 0)
        ):
            with self._timed("save_checkpoint"):
                self.save()
        devices = max(1, round(sum(self._gpus())))
        self._metrics |= timing_metrics(self._seconds, rollout, devices) | memory_metrics()
        self._record(self.step, self._metrics)

    def validate(self) -> dict[str, float]:
        """Accuracy and reward on the validation and sanity sets; feeds the drift guard."""
        kwargs = self.config.actor_rollout_ref.rollout.val_kwargs
        sets = self.data.validation_sets
        requests = validation_requests(
            sets, kwargs, self.config.data.max_response_length, self.seed
        )
        answers: list[Generation] = self.workers.generate(requests, version=self.step)
        figures = validation_metrics(sets, kwargs, answers, self.data.decode, self.reward)
        warning = self.drift.check(figures)
        if warning:
            self.trackers.message(warning)
        return figures

    def save(self) -> None:
        """Write everything that a resumed run needs, atomically."""
        with self.checkpoints.staging(self.step) as staged:
            self.workers.save(staged)
            self.data.tokenizer.save_pretrained(staged / "actor")
            state = {
                "step": self.step,
                "sampler": self.sampler.state_dict(),
                "kl_controller": self.kl_controller.state_dict(),
                "drift": self.drift.state_dict(),
                "invalid_window": self.invalid_guard.state_dict(),
            }
            write_state(staged, state, metric=self._headline())

    def restore(self) -> None:
        """Continue from the newest valid checkpoint (or the one named), or start at step 0."""
        path = self.config.trainer.resume_from_path
        if self.config.trainer.resume_mode == "resume_path":
            found = self.checkpoints.resolve("resume_path", Path(path) if path else None)
        else:
            found = self.checkpoints.latest_valid()
        if found is not None:
            state = self.checkpoints.load_state(found)
            self.step = int(state["step"])
            self.sampler.load_state_dict(state["sampler"])
            self.kl_controller.load_state_dict(state["kl_controller"])
            self.drift.load_state_dict(state["drift"])
            self.invalid_guard.load_state_dict(state["invalid_window"])
            self.workers.load(found)
            self.workers.push_weights(version=self.step)
            self.trackers.message(f"resumed from step {self.step}")
        self.log.truncate_after(self.step if found else -1)

    # --- helpers -----------------------------------------------------------------------------

    @contextlib.contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self._seconds[name] = time.perf_counter() - start

    def _take(self, role: str, figures: dict[str, float]) -> None:
        """Enter a worker's figures under its role, incidents under theirs."""
        oom = figures.pop("oom")
        lost = 0.0 if math.isfinite(figures["grad_norm"]) else 1.0
        for name, value in (("oom", oom), ("nonfinite", lost)):
            key = f"incidents/{name}"
            self._metrics[key] = self._metrics.get(key, 0.0) + value
        self._metrics |= {f"{role}/{name}": value for name, value in figures.items()}

    def _record(self, step: int, metrics: dict[str, float]) -> None:
        odd = self.log.append(step, metrics)
        if odd:
            logger.warning("step %d: not finite, recorded as null: %s", step, ", ".join(odd))
        self.trackers.log(step, metrics)

    def _headline(self) -> float | None:
        """The metric by which the best checkpoint is kept."""
        names = [n for n in sorted(self._metrics) if n.startswith("val-core/")]
        chosen = [n for n in names if n.endswith("/acc/mean@1") and "sanity" not in n]
        return self._metrics[chosen[0]] if chosen else None

    def _gpus(self) -> list[float]:
        models = self.config.actor_rollout_ref
        fsdp = models.actor.fsdp_config
        return [fsdp.world_size * fsdp.num_gpus_per_worker, models.rollout.num_gpus]

    def _dump(self, prompts: PromptBatch, rollout: Rollout, scores: Scores) -> None:
        """All responses of the step with their judgements, one JSON object a line."""
        judged: Sequence[JudgeResult | None] = scores.quality or [None] * len(rollout.texts)
        with atomic_path(self.run_dir / "rollouts" / f"{self.step}.jsonl") as temporary:
            lines = [
                {
                    "step": self.step,
                    "uid": prompts.uids[i],
                    "sample": prompts.sample_index[i],
                    "question": prompts.rows[i].question,
                    "response": rollout.texts[i],
                    "reward": float(scores.rule[i]),
                    "acc": float(scores.accuracy[i]),
                    "length": rollout.sequences.response_lengths[i],
                    "judge_score": verdict.score if verdict else None,
                    "judge_valid": verdict.valid if verdict else None,
                    "judge_path": verdict.path if verdict else None,
                    "judge_raw": verdict.raw if verdict else None,
                }
                for i, verdict in enumerate(judged)
            ]
            text = "\n".join(json.dumps(line, ensure_ascii=False) for line in lines)
            temporary.write_text(text + "\n", encoding="utf-8")
