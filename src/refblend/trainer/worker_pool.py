"""The Ray cluster and the worker processes of runs that follow one another.

Starting them takes about as long as ten training steps of scale cpu, so the seeds of an arm share
them. A run that ends with an error leaves none behind: the next one starts afresh.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from refblend.config import RefblendConfig
from refblend.workers.cluster import ray_cluster
from refblend.workers.pools import plan_pools, totals
from refblend.workers.restarts import RestartBudget
from refblend.workers.worker_set import WorkerSet


class WorkerPool(ExitStack):
    """Lends workers to one run at a time; started at the first, ended with the block."""

    def __init__(self) -> None:
        super().__init__()
        self._connected = False
        self._workers: WorkerSet | None = None

    @contextmanager
    def workers(
        self,
        config: RefblendConfig,
        total_steps: int,
        budget: RestartBudget,
        notify: Callable[[str], None],
    ) -> Iterator[WorkerSet]:
        """Workers in the state of fresh ones; the runs of a pool differ in seed and directory only.

        Raises:
            ResourceError: there is no cluster, or it cannot hold them.
            WorkerDiedError: one died, while starting or in the block.
        """
        if not self._connected:
            begin = time.monotonic()
            self.enter_context(ray_cluster(config.ray, *totals(plan_pools(config))))
            self.callback(self._dismiss)
            self._connected = True
            notify(f"Ray is up ({time.monotonic() - begin:.1f} s)")
        try:
            if self._workers is None:
                self._workers = WorkerSet.start(config, total_steps, budget, notify)
            else:
                self._workers.begin_run(config, budget, notify)
            yield self._workers
        except BaseException:
            # A call may still be under way, and its answer would meet the next run.
            self._dismiss()
            raise

    def _dismiss(self) -> None:
        workers, self._workers = self._workers, None
        if workers is not None:
            workers.shutdown()
