"""Handling of workers that die, hang or run out of memory."""

from refblend.errors import WorkerError
from refblend.workers.roles import ROLES


class WorkerDiedError(Exception):
    """A worker process has died."""

    def __init__(self, role: str, cause: str, how: str = "died") -> None:
        self.role, self.reason = role, f"the {role} worker {how}: {cause}"
        super().__init__(self.reason)


class WorkerMemoryError(WorkerDiedError):
    """A worker ran out of memory. Its state is unreliable, so it is replaced like a dead one."""

    def __init__(self, role: str, cause: str) -> None:
        super().__init__(role, cause, "ran out of memory")
        self.remedy = f"Lower {ROLES[role].lower}; call again to resume."


class WorkerTimeoutError(WorkerError):
    """A worker did not answer before its deadline."""


Fail = WorkerDiedError | WorkerTimeoutError
"""Why a worker is replaced."""


class RestartBudget:
    """How often workers may be replaced before a run gives up (``trainer.max_restarts``)."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._shortages = 0
        self._short: set[str] = set()
        self.spent = 0

    def spend(self, error: Fail) -> None:
        """Count a replacement; WorkerError if too many, or if a role ran out of memory twice."""
        if isinstance(error, WorkerMemoryError):
            if error.role in self._short:
                raise WorkerError(f"{error.reason}, for the second time", error.remedy)
            self._short.add(error.role)
        if self.spent >= self._limit:
            remedy = "Look for the cause; call again to resume, or raise trainer.max_restarts."
            if isinstance(error, WorkerMemoryError | WorkerTimeoutError):
                remedy = error.remedy
            reason = f"{error.reason}; workers were replaced {self.spent} times"
            raise WorkerError(reason, remedy) from error
        self.spent += 1
        self._shortages += isinstance(error, WorkerMemoryError)

    def take_shortages(self) -> int:
        """How many of the replacements since the last call were out of memory."""
        taken, self._shortages = self._shortages, 0
        return taken
