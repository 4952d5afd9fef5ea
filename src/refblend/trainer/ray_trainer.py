"""The single-controller PPO trainer with entropy-aware blending of a reference quality score.

:meth:`RayPPOTrainer.train_step` is section 2.1 of docs/spec.md, one line a stage. Departures from
verl:

* Q is blended into the token-level rewards before the KL penalty: R'' = (1 − w)R + wQ − βKL.
* The judge, the rule reward, old and reference log-probs and values are launched together.
* Every sample has a seed of its own, so batches can be cut differently without changing it.
* A step leaves no hidden state: a run is its checkpoint, its configuration and its seed.
"""

from pathlib import Path
from typing import Any

from torch import Tensor

from refblend.config import RefblendConfig
from refblend.lifecycle.stopping import GraceOverError, StopRequest
from refblend.lookup import call_advantage, get_advantage
from refblend.ppo.blending import (  # noqa: F401 - the maths of the blend, handed on
    blend_rewards,
    compute_avg_response_entropy,
    expand_quality,
)
from refblend.ppo.correction import importance_weights
from refblend.ppo.entropy_maps import (  # noqa: F401 - the other half of the blend
    entropy_to_weight_cosine,
    entropy_to_weight_exp,
    entropy_to_weight_linear,
    entropy_to_weight_piecewise,
)
from refblend.ppo.estimators import AdvantageInputs
from refblend.seeding import derive_generator
from refblend.trainer import saving, shaping, step_metrics
from refblend.trainer.batch import Advantages, Experience, PromptBatch, Rollout
from refblend.trainer.checkpoint import CheckpointRef
from refblend.trainer.console import validation_accuracy
from refblend.trainer.datasets import RunData
from refblend.trainer.experience import ExperienceCollector, as_rollout, rollout_requests
from refblend.trainer.guards import count_lost_update, require_finite
from refblend.trainer.replay import replayed_weights_of
from refblend.trainer.validation import validation_metrics, validation_requests
from refblend.workers.roles import ACTOR, CRITIC
from refblend.workers.types import PolicyTargets, ValueTargets
from refblend.workers.worker_set import WorkerSet


