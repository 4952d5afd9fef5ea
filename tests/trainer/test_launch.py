"""What surrounds a run: preflight, planned steps, recovery, summary, and the cluster's folder."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from refblend.config.trainer import RayConfig
from refblend.errors import CheckpointError, ResourceError, TrainingError, WorkerError
from refblend.lifecycle import stopping
from refblend.rollout.base import Generation
from refblend.trainer import launch, recovery
from refblend.trainer.checkpoint import CheckpointManager, CheckpointRef, write_state
from refblend.trainer.datasets import load_run_data
from refblend.trainer.ray_trainer import RayPPOTrainer
from refblend.trainer.tracking import MetricsLog
from refblend.workers import cluster, worker_set
from refblend.workers.restarts import RestartBudget, WorkerDiedError
from refblend.workers.roles import Role

# --- the summary -----------------------------------------------------------------------------


def write_log(run_dir: Path, records: list[dict[str, float]]) -> None:
    log = MetricsLog(run_dir / "metrics.jsonl")
    for step, record in enumerate(records):
        log.append(step, record)


def test_summary_by_hand(tmp_path):
    acc = "val-core/refblend/arithmetic/acc/mean@1"
    write_log(
        tmp_path,
        [
            {acc: 0.25, "val-aux/x/acc/mean@4": 0.1},
            {"incidents/oom": 1.0, "timing_s/step": 2.0},
            {acc: 0.75, "incidents/oom": 2.0, "incidents/overlength": 0.0, "timing_s/step": 4.0},
            {acc: 0.5, "incidents/oom": float("nan"), "timing_s/step": 3.0},
        ],
    )
    assert launch.summarise_run(tmp_path, 3) == {
        "status": "finished",
        "steps": 3,
        "validation": {acc: {"first": 0.25, "best": 0.75, "last": 0.5}},
        "incidents": {"oom": 3, "overlength": 0},
        "step_seconds_mean": 3.0,
    }


@pytest.mark.parametrize("records", [[], [{}, {"a": 1.0}]])
def test_an_unfinished_run_has_no_summary(tmp_path, records):
    write_log(tmp_path, records)
    (tmp_path / "metrics.jsonl").touch()
    with pytest.raises(ResourceError, match="does not reach step 3"):
        launch.summarise_run(tmp_path, 3)


def test_an_extension_that_is_stopped_is_not_called_finished(tiny_config, tmp_path, monkeypatch):
    config = tiny_config(f"trainer.default_local_dir={tmp_path / 'run'}")
    path = tmp_path / "run" / "summary.json"

    def finish(run: launch._Run, steps: int, *_: object) -> dict[str, object]:
        path.write_text(json.dumps({"status": "finished", "steps": steps}))
        return {}

    def stop(run: launch._Run, *_: object) -> None:
        raise stopping.Terminated(signal.SIGTERM)

    monkeypatch.setattr(launch._Run, "_train", finish)
    launch.train(config)
    assert path.exists()
    monkeypatch.setattr(launch._Run, "_train", stop)
    launch.train(config)
    assert path.exists(), "it is finished and left as it is"
    steps = config.trainer.total_training_steps
    longer = tiny_config(
        f"trainer.default_local_dir={tmp_path / 'run'}", f"trainer.total_training_steps={steps + 2}"
    )
    with pytest.raises(stopping.Terminated):
        launch.train(longer)
    assert json.loads(path.read_text())["status"] == "stopped"


def saved(run: Path, step: int) -> CheckpointRef:
    checkpoints = CheckpointManager(run / "checkpoints")
    with checkpoints.staging(step) as staged:
        write_state(staged, {"step": step})
    return CheckpointRef(step, checkpoints.path(step))


def test_a_branch_is_a_run_of_its_own(tiny_config, tmp_path, monkeypatch):
    """It begins at the named checkpoint until it has one, and the same command resumes it."""
    run, begun = tmp_path / "branch", []

    def stop(config, data, log, total, stop, pool, begin):
        begun.append(begin)
        log.truncate_after(begin.step)
        log.append(begin.step + 1, {})
        raise stopping.Terminated(signal.SIGTERM)

    monkeypatch.setattr(recovery, "train_with_recovery", stop)
    named, here = saved(tmp_path / "old", 1), f"trainer.default_local_dir={run}"
    mode = ["trainer.resume_mode=resume_path", f"trainer.resume_from_path={named.path}"]
    for _ in range(2):
        with pytest.raises(stopping.Terminated):
            launch.train(tiny_config(here, *mode))
    own = saved(run, 2)
    shutil.rmtree(named.path)
    with pytest.raises(stopping.Terminated):
        launch.train(tiny_config(here, *mode))
    assert begun == [named, named, own]
    sessions = json.loads((run / "provenance.json").read_text())["sessions"]
    assert all(session["wall_time_s"] is not None for session in sessions)
    with pytest.raises(CheckpointError, match=r"another run \(trainer\.resume_from_path: "):
        launch.train(tiny_config(here))


# --- recovery, without processes -------------------------------------------------------------


class FakeWorkers:
    """Counts starts and shutdowns; the trainer that uses it fails as often as told."""

    started = 0
    stopped = 0

    def shutdown(self) -> None:
        type(self).stopped += 1


@pytest.fixture
def deaths(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """``deaths(k)``: the first k attempts end with a dead worker."""
    FakeWorkers.started = FakeWorkers.stopped = 0

    def start(*_: object) -> FakeWorkers:
        FakeWorkers.started += 1
        return FakeWorkers()

    def script(count: int) -> None:
        class Trainer:
            def __init__(self, *_: object) -> None:
                pass

            def fit(self, start: object) -> None:
                if FakeWorkers.started <= count:
                    raise WorkerDiedError("judge", "killed")

        monkeypatch.setattr(recovery, "RayPPOTrainer", Trainer)

    monkeypatch.setattr(recovery, "ray_cluster", lambda *_: nullcontext())
    monkeypatch.setattr(recovery.WorkerSet, "start", start)
    return script


@pytest.mark.parametrize("count", [0, 1, 2])
def test_dead_workers_are_replaced(deaths, tiny_config, tmp_path, count):
    deaths(count)
    log = MetricsLog(tmp_path / "metrics.jsonl")
    with recovery.WorkerPool() as workers:
        config, stop = tiny_config("trainer.logger=[]"), stopping.StopRequest(1)
        recovery.train_with_recovery(config, None, log, 2, stop, workers)
    assert FakeWorkers.started == FakeWorkers.stopped == count + 1


def test_too_many_deaths_name_the_key(deaths, tiny_config, tmp_path):
    deaths(99)
    log = MetricsLog(tmp_path / "metrics.jsonl")
    config = tiny_config("trainer.logger=[]")
    with (
        pytest.raises(WorkerError, match="the judge worker died: killed") as caught,
        recovery.WorkerPool() as workers,
    ):
        recovery.train_with_recovery(config, None, log, 2, stopping.StopRequest(1), workers)
    assert "trainer.max_restarts" in caught.value.remedy
    assert FakeWorkers.started == FakeWorkers.stopped == 3


@dataclass
class Processes:
    """What became of the processes of a worker set, none of which runs."""

    started: list[str] = field(default_factory=list)
    """A plus is a launch, a name the wait for it."""
    ended: list[str] = field(default_factory=list)
    dies: str = ""
    """The role that dies while it starts."""


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> Processes:
    """Puts pools and workers that only take notes in place of Ray's."""
    found = Processes()

    class Pools:
        def __init__(self, *_: object) -> None:
            pass

        def places(self, role: str) -> list[None]:
            return [None]

        def remove(self) -> None:
            found.ended.append("pools")

    class Group:
        def __init__(self, role: Role, *_: object) -> None:
            self.role = role.name
            found.started.append(f"+{self.role}")

        def ready(self) -> None:
            if self.role == found.dies:
                raise WorkerDiedError(self.role, "no memory")
            found.started.append(self.role)

        def kill(self) -> None:
            found.ended.append(self.role)

    monkeypatch.setattr(worker_set, "ResourcePools", Pools)
    monkeypatch.setattr(worker_set, "WorkerGroup", Group)
    return found


