"""Worker processes of runs, and training that survives their death.

The death of actor or critic, which hold what was learned since the last checkpoint, starts all
workers again from there. Repeated steps give the same numbers on CPUs; GPUs were not tried.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from refblend.config import RefblendConfig
from refblend.lifecycle.stopping import StopRequest
from refblend.trainer.checkpoint import CheckpointManager, CheckpointRef
from refblend.trainer.datasets import RunData
from refblend.trainer.ray_trainer import RayPPOTrainer
from refblend.trainer.saving import RunOutputs
from refblend.trainer.trackers import TrackerContext, Trackers
from refblend.trainer.tracking import MetricsLog
from refblend.workers.cluster import ray_cluster
from refblend.workers.placement import processes_of, totals
from refblend.workers.restarts import RestartBudget, WorkerDiedError
from refblend.workers.worker_set import WorkerSet


class WorkerPool(ExitStack):
    """Lends workers to one run at a time. The first run starts them; the block's end stops them."""

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
        """Workers as if fresh, for runs that differ in seed and directory only."""
        if not self._connected:
            begin = time.monotonic()
            self.enter_context(ray_cluster(config.ray, *totals(processes_of(config))))
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


def train_with_recovery(
    config: RefblendConfig,
    data: RunData,
    log: MetricsLog,
    total_steps: int,
    stop: StopRequest,
    pool: WorkerPool,
    start: CheckpointRef | None = None,
) -> None:
    """Train to the last step, from a checkpoint or step 0; WorkerError after too many deaths."""
    run_dir = Path(config.trainer.default_local_dir)
    checkpoints = CheckpointManager(
        run_dir / "checkpoints", config.trainer.max_ckpt_to_keep, config.trainer.keep_best
    )
    budget = RestartBudget(config.trainer.max_restarts)
    while True:
        begun = start.step if start else 0
        context = TrackerContext(run_dir, total_steps, begun, config.resolved())
        with Trackers(config.trainer.logger, context) as trackers:
            try:
                with pool.workers(config, total_steps, budget, trackers.message) as workers:
                    outputs = RunOutputs(checkpoints, log, trackers)
                    RayPPOTrainer(config, data, workers, outputs, total_steps, stop).fit(start)
                return
            except WorkerDiedError as error:
                with stop.protected():  # a signal that killed the worker may have come here, too
                    budget.spend(error)
                    trackers.message(f"{error}; all workers start again ({budget.spent})")
        start = checkpoints.latest_valid() or start
