"""Ray at the edge: processes for the plain workers, dispatch to ranks and engines, waits with
deadlines."""

import importlib
import os
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.actor import ActorHandle
from ray.exceptions import (
    GetTimeoutError,
    NodeDiedError,
    ObjectLostError,
    RayActorError,
    RayTaskError,
)
from ray.util import get_node_ip_address

from refblend import runtime
from refblend.config import RefblendConfig
from refblend.errors import RefblendError, WorkerError, first_line
from refblend.lifecycle.devices import VISIBLE
from refblend.lifecycle.faults import is_out_of_memory
from refblend.lifecycle.stalls import stall_limit
from refblend.rollout.base import Work, split_rows
from refblend.workers.pools import Place
from refblend.workers.restarts import Fail, WorkerDiedError, WorkerMemoryError, WorkerTimeoutError
from refblend.workers.roles import Role, with_absolute_paths

DEATH_NOTICE_S = 30.0
"""Within this time after a failure Ray tells of a process that is gone."""
LOST = (ObjectLostError, NodeDiedError)
"""What Ray raises if the node of a call, or of one of its arguments, is gone."""


def _wait(
    role: str, references: Sequence[Any], timeout_s: float, remedy: str, left_s: float | None = None
) -> list[Any]:
    """The answers of all ranks, with Ray's errors turned into ours."""
    left_s = timeout_s if left_s is None else left_s
    try:
        with stall_limit(f"waiting for the {role} worker", left_s):
            answers: list[Any] = ray.get(list(references), timeout=left_s)
    except GetTimeoutError:
        raise WorkerTimeoutError(
            f"the {role} worker did not answer within {timeout_s:g} s", remedy
        ) from None
    except (RayActorError, *LOST) as error:
        raise WorkerDiedError(role, first_line(error)) from None
    except RayTaskError as error:
        if isinstance(error.cause, RefblendError):
            raise error.cause from None
        if isinstance(error.cause, LOST):
            raise WorkerDiedError(role, first_line(error.cause)) from None
        if is_out_of_memory(error.cause):
            raise WorkerMemoryError(role, first_line(error.cause)) from None
        death = _find_death(role, references)
        if death is not None:
            raise death from None
        raise
    return answers


def _find_death(role: str, references: Sequence[Any]) -> WorkerDiedError | None:
    """The death behind the failure of another rank, whose collective failed first."""
    deadline = time.monotonic() + DEATH_NOTICE_S
    for reference in references if len(references) > 1 else ():
        try:
            ray.get(reference, timeout=max(0.0, deadline - time.monotonic()))
        except (RayActorError, *LOST) as error:
            return WorkerDiedError(role, first_line(error))
        except (GetTimeoutError, RayTaskError):
            continue
    return None


class WorkerProcess:
    """What runs in a worker's process: the plain worker, imported only there by :meth:`start`.

    Thread limits must be in the environment before torch is imported, and Ray hands on only a text
    of what a constructor raises.
    """

    def listen(self, one_node: bool) -> tuple[str, int, int]:
        """Open the socket at which the ranks meet, in the first one's process: host, port, file.

        Left to itself torch listens on every interface; this is loopback or the node's address. It
        has no password: who can reach the address can join.
        """
        host = "127.0.0.1" if one_node else get_node_ip_address()
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, 0), family=family)
        return host, listener.getsockname()[1], listener.detach()

    def start(self, worker: str, num_threads: int, *arguments: Any) -> None:
        """Make the worker; the first call."""
        os.environ.update(runtime.process_environment(num_threads))
        # Ray hides nothing from a process without GPUs, or if a user told it not to.
        os.environ[VISIBLE] = ",".join(ray.get_runtime_context().get_accelerator_ids()["GPU"])
        module, name = worker.split(":")
        with runtime.importing():
            made = getattr(importlib.import_module(module), name)
        self._worker = made(*arguments)

    @ray.method(num_returns=2)
    def call(self, method: str, *arguments: Any) -> tuple[Any, float]:
        """A method's answer, and its seconds; two objects, so that workers can pass one on."""
        began = time.monotonic()
        answer = getattr(self._worker, method)(*arguments)
        return answer, time.monotonic() - began


def share(value: Any) -> Any:
    """Put a value into shared memory once for all workers; the reference to it."""
    with stall_limit("sharing data with the workers"):
        return ray.put(value)