class RayPPOTrainer:
    """Trains one run on workers that are up, up to ``total_steps`` or until ``stop`` asks."""

    def __init__(
        self,
        config: RefblendConfig,
        data: RunData,
        workers: WorkerSet,
        outputs: saving.RunOutputs,
        total_steps: int,
        stop: StopRequest,
    ) -> None:
        self.config = config
        self.data = data
        self.workers = workers
        self.outputs = outputs
        self.total_steps = total_steps
        self.stop = stop
        self.run_dir = Path(config.trainer.default_local_dir)
        self.seed = config.trainer.seed
        self.state = saving.RunState.initial(config, len(data.train))
        self.collector = ExperienceCollector(config, data, workers, self.state.invalid_window)
        self.estimator = get_advantage(config.algorithm.adv_estimator)
        self.replayed = replayed_weights_of(config, total_steps)
        self.record = step_metrics.StepRecord()
        self._updating = False
        self._started_at = 0

    @property
    def step(self) -> int:
        """The last finished step; its weights are those that the rollout engine holds."""
        return self.state.step

    def fit(self, start: CheckpointRef | None = None) -> None:
        """Train from a checkpoint, or from the beginning, to the last step."""
        saving.restore(self.outputs, self.workers, self.state, start)
        self._started_at = self.step
        if self.step == 0 and self.config.trainer.val_before_train:
            self.outputs.write(0, self.validate())
        while self.step < self.total_steps:
            before = saving.snapshot(self.state, self.record.metrics)
            with self.stop.protected():
                try:
                    self.train_step()
                except GraceOverError:
                    self._save_abandoned(before)
                    raise

    def train_step(self) -> None:
        """One step: section 2.1 of docs/spec.md."""
        self.record, self._updating = step_metrics.StepRecord(), False
        with self.record.timed("step"):
            prompts = self.next_prompts()
            rollout = self.generate(prompts)
            experience = self.score(prompts, rollout)
            blended = self.blend(prompts, rollout, experience)
            rewards = self.penalise_kl(blended.rewards, rollout, experience)
            rewards = self.add_alignment_bonus(rewards, rollout, experience)
            advantages = self.estimate_advantages(rewards, blended, prompts, rollout, experience)
            self.update_critic(rollout, experience, advantages)
            self.update_actor(rollout, experience, advantages)
            self.push_weights()
        self.state.step += 1
        self.finish_step(prompts, rollout, experience, blended, advantages)

    # --- the stages of a step, in their order ------------------------------------------------

    def next_prompts(self) -> PromptBatch:
        """The next prompts, each replicated ``rollout.n`` times."""
        n = self.config.actor_rollout_ref.rollout.n
        uids = [uid for uid in self.state.sampler.next_batch() for _ in range(n)]
        return PromptBatch(
            rows=[self.data.train.rows[uid] for uid in uids],
            prompt_ids=[self.data.train.prompt_ids[uid] for uid in uids],
            uids=uids,
            sample_index=[i % n for i in range(len(uids))],
        )

    def generate(self, prompts: PromptBatch) -> Rollout:
        """Sample one response per row, and greedy baselines when the estimator wants them."""
        step, greedy = self.step + 1, self.estimator.needs_reward_baselines
        requests = rollout_requests(self.config, prompts, step, greedy)
        with self.record.timed("gen"):
            answers = self.workers.generate(requests, version=self.step)
        return as_rollout(prompts, answers, self.data.decode, step)

    def score(self, prompts: PromptBatch, rollout: Rollout) -> Experience:
        """Rule reward, judge, old and reference log-probs, values: all at once."""
        experience = self.collector.collect(prompts, rollout, self.step + 1, self.record)
        require_finite(self.step + 1, experience.numbers(), rollout.response_mask)
        return experience

    def blend(
        self, prompts: PromptBatch, rollout: Rollout, experience: Experience
    ) -> shaping.Blended:
        """avg_entropy → w → R' = (1 − w)R + wQ."""
        control = derive_generator(self.seed, "judge control", self.step + 1)
        initial, step = self.state.initial_entropy, self.step + 1
        context = shaping.BlendContext(step, self.total_steps, prompts.uids, initial, self.replayed)
        config = self.config.algorithm.ref_quality_score
        blended = shaping.blend(config, rollout, experience, context, control)
        if initial is None:
            self.state.initial_entropy = blended.metrics["actor/ref_quality/avg_entropy"]
        self.record.metrics |= blended.metrics
        return blended

    def penalise_kl(self, rewards: Tensor, rollout: Rollout, experience: Experience) -> Tensor:
        """R'' = R' − βKL."""
        controller = self.state.kl_controller
        rewards, metrics = shaping.penalise_kl(
            self.config, rewards, rollout, experience, controller
        )
        self.record.metrics |= metrics
        return rewards

    def add_alignment_bonus(
        self, rewards: Tensor, rollout: Rollout, experience: Experience
    ) -> Tensor:
        """The optional entropy-triggered bonus, spread over the response tokens."""
        config = self.config.algorithm.repr_align
        rewards, metrics = shaping.add_alignment_bonus(
            config, rewards, rollout, experience, self.step + 1
        )
        self.record.metrics |= metrics
        return rewards

    def estimate_advantages(
        self,
        rewards: Tensor,
        blended: shaping.Blended,
        prompts: PromptBatch,
        rollout: Rollout,
        experience: Experience,
    ) -> Advantages:
        """Advantages and returns by the configured estimator."""
        algorithm = self.config.algorithm
        n = self.config.actor_rollout_ref.rollout.n
        baselines, factors = blended.baselines, blended.advantage_factors
        with self.record.timed("adv"):
            advantages, returns = call_advantage(
                self.estimator,
                AdvantageInputs(
                    token_level_rewards=rewards,
                    response_mask=rollout.response_mask,
                    index=prompts.uids,
                    values=experience.values,
                    reward_baselines=None if baselines is None else baselines.repeat_interleave(n),
                    gamma=algorithm.gamma,
                    lam=algorithm.lam,
                    norm_adv_by_std_in_grpo=algorithm.norm_adv_by_std_in_grpo,
                ),
            )
            if factors is not None:
                advantages = advantages * factors.unsqueeze(-1)
        found = {"the rewards": rewards, "the advantages": advantages, "the returns": returns}
        require_finite(self.step + 1, found, rollout.response_mask)
        self.record.metrics |= shaping.reward_length_correlation(rewards, rollout.response_mask)
        return Advantages(rewards, advantages, returns)

    def update_critic(
        self, rollout: Rollout, experience: Experience, advantages: Advantages
    ) -> None:
        """One round of value updates, when there is a critic."""
        if experience.values is None:
            return
        self._updating = True
        targets = ValueTargets(rollout.response_mask, experience.values, advantages.returns)
        with self.record.timed("update_critic"):
            metrics = self.workers.update(CRITIC, rollout.sequences, targets, self.step + 1)
        self._add_update("critic", metrics)

    def update_actor(
        self, rollout: Rollout, experience: Experience, advantages: Advantages
    ) -> None:
        """One round of policy updates, once the critic is warmed up."""
        own_step = self.step + 1 - self.config.trainer.critic_warmup
        if own_step < 1:
            return
        self._updating = True
        correction = self.config.algorithm.rollout_correction
        old = experience.old_log_probs
        mask = rollout.response_mask
        targets = PolicyTargets(
            response_mask=mask,
            old_log_probs=old,
            advantages=advantages.advantages,
            ref_log_probs=experience.reference,
            importance_weights=importance_weights(
                rollout.log_probs, old, mask, correction.mode, correction.threshold
            ),
        )
        with self.record.timed("update_actor"):
            metrics = self.workers.update(ACTOR, rollout.sequences, targets, own_step)
        self._add_update("actor", metrics)

    def push_weights(self) -> None:
        """The engine samples the next step with the updated weights."""
        with self.record.timed("update_weights"):
            self.workers.push_weights(version=self.step + 1)

    # --- after the step ----------------------------------------------------------------------

    def finish_step(
        self,
        prompts: PromptBatch,
        rollout: Rollout,
        experience: Experience,
        blended: shaping.Blended,
        advantages: Advantages,
    ) -> None:
        """Validate, save and record, each by its schedule."""
        trainer, record = self.config.trainer, self.record
        record.metrics |= step_metrics.data_metrics(rollout, experience, advantages)
        record.metrics["training/global_step"] = float(self.step)
        record.metrics["training/epoch"] = float(self.state.sampler.epoch)
        last = self.step == self.total_steps
        if trainer.rollout_dump_freq and (last or _due(self.step, trainer.rollout_dump_freq)):
            path = self.run_dir / "rollouts" / f"{self.step}.jsonl"
            saving.write_rollouts(path, self.step, prompts, rollout, experience, blended)
        if last or _due(self.step, trainer.test_freq):
            with record.timed("testing"):
                record.metrics |= self.validate()  # may end the run and point to the rollouts
        record.metrics["incidents/oom"] += self.workers.budget.take_shortages()
        record.metrics["incidents/reward_error"] += self.collector.reward.take_errors()
        devices = step_metrics.training_devices(self.config)
        record.metrics |= step_metrics.timing_metrics(record.seconds, rollout, devices)
        record.metrics |= step_metrics.memory_metrics()
        due = last or _due(self.step, trainer.save_freq) or self.stop.pending
        due = due or self.outputs.checkpoints.lacks_best(validation_accuracy(record.metrics))
        if trainer.save_freq and due:
            with record.timed("save_checkpoint"):
                self._save(saving.snapshot(self.state, record.metrics))
            record.metrics["timing_s/save_checkpoint"] = record.seconds["save_checkpoint"]
        self.outputs.write(self.step, record.metrics)

    def validate(self) -> dict[str, float]:
        """Accuracy and reward on the validation and sanity sets; feeds the drift guard."""
        kwargs = self.config.actor_rollout_ref.rollout.val_kwargs
        sets = self.data.validation_sets
        requests = validation_requests(
            sets, kwargs, self.config.data.max_response_length, self.seed
        )
        answers = self.workers.generate(requests, version=self.step)
        metrics = validation_metrics(sets, kwargs, answers, self.data.decode, self.collector.reward)
        warning = self.state.drift.check(metrics)
        if warning:
            self.outputs.trackers.message(warning)
        return metrics | {"incidents/drift": float(warning is not None)}

    # --- helpers -----------------------------------------------------------------------------

    def _save(self, state: dict[str, Any]) -> None:
        saving.save(self.outputs, self.workers, self.data.tokenizer, self.config, state)

    def _save_abandoned(self, before: dict[str, Any]) -> None:
        """Save the step before one that was given up, while the weights are still its own."""
        step = before["step"]
        saved = step == self._started_at or step in self.outputs.checkpoints.steps()
        if self.config.trainer.save_freq and not self._updating and not saved:
            self._save(before)

    def _add_update(self, role: str, metrics: dict[str, float]) -> None:
        """Record an update, and tell of what went wrong in it."""
        self.record.add_update(role, metrics)
        for notice in step_metrics.update_notices(role, metrics):
            self.outputs.trackers.message(f"step {self.step + 1}: {notice}")
        count_lost_update(self.state.lost_updates, role, step_metrics.all_lost(metrics))


def _due(step: int, frequency: int) -> bool:
    """Whether something that is done every so many steps is due; never when not positive."""
    return frequency > 0 and step % frequency == 0
