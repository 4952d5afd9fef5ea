"""Ray at the edge: processes for the plain workers, dispatch to ranks, waits with deadlines."""

import importlib
import os
import socket
import time
from collections.abc import Callable, Sequence
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

from refblend import runtime
from refblend.errors import RefblendError
from refblend.lifecycle.faults import is_out_of_memory
from refblend.lifecycle.stalls import stall_limit
from refblend.workers.pools import ResourcePools
from refblend.workers.restarts import (
    Replacement,
    WorkerDiedError,
    WorkerMemoryError,
    WorkerTimeoutError,
)
from refblend.workers.roles import Role

DEATH_NOTICE_S = 30.0
"""Within this time after a failure Ray tells of a process that is gone."""
LOST = (ObjectLostError, NodeDiedError)
"""What a call meets whose node, or an argument's node, is gone."""


def _wait(role: str, references: Sequence[Any], timeout_s: float, remedy: str) -> list[Any]:
    """The answers of all ranks, with Ray's errors turned into ours."""
    try:
        with stall_limit(f"waiting for the {role} worker", timeout_s):
            answers: list[Any] = ray.get(list(references), timeout=timeout_s)
    except GetTimeoutError:
        raise WorkerTimeoutError(
            f"the {role} worker did not answer within {timeout_s:g} s", remedy
        ) from None
    except (RayActorError, *LOST) as error:
        raise WorkerDiedError(role, _first_line(error)) from None
    except RayTaskError as error:
        if isinstance(error.cause, RefblendError):
            raise error.cause from None
        if isinstance(error.cause, LOST):
            raise WorkerDiedError(role, _first_line(error.cause)) from None
        if is_out_of_memory(error.cause):
            raise WorkerMemoryError(role, _first_line(error.cause)) from None
        death = _find_death(role, references)
        if death is not None:
            raise death from None
        raise
    return answers


def _find_death(role: str, references: Sequence[Any]) -> WorkerDiedError | None:
    """The death of a rank behind another rank's failure.

    A rank whose peer is gone fails in a collective, often before Ray knows of the death.
    """
    deadline = time.monotonic() + DEATH_NOTICE_S
    for reference in references if len(references) > 1 else ():
        try:
            ray.get(reference, timeout=max(0.0, deadline - time.monotonic()))
        except RayActorError as error:
            return WorkerDiedError(role, _first_line(error))
        except (GetTimeoutError, RayTaskError):
            continue
    return None


def _first_line(error: BaseException) -> str:
    """What an error says, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


class WorkerProcess:
    """What runs in a worker's process: the plain worker, imported only there.

    The driver needs neither vLLM nor the networks, and the thread limits must be in the environment
    before torch is imported. The worker is made by a call of its own, because Ray hands on what a
    call raises, but only a text of what a constructor raises.
    """

    def start(self, worker: str, num_threads: int, *arguments: Any) -> None:
        """Make the worker; the first call."""
        os.environ.update(runtime.process_environment(num_threads))
        module, name = worker.split(":")
        with runtime.importing():
            made = getattr(importlib.import_module(module), name)
        self._worker = made(*arguments)

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the worker."""
        return getattr(self._worker, method)(*arguments)


def share(value: Any) -> Any:
    """Put a value into shared memory once for all workers; the reference to it."""
    with stall_limit("sharing data with the workers"):
        return ray.put(value)