class Future:
    """A call under way on all ranks of a group; made by :meth:`WorkerGroup.call`."""

    def __init__(self, group: "WorkerGroup", launch: Callable[[], list[tuple[Any, Any]]]) -> None:
        self._group = group
        self._launch = launch
        self.launched = time.monotonic()
        """Monotonic clock, in seconds."""
        self._generation = group.generation
        self.references, self._worked = zip(*launch(), strict=True)
        """One object reference per rank."""
        self.seconds = 0.0
        """What the slowest rank worked, and what its replacements took; 0 before the answer.

        The worker measures it: the driver may take an answer up long after it is there.
        """

    def results(self, left_s: float | None = None) -> list[Any]:
        """Wait for all ranks; after a death or a hang restart a replaceable group and ask again.

        ``left_s`` is what is left of the first wait's deadline. Raises WorkerDiedError,
        WorkerTimeoutError, or the RefblendError that the worker itself raised.
        """
        lost = 0.0
        while True:
            try:
                answers = self._group.wait(self.references, left_s)
                self.seconds = lost + max(self._group.wait(self._worked))
            except (WorkerDiedError, WorkerTimeoutError) as error:
                # Another call may have replaced the group since this one was launched.
                self._group.replace(error, self._generation)
                self._generation = self._group.generation
                lost = time.monotonic() - self.launched
                self.references, self._worked = zip(*self._launch(), strict=True)
                left_s = None
            else:
                return answers

    def result(self) -> Any:
        """The answer of rank 0."""
        return self.results()[0]


class WorkerGroup:
    """All ranks of one role, each a Ray actor in its place of a resource pool.

    With ``account`` all are started afresh when one dies or hangs, and the call is repeated; not
    past a deadline of the role's own.
    """

    def __init__(
        self,
        role: Role,
        config: RefblendConfig,
        places: Callable[[], Sequence[Place]],
        arguments: Sequence[Any] = (),
        account: Callable[[Fail], None] | None = None,
        prepare: Callable[["WorkerGroup"], None] = lambda group: None,
    ) -> None:
        """Launch the processes without waiting for them (see :meth:`ready`).

        ``places`` says, for each start, where they run; ``arguments`` follow the configuration.
        ``account`` tells the user of a replacement, or raises when there were too many;
        ``prepare`` brings fresh processes to where the lost ones were.
        """
        self.role = role.name
        self.generation = 0
        """How often the group was replaced."""
        self._places, self._account, self._prepare = places, account, prepare
        own_deadline = role.deadline(config)
        self.timeout_s = own_deadline or config.trainer.worker_timeout_s
        """The deadline of each call."""
        key = f"{role.section}.timeout_s" if own_deadline else "trainer.worker_timeout_s"
        self._late_remedy = f"Raise {key}, or lower the batch or the lengths."
        self._repeats_late = own_deadline is None
        self._start_timeout_s = config.ray.start_timeout_s
        self._trains = role.engine_model is None
        self._start = (role.worker, role.processes(config).threads, with_absolute_paths(config))
        self._arguments = arguments
        # A separate class, so that Ray's process titles name the worker.
        self._remote = ray.remote(type(role.worker.split(":")[1], (WorkerProcess,), {}))
        self._launch(places())

    def _launch(self, places: Sequence[Place]) -> None:
        self.nodes = [place.node for place in places]
        """Of each rank: those of one node can open one another's memory."""
        self._ranks: list[ActorHandle] = [
            self._remote.options(
                num_cpus=place.process.cpus,
                num_gpus=place.process.gpus,
                max_restarts=0,
                scheduling_strategy=place.strategy,
                # Ray would keep a record of every call, for a dashboard that does not run.
                enable_task_events=False,
            ).remote()
            for place in places
        ]
        own: list[tuple[Any, ...]] = [()] * self.size
        if self._trains:
            one_node = len(set(self.nodes)) == 1
            # Nobody waits here: Ray hands the address on from process to process.
            address = self._ranks[0].listen.remote(one_node) if self.size > 1 else None
            own = [(number, address) for number in range(self.size)]
        self._starting = [
            rank.start.remote(*self._start, *self._arguments, *extra)
            for rank, extra in zip(self._ranks, own, strict=True)
        ]

    @property
    def size(self) -> int:
        """Number of ranks."""
        return len(self._ranks)

    def ready(self) -> None:
        """Wait until every rank is up; errors as in :meth:`Future.results`, but no late answer."""
        remedy = "Raise ray.start_timeout_s, or start fewer runs at once."
        try:
            _wait(self.role, self._starting, self._start_timeout_s, remedy)
        except WorkerTimeoutError as error:  # for a judge that would be a batch without scores
            raise WorkerError(error.reason, error.remedy) from None

    def wait(self, references: Sequence[Any], left_s: float | None = None) -> list[Any]:
        """Wait for calls on this group; errors as in :meth:`Future.results`."""
        return _wait(self.role, references, self.timeout_s, self._late_remedy, left_s)

    def replace(self, error: Fail, generation: int) -> None:
        """Start all ranks afresh, unless ``generation`` is gone already; or raise ``error``."""
        if self._account is None:
            raise error
        if generation == self.generation:
            self._account(error)
            self.kill()
            self.generation += 1
            self._launch(self._places())
            self.ready()
            self._prepare(self)
        if isinstance(error, WorkerTimeoutError) and not self._repeats_late:
            raise error

    def call(self, method: str, *arguments: Any) -> Future:
        """Call a method with the same arguments on every rank, without waiting."""
        return self.call_each(method, [arguments] * self.size)

    def call_each(self, method: str, arguments: Sequence[Sequence[Any]]) -> Future:
        """Call a method with each rank's own arguments, without waiting."""

        def launch() -> list[tuple[Any, Any]]:
            with stall_limit(f"calling the {self.role} worker"):
                return [
                    rank.call.remote(method, *args)
                    for rank, args in zip(self._ranks, arguments, strict=True)
                ]

        return Future(self, launch)

    def kill(self) -> None:
        """End the processes at once."""
        with stall_limit(f"ending the {self.role} worker"):
            for rank in self._ranks:
                ray.kill(rank, no_restart=True)


