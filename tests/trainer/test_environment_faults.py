"""Faults of the machine and of the numbers, injected into real runs (sabotage_workers).

Where neither vLLM nor the judge matters, the runs do without them: they start much faster.
A run either goes on, with the metrics of an undisturbed one, or stops with an error of ours that
says what to do; then the same command finishes it, and nothing tells the result from another.
"""

import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from refblend.trainer.checkpoint import find_damage

pytestmark = pytest.mark.engine

LAST = 4
SABOTAGE = Path(__file__).parent / "sabotage_workers"
WORKERS = "refblend.workers.fsdp_workers"
LOSS = f"{WORKERS}:ActorWorker.loss"
REFERENCE = f"{WORKERS}:ReferenceWorker.compute_log_prob"
LOG_PROBS = f"{WORKERS}:ActorWorker.compute_log_prob"
GRADIENTS = "refblend.workers.distributed:clip_gradients"
ROLLOUT = "refblend.workers.engine_workers:RolloutWorker"
JUDGE = "refblend.workers.engine_workers:JudgeWorker"
JUDGING = "refblend.scoring.generative:GenerativeJudge._generate"
JUDGEMENT = "refblend.scoring.judge:RequestJudge._result"
SAVE = "refblend.trainer.ray_trainer:RayPPOTrainer._save"
METRICS = "refblend.trainer.tracking:MetricsLog.append"
REWARD = "saboteur:reward"
DAY = 86400.0
LIGHT = ("actor_rollout_ref.rollout.name=hf", "algorithm.ref_quality_score.enable=false")
"""No vLLM, no judge."""


def sabotage(run, target: str, fault: str, calls: str) -> dict[str, str]:
    """The environment of a run in which ``fault`` strikes."""
    (run.directory.parent / f"{run.directory.name}.calls").unlink(missing_ok=True)
    return with_sabotage() | {
        "SABOTAGE": target,
        "SABOTAGE_FAULT": fault,
        "SABOTAGE_CALLS": calls,
        "SABOTAGE_FOLDER": str(run.directory),
    }


def with_sabotage() -> dict[str, str]:
    paths = [str(SABOTAGE), str(SABOTAGE.parent), os.environ.get("PYTHONPATH", "")]
    return {"PYTHONPATH": os.pathsep.join(paths)}


def assert_stopped(run, ended, told: str) -> None:
    """An error of ours in the last line, no traceback, and no damaged checkpoint."""
    assert ended.status in (2, 4), ended.output
    message = ended.output.splitlines()[-1]
    assert message.startswith("error: "), ended.output
    assert "Traceback" not in ended.output
    assert re.search(told, message), message
    assert_whole(run)


def assert_whole(run) -> None:
    """Every checkpoint that is there can be used."""
    checkpoints = (run.directory / "checkpoints").glob("global_step_*")
    assert [c.name for c in checkpoints if find_damage(c) is not None] == []


def incidents(run, kind: str) -> list[int]:
    """Counts of the training steps."""
    return [m[f"incidents/{kind}"] for m in run.metrics()[1:]]


@pytest.fixture(scope="module")
def make_light(make_run) -> Callable:
    """``make_light(*overrides)`` → a run without vLLM and judge."""
    return lambda *overrides: make_run(*LIGHT, *overrides)


@pytest.fixture(scope="module")
def light(make_light):
    """An undisturbed one, to compare with."""
    run = make_light()
    run.complete()
    return run


