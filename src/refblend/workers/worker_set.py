"""All worker groups of a run, and the calls that the stages make on them.

The processes may serve one run after another (:meth:`WorkerSet.begin_run`): starting them costs as
much as several training steps.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from refblend.config import RefblendConfig
from refblend.config.actor_rollout_ref import TrainWorkerConfig
from refblend.errors import WorkerError
from refblend.rollout.base import Generation, GenerationRequest
from refblend.scoring.judge import CallStats, failed_results
from refblend.scoring.result import JudgeResult
from refblend.trainer.checkpoint import CheckpointRef
from refblend.workers import batching
from refblend.workers.groups import (
    Future,
    Replacement,
    RestartBudget,
    WorkerGroup,
    WorkerTimeoutError,
    free_address,
    reason_of,
    share,
)
from refblend.workers.memory import memory_needs
from refblend.workers.pools import ResourcePools, plan_pools
from refblend.workers.types import MiniBatch, PolicyTargets, Sequences, ValueTargets


@dataclass
class WorkerSet:
    """The running workers; optional ones are None when the configuration needs none."""

    config: RefblendConfig
    pools: ResourcePools
    actor: WorkerGroup
    rollout: WorkerGroup
    critic: WorkerGroup | None
    reference: WorkerGroup | None
    judge: WorkerGroup | None
    budget: RestartBudget
    notify: Callable[[str], None]

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
            notify: tells the user of a replacement.

        Raises:
            ResourceError: the cluster cannot hold them.
            WorkerDiedError: one died while starting.
        """
        deadline, timeout = config.ray.start_timeout_s, config.trainer.worker_timeout_s
        pools = ResourcePools(plan_pools(config), memory_needs(config), deadline)
        shared = share(config)

        def ranks(role: str) -> Callable[[], list[tuple[Any, ...]]]:
            def arguments() -> list[tuple[Any, ...]]:
                address = free_address()
                return [(shared, total_steps, i, address) for i in range(len(pools.places(role)))]

            return arguments

        def group(
            role: str,
            name: str,
            threads: int,
            arguments: Callable[[], list[tuple[Any, ...]]],
            replacement: Replacement | None = None,
            timeout_s: float = timeout,
        ) -> WorkerGroup:
            worker = f"refblend.workers.{name}"
            return WorkerGroup(role, worker, pools, threads, timeout_s, arguments, replacement)

        def restore_weights() -> None:
            if workers.version:
                workers.push_weights(workers.version)

        models, critic = config.actor_rollout_ref, config.critic
        scoring = config.algorithm.ref_quality_score.scoring
        # An engine or a frozen model can be made again; the others hold what was learned.
        anew = Replacement(lambda error: workers.account(error), lambda: None, deadline)
        with_weights = replace(anew, prepare=restore_weights)
        # Engines start slowest, so they are launched first.
        rollout_group = group(
            "rollout",
            "engine_workers:RolloutWorker",
            models.rollout.num_threads,
            lambda: [(shared,)],
            with_weights,
        )
        judge_group = critic_group = reference_group = None
        if config.use_judge:
            judge_group = group(
                "judge",
                "engine_workers:JudgeWorker",
                scoring.num_threads,
                lambda: [(shared,)],
                replace(anew, repeats_late=scoring.timeout_s is None),
                scoring.timeout_s or timeout,
            )
        threads = models.actor.fsdp_config.num_threads
        actor_group = group("actor", "fsdp_workers:ActorWorker", threads, ranks("actor"))
        if config.use_critic:
            threads = critic.fsdp_config.num_threads
            critic_group = group("critic", "fsdp_workers:CriticWorker", threads, ranks("critic"))
        if config.use_reference:
            threads = models.ref.fsdp_config.num_threads
            reference_group = group(
                "ref", "fsdp_workers:ReferenceWorker", threads, ranks("ref"), anew
            )
        workers = cls(
            config,
            pools,
            actor_group,
            rollout_group,
            critic_group,
            reference_group,
            judge_group,
            budget,
            notify,
        )
        try:
            for started in workers.groups():
                started.ready(deadline)
        except BaseException:
            # Their resources would stay reserved, and the next attempt would wait for them.
            workers.shutdown()
            raise
        return workers

    def begin_run(
        self, config: RefblendConfig, budget: RestartBudget, notify: Callable[[str], None]
    ) -> None:
        """Bring all workers to where fresh ones would be, for a run with another seed.

        The processes keep the configuration that they were started with: nothing in them depends
        on the run's seed, because every request brings a seed of its own.

        Args:
            config: differs from the one before in the seed and the run directory only.
            budget: how often workers may be replaced.
            notify: tells the user of a replacement.
        """
        self.config, self.budget, self.notify = config, budget, notify
        groups = (self.actor, self.critic, self.judge)
        for pending in [group.call("begin_run") for group in groups if group is not None]:
            pending.results()
        self.push_weights(version=0)

    def account(self, error: Exception) -> None:
        """A worker died or missed its deadline and is about to be replaced.

        Raises:
            WorkerError: too many were.
        """
        self.budget.spend(error)
        self.notify(f"{reason_of(error)}; it is replaced ({self.budget.spent})")

    def groups(self) -> list[WorkerGroup]:
        """The groups that run."""
        groups = (self.rollout, self.judge, self.actor, self.critic, self.reference)
        return [g for g in groups if g is not None]

    def shutdown(self) -> None:
        """End every process and give the resources back."""
        for group in self.groups():
            group.kill()
        self.pools.remove()

    def generate(self, requests: Sequence[GenerationRequest], version: int) -> list[Generation]:
        """Sample with the present weights.

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
        """Wait for the judge: one result a response, and the call's metrics.

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
        """Launch a forward pass over all sequences; resolves to one shard a rank."""
        budgets = {
            "actor": self.config.actor_rollout_ref.actor.ppo_max_token_len_per_gpu,
            "critic": self.config.critic.ppo_max_token_len_per_gpu,
            "ref": self.config.actor_rollout_ref.ref.max_token_len_per_gpu,
        }
        plans = batching.plan_micro_batches(
            sequences.lengths,
            range(len(sequences)),
            group.size,
            budgets[group.role],
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

    def save(self, directory: Path) -> None:
        """Write actor and critic below ``directory``, both at once."""
        saving = [
            group.call("save", str(directory / group.role))
            for group in (self.actor, self.critic)
            if group is not None
        ]
        for pending in saving:
            pending.results()

    def load(self, checkpoint: CheckpointRef) -> None:
        """Continue from a checkpoint."""
        loading = [self.actor.call("load", str(checkpoint.actor))]
        if self.critic is not None:
            loading.append(self.critic.call("load", str(checkpoint.critic)))
        for pending in loading:
            pending.results()
