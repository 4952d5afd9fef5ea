"""All worker groups of a run, and the calls that the stages make on them."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from refblend.config import RefblendConfig
from refblend.errors import CheckpointError, WorkerError
from refblend.rollout.base import Generation, GenerationRequest, Work, work_of
from refblend.scoring.judge import CallStats
from refblend.scoring.result import JudgeResult
from refblend.workers.batching import plan_micro_batches, plan_updates
from refblend.workers.groups import Future, SplitCall, WorkerGroup, share, split
from refblend.workers.placement import apart, processes_of
from refblend.workers.pools import ResourcePools
from refblend.workers.restarts import Fail, RestartBudget, WorkerTimeoutError
from refblend.workers.roles import ACTOR, JUDGE, REFERENCE, ROLES, ROLLOUT, Role, roles_of
from refblend.workers.types import PolicyTargets, Sequences, ValueTargets

CHARS_PER_TOKEN = 4
"""About as many characters as a judge's token has: the driver has no tokenizer of the judge."""


@dataclass
class WorkerSet:
    """The running workers: ranks and engines of each role that the configuration needs."""

    config: RefblendConfig
    pools: ResourcePools
    budget: RestartBudget
    notify: Callable[[str], None]
    """Tells the user of a worker that is up, and of a replacement."""
    groups: dict[str, list[WorkerGroup]] = field(default_factory=dict)
    """By role, in the order of launch: one group of all ranks, or for each engine one of its own.
    """
    version: int = 0
    """The step whose weights the rollout engines hold; 0: those they started with."""
    asleep: set[str] = field(default_factory=set)
    """Roles whose engines have given their GPU memory back."""

    @classmethod
    def start(
        cls,
        config: RefblendConfig,
        total_steps: int,
        budget: RestartBudget,
        notify: Callable[[str], None],
    ) -> "WorkerSet":
        """Start all processes and wait for each; ResourceError or WorkerDiedError if one fails."""
        begin = time.monotonic()
        # Only a run that has lost workers waits for nodes: at first, what does not fit is refused.
        wait_s = config.ray.wait_for_nodes_s if budget.spent else 0.0
        workers = cls(config, ResourcePools(config, wait_s), budget, notify)
        try:
            # Engines start slowest, so they are launched first; last of them those that the others
            # would have to wait for.
            for role in sorted(
                roles_of(config), key=lambda r: (r.engine_model is None, r.shares_gpu(config))
            ):
                workers._launch(role, total_steps)
            for role_name, groups in workers.groups.items():
                for group in groups:
                    group.ready()
                notify(f"{role_name} is ready ({time.monotonic() - begin:.1f} s)")
        except BaseException:
            # Their resources would stay reserved, and the next attempt would wait for them.
            workers.shutdown()
            raise
        return workers

    def _launch(self, role: Role, total_steps: int) -> None:
        """Launch a role's processes; wait only for engines that share a GPU."""
        config, count = self.config, role.processes(self.config).count
        groups = self.groups[role.name] = []
        if role.engine_model is None:
            places = partial(self.pools.places, role.name)
            account = None if role.learns else self.account
            groups.append(WorkerGroup(role, config, places, [total_steps], account))
            return
        settled, together = 0, apart(processes_of(config), role.name)
        for number in range(count):
            name = f"{role.name} engine {number + 1} of {count}: " if count > 1 else ""
            places = partial(self.pools.places, role.name, number)
            account = partial(self.account, name=name)
            groups.append(WorkerGroup(role, config, places, (), account, self._restore_engine))
            if role.shares_gpu(config) and (number + 1 == count or not together):
                self._settle(role, groups[settled:])
                settled = number + 1

    def _settle(self, role: Role, engines: Sequence[WorkerGroup]) -> None:
        """Wait until engines are up, and have given back the memory that others will need."""
        for engine in engines:
            engine.ready()
        if role.sleeps(self.config):
            _wait_all([engine.call("sleep") for engine in engines])
            self.asleep.add(role.name)

    def begin_run(
        self, config: RefblendConfig, budget: RestartBudget, notify: Callable[[str], None]
    ) -> None:
        """Bring all workers to where fresh ones would be, for a run of another seed."""
        self.config, self.budget, self.notify = config, budget, notify
        groups = self._where(lambda role: role.remembers)
        _wait_all([group.call("begin_run", config.trainer.seed) for group in groups])
        self.push_weights(version=0)

    def account(self, error: Fail, name: str = "") -> None:
        """Count and tell a replacement, of ``name`` among several; WorkerError if too many."""
        self.budget.spend(error)
        self.notify(f"{name}{error.reason}; it is replaced ({self.budget.spent})")

    def shutdown(self) -> None:
        """End every process and give the resources back."""
        for group in self._where(lambda role: True):
            group.kill()
        self.pools.remove()

    def generate(self, requests: Sequence[GenerationRequest], version: int) -> list[Generation]:
        """Sample with the current weights; WorkerError if an engine has others than ``version``."""
        if ROLLOUT.name in self.asleep:
            self.push_weights(self.version)
        call = split(self.groups[ROLLOUT.name], "generate", [requests], work_of(requests))
        generations: list[Generation] = call.results()
        stale = {g.weight_version for g in generations} - {version}
        if stale:
            raise WorkerError(
                f"the rollout engine sampled with weight version {sorted(stale)}, not {version}",
                "This is a defect: report it with config.json and provenance.json.",
            )
        return generations

    def judge_responses(
        self, questions: Sequence[str], responses: Sequence[str], seeds: Sequence[int]
    ) -> SplitCall | None:
        """Launch the judge on all responses, see :meth:`judge_results`; None when no judge runs."""
        engines = self.groups.get(ROLLOUT.name if self.config.shares_judge else JUDGE.name)
        if engines is None:
            return None
        self._rest(ROLLOUT)
        self._wake(JUDGE)
        answer = self.config.algorithm.ref_quality_score.scoring.max_new_tokens
        work = Work(
            questions,
            [len(question) / CHARS_PER_TOKEN for question in questions],
            [len(response) / CHARS_PER_TOKEN + answer for response in responses],
        )
        return split(engines, "generate_quality_score", [questions, responses, seeds], work)

    def judge_results(self, pending: SplitCall) -> tuple[list[JudgeResult], CallStats]:
        """Wait for the judge: one result per response and its metrics. Late ones are failures."""
        invalid_score = self.config.algorithm.ref_quality_score.invalid_score

        def failed(error: WorkerTimeoutError, count: int) -> list[JudgeResult]:
            return [JudgeResult(invalid_score, False, "error", str(error))] * count

        results = pending.results(instead=failed)
        calls = [part.engine.call("last_call") for part in pending.parts if part.answered]
        stats = CallStats.merged([call.result() for call in calls])
        self._rest(JUDGE)
        return results, stats

    def _rest(self, *roles: Role) -> None:
        """Engines that share a GPU give its memory back; who works next needs it."""
        for role in roles:
            there = role.name in self.groups and role.name not in self.asleep
            if there and role.sleeps(self.config):
                _wait_all([engine.call("sleep") for engine in self.groups[role.name]])
                self.asleep.add(role.name)

    def _wake(self, role: Role, tags: list[str] | None = None) -> None:
        """The engines take memory again, of ``weights`` first where these are pushed."""
        if role.name in self.asleep:
            _wait_all([engine.call("wake_up", tags) for engine in self.groups[role.name]])
        if tags != ["weights"]:
            self.asleep.discard(role.name)

    def forward(self, role: Role, method: str, sequences: Sequences) -> Future | None:
        """Launch a pass over all sequences: one shard per rank; None when no such role runs."""
        more: tuple[str, ...] = ()
        if role is REFERENCE and self.config.reference_in_actor:
            role, method, more = ACTOR, "as_reference", (method,)
        groups = self.groups.get(role.name)
        if groups is None:
            return None
        (group,) = groups
        self._rest(ROLLOUT, JUDGE)
        prompts, rows = self._shared_prompts(sequences), range(len(sequences))
        budget = getattr(role.settings(self.config), role.budget)
        plans = plan_micro_batches(sequences.lengths, rows, group.size, budget, prompts=prompts)
        shared = share(sequences)
        return group.call_each(method, [(shared, plan, *more) for plan in plans])

    def _shared_prompts(self, sequences: Sequences) -> list[list[int]] | None:
        """The prompts, if the responses of one share its tokens."""
        shared = self.config.actor_rollout_ref.model.use_shared_prefix
        return sequences.prompt_ids if shared else None

    def update(
        self, role: Role, sequences: Sequences, targets: PolicyTargets | ValueTargets, step: int
    ) -> dict[str, float]:
        """Update the policy or the value model on the whole batch; the update's metrics."""
        self._rest(ROLLOUT, JUDGE)
        (group,), n = self.groups[role.name], self.config.actor_rollout_ref.rollout.n
        prompts = self._shared_prompts(sequences)
        plans = plan_updates(role.settings(self.config), sequences, n, group.size, prompts)
        data, answers = share(sequences), share(targets)
        return group.call_each("update", [(data, answers, plan, step) for plan in plans]).result()

    def push_weights(self, version: int) -> None:
        """Give the actor's weights to every rollout engine."""
        self.version = version
        self._rest(JUDGE)
        # The cache comes last: the actor's copy of the weights is still on the device.
        self._wake(ROLLOUT, ["weights"])
        self._push(self.groups[ROLLOUT.name], version)
        self._wake(ROLLOUT, ["kv_cache"])

    def _push(self, engines: Sequence[WorkerGroup], version: int) -> None:
        """Give the actor's weights to these engines: the one place where weights are pushed."""
        (actor,) = self.groups[ACTOR.name]
        # Every rank takes part in gathering; rank 0 holds the weights, and tells where.
        packing = actor.call("pack_weights")
        packed = packing.references[0]
        away = [engine.nodes[0] != actor.nodes[0] for engine in engines]
        # Ray copies the bytes once to each node where an engine reads them.
        received = actor.call("packed_bytes").references[0] if any(away) else None
        calls = [
            engine.call("load_weights", packed, version, received if far else None)
            for engine, far in zip(engines, away, strict=True)
        ]
        # The actor first: Ray tells its death as a failure of the engine that waits for it, too.
        _wait_all([packing, *calls])

    def _restore_engine(self, engine: WorkerGroup) -> None:
        """Bring a fresh engine to where the lost one was; the others keep what they have."""
        if engine.role == ROLLOUT.name and self.version:
            self._push([engine], self.version)

    def save(self, directory: Path) -> None:
        """Write what was learned to ``directory/<role>``, or CheckpointError."""
        learning = self._where(lambda role: role.learns)
        folders = {group: directory.absolute() / group.role for group in learning}
        _wait_all([group.call("save", str(folder)) for group, folder in folders.items()])
        for folder in folders.values():
            if not folder.is_dir():
                raise CheckpointError(
                    f"{folder} was written on a node that does not share the run's directory",
                    "Set trainer.default_local_dir to a directory that all nodes share.",
                )

    def load(self, directory: Path) -> None:
        """Continue from what :meth:`save` wrote."""
        folder, learning = directory.absolute(), self._where(lambda role: role.learns)
        _wait_all([group.call("load", str(folder / group.role)) for group in learning])

    def _where(self, chosen: Callable[[Role], bool]) -> list[WorkerGroup]:
        """All groups of some roles."""
        return [g for name, groups in self.groups.items() if chosen(ROLES[name]) for g in groups]


def _wait_all(calls: Sequence[Future]) -> None:
    for call in calls:
        call.results()