@pytest.fixture
def on_small_disk() -> Iterator[Callable[[Path], None]]:
    """``on_small_disk(path)``: the new directory ``path`` is a file system of 48 MB."""
    mounted: list[Path] = []

    def mount(path: Path) -> None:
        path.mkdir(parents=True)
        command = ["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", str(path)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            pytest.skip("may not mount file systems here; try it below `unshare -rm`")
        mounted.append(path)

    yield mount
    for path in mounted:
        while path.is_mount():
            subprocess.run(["umount", "-l", str(path)], check=True)


# --- the run stops, and the same command finishes it ------------------------------------------

FULL = "full_disk", "full.*ree some space"
STOPS = {
    "full: first checkpoint": (SAVE, "1", *FULL),
    "full: optimiser's state": ("refblend.workers.distributed:save_optimizer", "1", *FULL),
    "full: manifest": ("refblend.trainer.checkpoint:write_manifest", "2", *FULL),
    "full: responses": ("refblend.trainer.saving:write_rollouts", "3", *FULL),
    "full: metrics before a checkpoint": (METRICS, "2", *FULL),
    "full: metrics after a checkpoint": (METRICS, "3", *FULL),
    "full: metrics after the last": (METRICS, "5", *FULL),
    "full: trackers": ("refblend.trainer.trackers:Trackers.log", "2", *FULL),
    "read-only: checkpoint": (SAVE, "2", "read_only", ""),
    "read-only: metrics": (METRICS, "4", "read_only", ""),
    "reference": (REFERENCE, "3", "nan_matrix", "reference policy's log-probs.*not finite"),
    "actor": (LOG_PROBS, "3", "nan_matrix", "the actor's log-probs.*not finite"),
    "reward": (REWARD, "60", "nan_reward", "reward.custom_reward_function.*not finite"),
    "judgement": (JUDGEMENT, "40", "nan_score", "the judge's scores are not finite"),
    "defect: update": (f"{WORKERS}:ActorWorker.update", "3", "defect", "KeyError: 'sabotage'"),
    "defect: push": (f"{ROLLOUT}.load_weights", "3", "defect", "KeyError: 'sabotage'"),
}
"""The function that misbehaves, on which call, how, and what the message says."""


@pytest.mark.slow
@pytest.mark.parametrize("what", STOPS)
def test_a_run_that_a_fault_stops_is_finished_by_the_same_command(
    make_run, on_small_disk, what, request
):
    target, call, fault, told = STOPS[what]
    judged = target == JUDGEMENT
    run = make_run(*(() if judged else LIGHT))
    if disk := fault in ("full_disk", "read_only"):
        on_small_disk(run.directory)
    ended = run.train(**sabotage(run, target, fault, call))
    if fault == "defect":
        assert ended.status == 1, ended.output
        assert told in ended.output
        assert_whole(run)
    else:
        assert_stopped(run, ended, told)
        assert not disk or str(run.directory) in ended.output.splitlines()[-1]
    if fault == "full_disk":
        (run.directory / "filler").unlink()
    elif fault == "read_only":
        subprocess.run(["umount", str(run.directory)], check=True)
    run.complete()
    run.assert_same(request.getfixturevalue("undisturbed" if judged else "light"))


def test_a_reward_that_is_not_finite(make_light):
    """Already in the validation before training: nothing is recorded, nothing is left."""
    run = make_light()
    # The preflight tries one row of each of the three files first.
    ended = run.train(**sabotage(run, REWARD, "nan_reward", "4"))
    assert_stopped(run, ended, "reward.custom_reward_function.*not finite")
    assert not (run.directory / "metrics.jsonl").exists()


# --- the run cannot go on ---------------------------------------------------------------------

NO_MEMORY = "worker ran out of memory.*kv_cache_memory_mb"
HOPELESS = {
    "rollout": (f"{ROLLOUT}.generate", "3+", "out_of_memory", f"rollout {NO_MEMORY}", 1),
    "judge": (JUDGING, "3+", "out_of_memory", f"judge {NO_MEMORY}", 1),
    "start": (f"{JUDGE}.__init__", "1+", "out_of_memory", f"judge {NO_MEMORY}", 0),
    "gradients": (LOSS, "1+", "nan_loss", "actor was not finite in 5 steps in a row", 0),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", HOPELESS)
def test_a_fault_that_stays_stops_the_run(make_run, what):
    target, calls, fault, told, restarts = HOPELESS[what]
    run = make_run(f"trainer.max_restarts={restarts}", "trainer.save_freq=1")
    ended = run.train("trainer.total_training_steps=6", **sabotage(run, target, fault, calls))
    assert_stopped(run, ended, told)
    if restarts:
        assert "it is replaced (1)" in ended.output
        assert (run.directory / "checkpoints" / "global_step_1").is_dir()
    if fault == "nan_loss":
        assert incidents(run, "nonfinite") == [1] * 4


@pytest.mark.slow
def test_an_engine_whose_cache_holds_no_request(make_run, make_tiny_model):
    """vLLM's own refusal."""
    model = make_tiny_model(0, num_hidden_layers=8, num_key_value_heads=2)
    models = "actor_rollout_ref"
    run = make_run(f"{models}.model.path={model}", f"{models}.rollout.max_model_len=1024")
    ended = run.train(f"{models}.rollout.kv_cache_memory_mb=1")
    assert_stopped(run, ended, "vLLM does not start.*kv_cache_memory_mb")


# --- the run goes on --------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [DAY, -DAY, 1e6 - time.time()])
def test_a_clock_that_jumps(make_run, undisturbed, seconds):
    run = make_run("trainer.energy=true")
    after = str(run.directory / "rollouts" / "1.jsonl")
    clock = {"SABOTAGE_CLOCK": str(seconds), "SABOTAGE_CLOCK_AFTER": after}
    run.complete(**with_sabotage() | clock)
    run.assert_same(undisturbed)
    for line in (run.directory / "metrics.jsonl").read_text().splitlines():
        times = {k: v for k, v in json.loads(line).items() if k.startswith("timing_s/")}
        assert all(0 <= v < 600 for v in times.values()), times
    provenance = json.loads((run.directory / "provenance.json").read_text())
    assert 0 < provenance["totals"]["wall_time_s"] < 600


ONCE = {
    "rollout engine": (f"{ROLLOUT}.generate", "the rollout worker ran out of memory: CUDA"),
    "judge's engine": (JUDGING, "the judge worker ran out of memory: CUDA"),
    # The actor's state is doubtful then, so the run goes back to its last checkpoint.
    "actor's forward pass": (LOG_PROBS, "all workers start again (1)"),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", ONCE)
def test_memory_that_runs_out_once(make_run, undisturbed, what):
    run = make_run()
    target, told = ONCE[what]
    assert told in run.complete(**sabotage(run, target, "out_of_memory", "3"))
    assert sum(incidents(run, "oom")) == 1
    run.assert_same(undisturbed, ignore=["incidents/oom"])


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["out_of_memory", "host_out_of_memory"])
def test_an_update_that_runs_out_of_memory(make_light, light, fault):
    """Half the micro-batch gives the same sums but for rounding."""
    run = make_light()
    said = run.complete(**sabotage(run, LOSS, fault, "1"))
    assert "step 1: memory ran out in the actor's update" in said
    assert incidents(run, "oom") == [1, 0, 0, 0]
    for ours, theirs in zip(run.metrics(), light.metrics(), strict=True):
        for metrics in (ours, theirs):
            metrics.pop("incidents/oom", None)  # step 0 has none
        assert ours == pytest.approx(theirs, rel=1e-3, abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "target"), [("nan_loss", LOSS), ("nan_gradient", GRADIENTS)])
def test_a_gradient_that_is_not_finite_is_skipped(make_light, light, fault, target):
    run = make_light()
    said = run.complete(**sabotage(run, target, fault, "1"))
    assert "step 1: the actor's gradient is not finite; skipped: the update" in said
    assert incidents(run, "nonfinite") == [1, 0, 0, 0]
    # What was computed before the update is the light run's.
    assert run.rollouts(1) == light.rollouts(1)
    assert run.weights(LAST) != light.weights(LAST)
    assert_whole(run)