def free_address() -> str:
    """A loopback address with a free port for the rendezvous of a group's processes."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return f"tcp://127.0.0.1:{sock.getsockname()[1]}"


class Future:
    """A call under way on all ranks of a group; made by :meth:`WorkerGroup.call`."""

    def __init__(self, group: "WorkerGroup", launch: Callable[[], list[Any]]) -> None:
        self._group = group
        self._launch = launch
        self.launched = time.monotonic()
        """Monotonic clock, in seconds."""
        self._generation = group.generation
        self.references = launch()
        """One object reference per rank."""
        self.seconds = 0.0
        """From launch to the answer, once it was waited for."""

    def results(self) -> list[Any]:
        """Wait for all ranks; a group that can be replaced is asked again after a death or a hang.

        Raises:
            WorkerDiedError: a process is gone, and its state with it.
            WorkerTimeoutError: the deadline passed; names the key to change.
            RefblendError: what the worker itself raised for the user, or too many replacements.
        """
        while True:
            try:
                answers = self._group.wait(self.references)
            except (WorkerDiedError, WorkerTimeoutError) as error:
                # Another call may have replaced the group since this one was launched.
                self._group.replace(error, self._generation)
                self._generation = self._group.generation
                self.references = self._launch()
            else:
                self.seconds = time.monotonic() - self.launched
                return answers

    def result(self) -> Any:
        """The answer of rank 0."""
        return self.results()[0]


class WorkerGroup:
    """All ranks of one role, each a Ray actor in its place of a resource pool.

    A group whose processes hold nothing that cannot be made again (judge, rollout engine,
    reference policy) is given a ``replacement``: when one dies or hangs, all are started afresh
    and the call under way is repeated. Without one the error reaches the caller.
    """

    def __init__(
        self,
        role: Role,
        pools: ResourcePools,
        num_threads: int,
        timeout_s: float,
        arguments: Callable[[], Sequence[Sequence[Any]]],
        replacement: Replacement | None = None,
    ) -> None:
        """Launch the processes without waiting for them (see :meth:`ready`).

        ``timeout_s`` is the deadline of every call; ``arguments`` makes the constructor arguments
        of each rank, again for each start.
        """
        self.role = role.name
        self.generation = 0
        """How often the group was replaced."""
        self._pools = pools
        self._timeout_s = timeout_s
        self._arguments = arguments
        self.replacement = replacement
        self._start = (role.worker, num_threads)
        # A separate class, so that Ray's process titles name the worker.
        self._remote = ray.remote(type(role.worker.split(":")[1], (WorkerProcess,), {}))
        self._launch()

    def _launch(self) -> None:
        self._ranks: list[ActorHandle] = [
            self._remote.options(
                num_cpus=bundle.cpus,
                num_gpus=bundle.gpus,
                max_restarts=0,
                scheduling_strategy=place,
                # Ray would keep a record of every call, for a dashboard that does not run.
                enable_task_events=False,
            ).remote()
            for bundle, place in self._pools.places(self.role)
        ]
        self._starting = [
            rank.start.remote(*self._start, *args)
            for rank, args in zip(self._ranks, self._arguments(), strict=True)
        ]

    @property
    def size(self) -> int:
        """Number of ranks."""
        return len(self._ranks)

    def ready(self, timeout_s: float) -> None:
        """Wait until every rank is up; errors as in :meth:`Future.results`."""
        remedy = "Raise ray.start_timeout_s, or start fewer runs at once."
        _wait(self.role, self._starting, timeout_s, remedy)

    def wait(self, references: Sequence[Any]) -> list[Any]:
        """Wait for calls on this group; errors as in :meth:`Future.results`."""
        remedy = "Raise trainer.worker_timeout_s, or lower the batch or the lengths."
        return _wait(self.role, references, self._timeout_s, remedy)

    def replace(self, error: Exception, generation: int) -> None:
        """Start all ranks afresh after ``error``, unless ``generation`` is gone already.

        Raises:
            Exception: ``error`` itself, where the group cannot be replaced or a late call is not
                made again.
            WorkerError: too many replacements.
        """
        how = self.replacement
        if how is None:
            raise error
        if generation == self.generation:
            self._restart(how, error)
        if isinstance(error, WorkerTimeoutError) and not how.repeats_late:
            raise error

    def _restart(self, how: Replacement, error: Exception) -> None:
        how.account(error)
        self.kill()
        self.generation += 1
        self._launch()
        self.ready(how.start_timeout_s)
        how.prepare()

    def call(self, method: str, *arguments: Any) -> Future:
        """Call a method with the same arguments on every rank, without waiting."""
        return self.call_each(method, [arguments] * self.size)

    def call_each(self, method: str, arguments: Sequence[Sequence[Any]]) -> Future:
        """Call a method with each rank's own arguments, without waiting."""

        def launch() -> list[Any]:
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