@pytest.mark.parametrize(
    ("share", "ended"),
    [("0.0", ["rollout", "judge", "actor", "pools"]), ("0.25", ["rollout", "judge", "pools"])],
    ids=["with the others", "alone"],
)
def test_a_worker_that_dies_while_starting_gives_its_resources_back(
    tiny_config, processes, share, ended
):
    processes.dies = "judge"
    config = tiny_config(f"algorithm.ref_quality_score.scoring.num_gpus={share}")
    with pytest.raises(WorkerDiedError, match="no memory"):
        worker_set.WorkerSet.start(config, 2, RestartBudget(0), print)
    assert processes.ended == ended


@pytest.mark.parametrize(
    ("judge", "rollout", "expected"),
    [
        (0.0, 0.0, "+rollout +judge +actor rollout judge actor"),
        (1.0, 1.0, "+rollout +judge +actor rollout judge actor"),
        (0.25, 1.0, "+rollout +judge judge +actor rollout judge actor"),
        (1.0, 0.5, "+judge +rollout rollout +actor judge rollout actor"),
        (0.25, 0.5, "+rollout rollout +judge judge +actor rollout judge actor"),
    ],
)
def test_an_engine_that_shares_a_gpu_starts_alone(judge, rollout, expected, tiny_config, processes):
    """vLLM measures the whole device meanwhile."""
    config = tiny_config(
        f"algorithm.ref_quality_score.scoring.num_gpus={judge}",
        f"actor_rollout_ref.rollout.num_gpus={rollout}",
    )
    worker_set.WorkerSet.start(config, 2, RestartBudget(0), lambda _: None)
    assert " ".join(processes.started) == expected


