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
from refblend.errors import WorkerError
from refblend.rollout.base import Generation, GenerationRequest
from refblend.scoring.judge import CallStats, failed_results
from refblend.scoring.result import JudgeResult
from refblend.workers.batching import plan_micro_batches, plan_updates
from refblend.workers.groups import Future, WorkerGroup, free_address, share
from refblend.workers.pools import ResourcePools
from refblend.workers.restarts import Replacement, RestartBudget, WorkerTimeoutError, reason_of
from refblend.workers.roles import ACTOR, JUDGE, ROLES, ROLLOUT, Role, roles_of
from refblend.workers.types import PolicyTargets, Sequences, ValueTargets


@dataclass
class WorkerSet:
    """The running workers, one group for each role that the configuration needs."""

    config: RefblendConfig
    pools: ResourcePools
    budget: RestartBudget
    notify: Callable[[str], None]
    """Tells the user of a worker that is up, and of a replacement."""
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

        Raises:
            ResourceError: the cluster cannot hold them.
            WorkerDiedError: one died while starting.
        """
        begin = time.monotonic()
        # Only a run that has lost workers waits for nodes: at first, what does not fit is refused.
        wait_s = config.ray.wait_for_nodes_s if budget.spent else 0.0
        workers = cls(config, ResourcePools(config, wait_s), budget, notify)
        shared = share(workers.pools.prepared(config))
        try:
            # Engines start slowest, so they are launched first.
            for role in sorted(roles_of(config), key=lambda r: r.engine_model is None):
                workers.groups[role.name] = workers._launch(role, shared, total_steps)
            for group in workers.groups.values():
                group.ready(config.ray.start_timeout_s)
                notify(f"{group.role} is ready ({time.monotonic() - begin:.1f} s)")
        except BaseException:
            # Their resources would stay reserved, and the next attempt would wait for them.
            workers.shutdown()
            raise
        return workers

    def _launch(self, role: Role, shared: Any, total_steps: int) -> WorkerGroup:
        """Launch a role's processes without waiting; ``shared`` refers to the configuration."""
        config, asked = self.config, role.processes(self.config)

        def arguments() -> list[tuple[Any, ...]]:
            if role.engine_model is not None:
                return [(shared,)]
            address = free_address()
            return [(shared, total_steps, rank, address) for rank in range(asked.count)]

        own_deadline = role.deadline(config)
        replacement = None
        if not role.learns:
            replacement = Replacement(
                account=self.account,
                prepare=self._restore_weights if role is ROLLOUT else lambda: None,
                start_timeout_s=config.ray.start_timeout_s,
                repeats_late=own_deadline is None,
            )
        timeout_s = own_deadline or config.trainer.worker_timeout_s
        return WorkerGroup(role, self.pools, asked.threads, timeout_s, arguments, replacement)

    def begin_run(
        self, config: RefblendConfig, budget: RestartBudget, notify: Callable[[str], None]
    ) -> None:
        """Bring all workers to where fresh ones would be, for a run of another seed and directory.

        The processes keep the configuration that they were started with: nothing in them depends
        on the run's seed, because every request brings its own seed.
        """
        self.config, self.budget, self.notify = config, budget, notify
        _wait_all([g.call("begin_run") for name, g in self.groups.items() if ROLES[name].remembers])
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

    def call(self, role: Role, method: str, *arguments: Any) -> Any:
        """Call a method on all ranks of a role that runs, and wait; the answer of rank 0."""
        return self.groups[role.name].call(method, *arguments).result()

    def generate(self, requests: Sequence[GenerationRequest], version: int) -> list[Generation]:
        """Sample with the current weights.

        Raises:
            WorkerError: the engine sampled from other weights than ``version``.
        """
        generations: list[Generation] = self.call(ROLLOUT, "generate", list(requests))
        stale = {g.weight_version for g in generations} - {version}
        if stale:
            raise WorkerError(
                f"the rollout engine sampled with weight version {sorted(stale)}, not {version}",
                "This is a defect: report it with config.json and provenance.json.",
            )
        return generations

    def judge_responses(
        self, questions: Sequence[str], responses: Sequence[str], seeds: Sequence[int]
    ) -> Future | None:
        """Launch the judge on all responses, see :meth:`judge_results`; None when no judge runs."""
        judge = self.groups.get(JUDGE.name)
        arguments = (list(questions), list(responses), list(seeds))
        return judge.call("generate_quality_score", *arguments) if judge else None

    def judge_results(self, pending: Future, count: int) -> tuple[list[JudgeResult], CallStats]:
        """Wait for the judge: one result per response, and the call's metrics.

        Past a deadline of its own (``scoring.timeout_s``) the judge was replaced and the samples
        are failures, not zeros; without one the new judge was asked again.

        Raises:
            WorkerError: the judge had to be replaced too often.
        """
        settings = self.config.algorithm.ref_quality_score
        try:
            return pending.result(), self.call(JUDGE, "last_call")
        except WorkerTimeoutError as error:
            return failed_results(count, str(error), settings.invalid_score), CallStats()

    def forward(self, role: Role, method: str, sequences: Sequences) -> Future | None:
        """Launch a pass over all sequences: one shard per rank; None when no such role runs."""
        group = self.groups.get(role.name)
        if group is None:
            return None
        prompts, rows = self._shared_prompts(sequences), range(len(sequences))
        budget = getattr(role.settings(self.config), role.budget)
        plans = plan_micro_batches(sequences.lengths, rows, group.size, budget, prompts=prompts)
        shared = share(sequences)
        return group.call_each(method, [(shared, plan) for plan in plans])

    def _shared_prompts(self, sequences: Sequences) -> list[list[int]] | None:
        """The prompts, if the responses of one share its tokens."""
        shared = self.config.actor_rollout_ref.model.use_shared_prefix
        return sequences.prompt_ids if shared else None

    def update(
        self,
        role: Role,
        sequences: Sequences,
        targets: PolicyTargets | ValueTargets,
        step: int,
    ) -> dict[str, float]:
        """Update the policy or the value model on the whole batch; the update's metrics."""
        group, n = self.groups[role.name], self.config.actor_rollout_ref.rollout.n
        prompts = self._shared_prompts(sequences)
        plans = plan_updates(role.settings(self.config), sequences, n, group.size, prompts)
        data, answers = share(sequences), share(targets)
        return group.call_each("update", [(data, answers, plan, step) for plan in plans]).result()

    def push_weights(self, version: int) -> None:
        """Give the actor's weights to the rollout engine."""
        self.version = version
        # Every rank takes part in gathering; rank 0's answer stays in shared memory.
        references = self.groups[ACTOR.name].call("full_weights").references
        self.call(ROLLOUT, "load_weights", references[0], version)

    def _restore_weights(self) -> None:
        """Bring a fresh rollout engine to where the lost one was."""
        if self.version:
            self.push_weights(self.version)

    def save(self, directory: Path) -> None:
        """Write what the roles that learn have learned to ``directory/<role>``, all at once."""
        _wait_all([g.call("save", str(directory.absolute() / g.role)) for g in self._learning()])

    def load(self, directory: Path) -> None:
        """Continue from what :meth:`save` wrote."""
        _wait_all([g.call("load", str(directory.absolute() / g.role)) for g in self._learning()])

    def _learning(self) -> list[WorkerGroup]:
        """The groups that hold what was learned."""
        return [group for name, group in self.groups.items() if ROLES[name].learns]


def _wait_all(calls: Sequence[Future]) -> None:
    for call in calls:
        call.results()
