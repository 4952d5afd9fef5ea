"""Ray at the edge: processes for the plain workers, dispatch to ranks, waits with deadlines."""

import time
from collections.abc import Sequence
from typing import Any

import ray
from ray.actor import ActorHandle
from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError

from refblend import runtime
from refblend.errors import RefblendError, WorkerError
from refblend.workers.resource_pools import ResourcePools


class WorkerDiedError(Exception):
    """A worker process is gone; the trainer may replace it and repeat the step."""

    def __init__(self, role: str, cause: str) -> None:
        super().__init__(f"the {role} worker died: {cause}")
        self.role = role


class Pending:
    """Remote calls under way, with the role that answers and the time they were launched."""

    def __init__(
        self,
        role: str,
        references: Sequence[Any],
        timeout_s: float,
        remedy: str = "Raise trainer.worker_timeout_s, or lower the batch or the lengths.",
    ) -> None:
        self.role = role
        self.references = list(references)
        """One object reference a rank."""
        self._timeout_s = timeout_s
        self._remedy = remedy
        self._launched = time.monotonic()
        self.seconds = 0.0
        """From launch to the answer, once it was waited for."""

    def results(self) -> list[Any]:
        """Wait for all ranks.

        Raises:
            WorkerDiedError: a process is gone.
            WorkerError: the deadline passed; names the key to change.
            RefblendError: what the worker itself raised for the user.
        """
        try:
            answers = ray.get(self.references, timeout=self._timeout_s)
        except GetTimeoutError:
            raise WorkerError(
                f"the {self.role} worker did not answer within {self._timeout_s:g} s",
                self._remedy,
            ) from None
        except RayActorError as error:
            raise WorkerDiedError(self.role, _cause(error)) from None
        except RayTaskError as error:
            if isinstance(error.cause, RefblendError):
                raise error.cause from None
            raise
        self.seconds = time.monotonic() - self._launched
        return answers

    def result(self) -> Any:
        """The answer of rank 0."""
        return self.results()[0]


def _cause(error: RayActorError) -> str:
    """One line: the exception of a failed start (the traceback's last line), or Ray's first."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if "creation task" in lines[0] else lines[0]


class WorkerGroup:
    """All ranks of one role, each a Ray actor in its place of a resource pool."""

    def __init__(
        self,
        role: str,
        worker: type,
        pools: ResourcePools,
        num_threads: int,
        timeout_s: float,
        arguments: Sequence[Sequence[Any]],
    ) -> None:
        """Launch the processes without waiting for them (see :meth:`ready`).

        Args:
            role: name in :class:`ResourcePools` and in messages.
            worker: the plain class.
            pools: where its ranks stand.
            num_threads: CPU threads of each process.
            timeout_s: deadline of every call.
            arguments: constructor arguments of each rank.
        """
        self.role = role
        self._timeout_s = timeout_s
        remote = ray.remote(worker)
        environment = {"env_vars": runtime.process_environment(num_threads)}
        self._ranks: list[ActorHandle] = [
            remote.options(
                num_cpus=bundle.cpus,
                num_gpus=bundle.gpus,
                max_restarts=0,
                runtime_env=environment,
                scheduling_strategy=place,
            ).remote(*args)
            for (bundle, place), args in zip(pools.places(role), arguments, strict=True)
        ]

    @property
    def size(self) -> int:
        """Number of ranks."""
        return len(self._ranks)

    def ready(self, timeout_s: float) -> None:
        """Wait until every rank is up."""
        references = [rank.__ray_ready__.remote() for rank in self._ranks]
        remedy = "Raise ray.start_timeout_s, or start fewer runs at once."
        Pending(self.role, references, timeout_s, remedy).results()

    def call(self, method: str, *arguments: Any) -> Pending:
        """Call a method with the same arguments on every rank, without waiting."""
        references = [getattr(rank, method).remote(*arguments) for rank in self._ranks]
        return Pending(self.role, references, self._timeout_s)

    def call_each(self, method: str, arguments: Sequence[Sequence[Any]]) -> Pending:
        """Call a method with arguments of its own on each rank, without waiting."""
        references = [
            getattr(rank, method).remote(*args)
            for rank, args in zip(self._ranks, arguments, strict=True)
        ]
        return Pending(self.role, references, self._timeout_s)

    def kill(self) -> None:
        """End the processes at once."""
        for rank in self._ranks:
            ray.kill(rank, no_restart=True)