# --- the cluster's folder and the signals ----------------------------------------------------


def test_no_cluster_at_the_address():
    config = RayConfig(address="127.0.0.1:1")
    with (
        pytest.raises(ResourceError, match=r"ray\.address=127\.0\.0\.1:1: no cluster") as caught,
        cluster.ray_cluster(config, 1, 0),
    ):
        pass
    assert "ray.address=null" in caught.value.remedy


def test_a_cluster_that_does_not_start_is_told_and_leaves_no_folder(tmp_path, monkeypatch):
    children = []

    def init(**_: object) -> None:
        children.append(subprocess.Popen(["sleep", "60"]))
        reason = "The current node timed out during startup.\nMore." if len(children) < 3 else "No."
        raise Exception(reason)

    monkeypatch.setattr(cluster.ray, "init", init)
    monkeypatch.setattr(cluster.tempfile, "tempdir", str(tmp_path))
    for timeout, told, attempts in ((1e-6, "The current node timed out", 1), (60.0, "No", 3)):
        with (
            pytest.raises(ResourceError, match=f"did not start: {told}") as caught,
            cluster.ray_cluster(RayConfig(start_timeout_s=timeout), 1, 0),
        ):
            pass
        assert "fewer runs" in caught.value.remedy
        assert len(children) == attempts
    assert [child.wait(5) for child in children] == [-9] * 3
    assert list(tmp_path.iterdir()) == []


@pytest.mark.engine
@pytest.mark.parametrize("address", [None, "auto"])
def test_sigterm_while_ray_starts_is_ours(monkeypatch, address):
    """Ray puts a handler of its own in place, which exits with status 15."""
    came = []

    def init(**_: object) -> None:
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(number))
        came.append(signal.getsignal(signal.SIGTERM))
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(cluster.ray, "init", init)
    with stopping.terminate_cleanly(5):
        ours = signal.getsignal(signal.SIGTERM)
        with (
            pytest.raises(stopping.Terminated) as ended,
            cluster.ray_cluster(RayConfig(address=address), 1, 0),
        ):
            pytest.fail("the block was entered")
        assert signal.getsignal(signal.SIGTERM) == ours
    assert ended.value.code == 128 + signal.SIGTERM
    assert came


@pytest.mark.parametrize(
    ("ids", "reason"),
    [([], "stop"), ([], "length"), ([2], "stop")],
    ids=["nothing", "cut to nothing", "end token"],
)
def test_a_batch_of_empty_responses_ends_the_run_with_a_remedy(tiny_config, ids, reason):
    class Workers:
        notify = staticmethod(print)

        def generate(self, requests: list, version: int) -> list[Generation]:
            log_probs = [-0.1] * len(ids)
            return [Generation(ids, log_probs, reason, version) for _ in requests]

    config = tiny_config()
    data = load_run_data(config)
    trainer = RayPPOTrainer(config, data, Workers(), None, 2, None)
    with pytest.raises(TrainingError, match="step 1: every response is empty") as caught:
        trainer.generate(trainer.next_prompts())
    assert "learning rate" in caught.value.remedy
