"""All worker groups of a run, and the calls that the stages make on them.

The processes may serve one run after another (:meth:`WorkerSet.begin_run`): starting them costs as
much as several training steps.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from refblend.config import RefblendConfig
from refblend.config.actor_rollout_ref import TrainWorkerConfig
from refblend.errors import WorkerError
from refblend.rollout.base import Generation, GenerationRequest
from refblend.scoring.judge import CallStats, failed_results
from refblend.scoring.result import JudgeResult
from refblend.workers import batching
from refblend.workers.groups import Future, WorkerGroup, free_address, share
from refblend.workers.pools import ResourcePools, memory_needs, plan_pools
from refblend.workers.restarts import Replacement, RestartBudget, WorkerTimeoutError, reason_of
from refblend.workers.roles import (
    ACTOR,
    CRITIC,
    JUDGE,
    REFERENCE,
    ROLES,
    ROLLOUT,
    EngineRole,
    Role,
    TrainingRole,
    roles_of,
)
from refblend.workers.types import MiniBatch, PolicyTargets, Sequences, ValueTargets


@dataclass
class WorkerSet:
    """The running workers, one group for each role that the configuration needs."""

    config: RefblendConfig
    pools: ResourcePools
    budget: RestartBudget
    notify: Callable[[str], None]
    groups: dict[str, WorkerGroup] = field(default_factory=dict)
    """By role, in the order in which they were launched."""
    version: int = 0
    """The step whose weights the rollout engine holds; 0: those it started with."""

    @classmethod
    def start(
        cls,
        config: RefblendConfig,
        total_steps: int,
        budget: RestartBudget,
        notify: Callable[[str], None],
    ) -> "WorkerSet":
        """Start all processes at once and wait until each is ready.

        Args:
            config: the resolved configuration.
            total_steps: last training step, for the learning rate.
            budget: how often workers may be replaced.
            notify: tells the user of a worker that is up, and of a replacement.

        Raises:
            ResourceError: the cluster cannot hold them.
            WorkerDiedError: one died while starting.
        """
        begin, deadline = time.monotonic(), config.ray.start_timeout_s
        pools = ResourcePools(plan_pools(config), memory_needs(config), deadline)
        workers = cls(config, pools, budget, notify)
        shared = share(config)
        try:
            # Engines start slowest, so they are launched first.
            for role in sorted(roles_of(config), key=lambda r: not isinstance(r, EngineRole)):
                workers.groups[role.name] = workers._launch(role, shared, total_steps)
            for group in workers.groups.values():
                group.ready(deadline)
                notify(f"{group.role} is ready ({time.monotonic() - begin:.1f} s)")
        except BaseException:
            # Their resources would stay reserved, and the next attempt would wait for them.
            workers.shutdown()
            raise
        return workers

    def _launch(self, role: Role, shared: Any, total_steps: int) -> WorkerGroup:
        """Launch the processes of a role without waiting for them.

        Args:
            role: what they are.
            shared: reference to the configuration.
            total_steps: last training step.
        """
        config = self.config

        def arguments() -> list[tuple[Any, ...]]:
            if isinstance(role, EngineRole):
                return [(shared,)]
            address = free_address()
            return [(shared, total_steps, rank, address) for rank in range(role.processes(config))]

        own_deadline = role.deadline(config)
        replacement = None
        if role.replaceable:
            replacement = Replacement(
                account=self.account,
                prepare=self._restore_weights if role is ROLLOUT else lambda: None,
                start_timeout_s=config.ray.start_timeout_s,
                repeats_late=own_deadline is None,
            )
        return WorkerGroup(
            role,
            self.pools,
            role.threads(config),
            own_deadline or config.trainer.worker_timeout_s,
            arguments,
            replacement,
        )

    @property
    def actor(self) -> WorkerGroup:
        """The policy that is trained."""
        return self.groups[ACTOR.name]

    @property
    def rollout(self) -> WorkerGroup:
        """The engine that generates."""
        return self.groups[ROLLOUT.name]

    @property
    def critic(self) -> WorkerGroup | None:
        """The value model; None where the configuration needs none."""
        return self.groups.get(CRITIC.name)

    @property
    def reference(self) -> WorkerGroup | None:
        """The frozen starting policy; None where the configuration needs none."""
        return self.groups.get(REFERENCE.name)

    @property
    def judge(self) -> WorkerGroup | None:
        """The reference model that judges; None where the configuration needs none."""
        return self.groups.get(JUDGE.name)

    def begin_run(
        self, config: RefblendConfig, budget: RestartBudget, notify: Callable[[str], None]
    ) -> None:
        """Bring all workers to where fresh ones would be, for a run with another seed.

        The processes keep the configuration that they were started with: nothing in them depends
        on the run's seed, because every request brings its own seed.

        Args:
            config: differs from the one before in the seed and the run directory only.
            budget: how often workers may be replaced.
            notify: tells the user of a replacement.
        """
        self.config, self.budget, self.notify = config, budget, notify
        remembering = [group for name, group in self.groups.items() if ROLES[name].remembers]
        _wait_all([group.call("begin_run") for group in remembering])
        self.push_weights(version=0)

    def account(self, error: Exception) -> None:
        """A worker died or missed its deadline and is about to be replaced.

        Raises:
            WorkerError: too many were.
        """
        self.budget.spend(error)
        self.notify(f"{reason_of(error)}; it is replaced ({self.budget.spent})")

    def shutdown(self) -> None:
        """End every process and give the resources back."""
        for group in self.groups.values():
            group.kill()
        self.pools.remove()

    def generate(self, requests: Sequence[GenerationRequest], version: int) -> list[Generation]:
        """Sample with the current weights.

        Raises:
            WorkerError: the engine sampled from other weights than ``version``.
        """
        generations: list[Generation] = self.rollout.call("generate", list(requests)).result()
        stale = {g.weight_version for g in generations} - {version}
        if stale:
            raise WorkerError(
                f"the rollout engine sampled with weight version {sorted(stale)}, not {version}",
                "This is a defect: report it with config.json and provenance.json.",
            )
        return generations

    def judge_responses(
        self, questions: Sequence[str], responses: Sequence[str], seeds: Sequence[int]
    ) -> Future:
        """Launch the judge on all responses; see :meth:`judge_results`."""
        assert self.judge is not None, "launched only when configured"
        arguments = (list(questions), list(responses), list(seeds))
        return self.judge.call("generate_quality_score", *arguments)

    def judge_results(self, pending: Future, count: int) -> tuple[list[JudgeResult], CallStats]:
        """Wait for the judge: one result per response, and the call's metrics.

        Past a deadline of its own (``scoring.timeout_s``) the judge was replaced and the samples
        are failures, not zeros; without one the new judge was asked again.

        Raises:
            WorkerError: the judge had to be replaced too often.
        """
        assert self.judge is not None, "launched only when configured"
        settings = self.config.algorithm.ref_quality_score
        try:
            return pending.result(), self.judge.call("last_call").result()
        except WorkerTimeoutError as error:
            return failed_results(count, str(error), settings.invalid_score), CallStats()

    def forward(self, group: WorkerGroup, method: str, sequences: Sequences) -> Future:
        """Launch a forward pass over all sequences; resolves to one shard per rank."""
        role = ROLES[group.role]
        assert isinstance(role, TrainingRole), "engines make no forward passes for the trainer"
        plans = batching.plan_micro_batches(
            sequences.lengths,
            range(len(sequences)),
            group.size,
            role.token_budget(self.config),
            prompts=self._shared_prompts(sequences),
        )
        shared = share(sequences)
        return group.call_each(method, [(shared, plan) for plan in plans])

    def _shared_prompts(self, sequences: Sequences) -> list[list[int]] | None:
        """The prompts, if the responses of one share its tokens."""
        shared = self.config.actor_rollout_ref.model.use_shared_prefix
        return sequences.prompt_ids if shared else None

    def update_actor(
        self, sequences: Sequences, targets: PolicyTargets, step: int
    ) -> dict[str, float]:
        """Update the policy on the whole batch."""
        config = self.config.actor_rollout_ref.actor
        return self._update(self.actor, config, sequences, targets, step)

    def update_critic(
        self, sequences: Sequences, targets: ValueTargets, step: int
    ) -> dict[str, float]:
        """Update the value model on the whole batch."""
        assert self.critic is not None, "called only with a critic"
        return self._update(self.critic, self.config.critic, sequences, targets, step)

    def _update(
        self,
        group: WorkerGroup,
        config: TrainWorkerConfig,
        sequences: Sequences,
        targets: PolicyTargets | ValueTargets,
        step: int,
    ) -> dict[str, float]:
        plans = self._plan_updates(config, sequences, group.size)
        data, answers = share(sequences), share(targets)
        pending = group.call_each("update", [(data, answers, plan, step) for plan in plans])
        metrics: dict[str, float] = pending.result()
        return metrics

    def _plan_updates(
        self, config: TrainWorkerConfig, sequences: Sequences, ranks: int
    ) -> list[list[MiniBatch]]:
        """For each rank its mini-batches, ``ppo_epochs`` times over."""
        n = self.config.actor_rollout_ref.rollout.n
        mini_rows = config.ppo_mini_batch_size and config.ppo_mini_batch_size * n
        lengths, answered = sequences.lengths, sequences.response_lengths
        prompts = self._shared_prompts(sequences)
        max_rows = None if config.use_dynamic_bsz else config.ppo_micro_batch_size_per_gpu
        budget = config.ppo_max_token_len_per_gpu if config.use_dynamic_bsz else 2**62
        plans: list[list[MiniBatch]] = [[] for _ in range(ranks)]
        for rows in batching.split_mini_batches(len(sequences), mini_rows) * config.ppo_epochs:
            shares = batching.plan_micro_batches(lengths, rows, ranks, budget, max_rows, prompts)
            tokens = float(sum(answered[r] for r in rows))
            count = sum(answered[r] > 0 for r in rows)
            for plan, part in zip(plans, shares, strict=True):
                plan.append(MiniBatch(part, tokens, count))
        return plans

    def push_weights(self, version: int) -> None:
        """Give the actor's weights to the rollout engine."""
        self.version = version
        # Every rank takes part in gathering; rank 0's answer stays in shared memory.
        references = self.actor.call("full_weights").references
        self.rollout.call("load_weights", references[0], version).result()

    def _restore_weights(self) -> None:
        """Bring a fresh rollout engine to where the lost one was."""
        if self.version:
            self.push_weights(self.version)

    def save(self, directory: Path) -> None:
        """Write what the roles that learn have learned to ``directory/<role>``, all at once."""
        _wait_all([g.call("save", str(directory / g.role)) for g in self._learning()])

    def load(self, directory: Path) -> None:
        """Continue from what :meth:`save` wrote."""
        _wait_all([g.call("load", str(directory / g.role)) for g in self._learning()])

    def _learning(self) -> list[WorkerGroup]:
        """The groups that hold what was learned."""
        return [group for name, group in self.groups.items() if not ROLES[name].replaceable]


def _wait_all(calls: Sequence[Future]) -> None:
    for call in calls:
        call.results()