@dataclass
class Part:
    """The share of one engine in a call."""

    engine: WorkerGroup
    rows: list[int]
    future: Future
    answered: bool = False
    """Whether the engine answered; not before the call was waited for, and not past a deadline."""


@dataclass
class SplitCall:
    """A call whose rows are under way on several engines; made by :func:`split`."""

    parts: list[Part]
    timeout_s: float
    """The deadline of all engines together."""
    launched: float = field(default_factory=time.monotonic)
    """Monotonic clock, in seconds."""
    seconds: float = 0.0
    """What the slowest engine worked (:attr:`Future.seconds`), once all were waited for."""

    def results(
        self, instead: Callable[[WorkerTimeoutError, int], Sequence[Any]] | None = None
    ) -> list[Any]:
        """The answers of all rows, in order; ``instead`` supplies those that miss the deadline."""
        answers: list[Any] = [None] * sum(len(part.rows) for part in self.parts)
        deadline = time.monotonic() + self.timeout_s

        def left() -> float:  # at least 1, so that an answer that is ready is still taken
            return max(1.0, deadline - time.monotonic())

        waiting = {part.future.references[0]: part for part in self.parts}
        while waiting:  # for the part that finishes or fails first, or any past the deadline
            with stall_limit("waiting for the engines", left()):
                done, _ = ray.wait(list(waiting), num_returns=1, timeout=left())
            part = waiting.pop((done or list(waiting))[0])
            try:
                found = part.future.results(left())[0]
                worked, part.answered = part.future.seconds, True
            except WorkerTimeoutError as error:
                if instead is None:
                    raise
                found = instead(error, len(part.rows))
                worked = time.monotonic() - self.launched
            self.seconds = max(self.seconds, worked)
            for row, answer in zip(part.rows, found, strict=True):
                answers[row] = answer
        return answers


def split(
    engines: Sequence[WorkerGroup], method: str, columns: Sequence[Sequence[Any]], work: Work
) -> SplitCall:
    """Call a method on each engine with its rows of all columns, without waiting."""
    parts = []
    for engine, rows in zip(engines, split_rows(work, len(engines)), strict=True):
        if rows:
            own = [[column[row] for row in rows] for column in columns]
            parts.append(Part(engine, rows, engine.call(method, *own)))
    return SplitCall(parts, engines[0].timeout_s)
