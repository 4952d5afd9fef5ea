"""Faults of the machine and of the numbers, injected into real runs (sabotage_workers).

Where neither vLLM nor the judge matters, the runs do without them: they start much faster.
A run either goes on, with the metrics of an undisturbed one, or stops with an error of ours that
says what to do; then the same command finishes it, and nothing tells the result from another.
"""

import json
import os
import pkgutil
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
ENGINE_WORKERS = "refblend.workers.engine_workers"
TRAINER = "refblend.trainer.ray_trainer"
TRACKING = "refblend.trainer.tracking"
JUDGE = "refblend.scoring.generative"
DAY = 86400.0
LIGHT = ("actor_rollout_ref.rollout.name=hf", "algorithm.ref_quality_score.enable=false")
"""No vLLM, no judge."""


TARGETS = (
    f"{WORKERS}:ActorWorker.loss",
    f"{WORKERS}:ActorWorker.compute_log_prob",
    f"{WORKERS}:ActorWorker.update",
    f"{WORKERS}:ReferenceWorker.compute_log_prob",
    f"{ENGINE_WORKERS}:JudgeWorker.__init__",
    f"{ENGINE_WORKERS}:RolloutWorker.generate",
    f"{ENGINE_WORKERS}:RolloutWorker.load_weights",
    f"{TRAINER}:RayPPOTrainer._save",
    f"{TRAINER}:write_rollouts",
    f"{TRACKING}:MetricsLog.append",
    f"{JUDGE}:GenerativeJudge._generate",
    "refblend.scoring.judge:RequestJudge._result",
    "refblend.trainer.checkpoint:write_manifest",
    "refblend.trainer.trackers:Trackers.log",
    "refblend.workers.distributed:clip_gradients",
    "refblend.workers.distributed:save_optimizer",
    "saboteur:reward",
)
"""All functions that the tests below let misbehave."""


@pytest.mark.parametrize("target", TARGETS)
def test_the_function_to_sabotage_exists(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most tests that need it are slow: a name that has changed is found here."""
    monkeypatch.syspath_prepend(SABOTAGE.parent)
    assert callable(pkgutil.resolve_name(target))


def sabotage(run, target: str, fault: str, calls: str) -> dict[str, str]:
    """The environment of a run in which ``fault`` strikes."""
    assert target in TARGETS
    (run.directory.parent / f"{run.directory.name}.calls").unlink(missing_ok=True)
    return {
        "PYTHONPATH": os.pathsep.join([str(SABOTAGE), str(SABOTAGE.parent)])
        + os.pathsep
        + os.environ.get("PYTHONPATH", ""),
        "SABOTAGE": target,
        "SABOTAGE_FAULT": fault,
        "SABOTAGE_CALLS": calls,
        "SABOTAGE_FOLDER": str(run.directory),
    }


@pytest.fixture
def record(record_property: Callable[[str, object], None]) -> Callable[..., None]:
    """``record(target, fault, when, outcome, status)``: a row for the table of ``make chaos``."""

    def note(target: str, fault: str, when: str, outcome: str, status: int) -> None:
        row = {"target": target, "fault": fault, "when": when, "outcome": outcome, "status": status}
        for name, value in row.items():
            record_property(name, value)

    return note


def assert_same(run, undisturbed, ignore: tuple[str, ...] = ()) -> None:
    """Metrics (timings and ``ignore`` aside), responses and weights."""

    def lines(of) -> list[str]:
        kept = [{k: v for k, v in m.items() if k not in ignore} for m in of.metrics()]
        return [json.dumps(record) for record in kept]

    assert lines(run) == lines(undisturbed)
    for step in range(1, LAST + 1):
        assert run.rollouts(step) == undisturbed.rollouts(step)
    assert run.weights(LAST) == undisturbed.weights(LAST)


def assert_resumes(run, undisturbed) -> str:
    """The same command finishes the run as if nothing had been; its output."""
    again = run.train()
    assert again.status == 0, again.output
    assert_same(run, undisturbed)
    return again.output


def assert_stopped(run, ended, *words: str) -> str:
    """An error of ours in the last line, no traceback, and no damaged checkpoint; the line."""
    assert ended.status == 2, ended.output
    message = ended.output.splitlines()[-1]
    assert message.startswith("error: "), ended.output
    assert "Traceback" not in ended.output
    for word in words:
        assert word in message
    assert_whole(run)
    return message


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
    ended = run.train()
    assert ended.status == 0, ended.output
    return run


@pytest.fixture
def small_disk(make_light) -> Iterator:
    """``small_disk(*overrides)`` → a light run whose directory is a file system of 48 MB."""
    mounted: list[Path] = []

    def make(*overrides: str):
        run = make_light(*overrides)
        run.directory.mkdir(parents=True)
        command = ["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", str(run.directory)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            pytest.skip("may not mount file systems here; try it below `unshare -rm`")
        mounted.append(run.directory)
        return run

    yield make
    for path in mounted:
        while path.is_mount():
            subprocess.run(["umount", "-l", str(path)], check=True)


# --- the disk --------------------------------------------------------------------------------

FULL = {
    "first checkpoint": (f"{TRAINER}:RayPPOTrainer._save", "1"),
    "optimiser's state of a checkpoint": ("refblend.workers.distributed:save_optimizer", "1"),
    "manifest of the second checkpoint": ("refblend.trainer.checkpoint:write_manifest", "2"),
    "responses between checkpoints": (f"{TRAINER}:write_rollouts", "3"),
    "metrics before a checkpoint": (f"{TRACKING}:MetricsLog.append", "2"),
    "metrics after a checkpoint": (f"{TRACKING}:MetricsLog.append", "3"),
    "metrics after the last checkpoint": (f"{TRACKING}:MetricsLog.append", "5"),
    "trackers": ("refblend.trainer.trackers:Trackers.log", "2"),
}


@pytest.mark.slow
@pytest.mark.parametrize("when", FULL)
def test_a_full_disk(small_disk, light, when: str, record) -> None:
    run = small_disk()
    target, call = FULL[when]
    ended = run.train(**sabotage(run, target, "full_disk", call))
    message = assert_stopped(run, ended, str(run.directory), "ree some space")
    assert "full" in message
    (run.directory / "filler").unlink()
    assert_resumes(run, light)
    record("run directory", "full disk", when, "stopped with our error, resumed", ended.status)


def test_a_read_only_directory_before_the_start(small_disk, record) -> None:
    run = small_disk()
    subprocess.run(["mount", "-o", "remount,ro", str(run.directory)], check=True)
    ended = run.train()
    assert_stopped(run, ended, str(run.directory), "read-only", "Make it writable")
    record("run directory", "read-only", "before the start", "stopped with our error", ended.status)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("when", "target", "call"),
    [
        ("checkpoint", f"{TRAINER}:RayPPOTrainer._save", "2"),
        ("metrics", f"{TRACKING}:MetricsLog.append", "4"),
    ],
)
def test_a_directory_that_becomes_read_only(
    small_disk, light, when: str, target: str, call: str, record
) -> None:
    run = small_disk()
    ended = run.train(**sabotage(run, target, "read_only", call))
    assert_stopped(run, ended, str(run.directory))
    subprocess.run(["umount", str(run.directory)], check=True)
    assert_resumes(run, light)
    record("run directory", "read-only", when, "stopped with our error, resumed", ended.status)


@pytest.mark.slow
def test_a_truncated_checkpoint_is_passed_over(make_light, light, record) -> None:
    """One of the files; test_checkpoint.py cuts all of them, at every tenth of their length."""
    run = make_light()
    assert run.train().status == 0
    # As a kill before the summary leaves it; a finished run is not trained again.
    (run.directory / "summary.json").unlink()
    state = run.directory / "checkpoints" / f"global_step_{LAST}" / "actor" / "optimizer.pt"
    os.truncate(state, state.stat().st_size // 2)
    ended = run.train()
    assert ended.status == 0, ended.output
    assert "resumed from step 2" in ended.output
    assert_same(run, light)
    record("checkpoint", "truncated", "before a resume", "resumed from the one before", 0)


# --- the clock -------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("jump", "seconds"), [("+1 day", DAY), ("-1 day", -DAY), ("to 1970", 1e6 - time.time())]
)
def test_a_clock_that_jumps(make_run, undisturbed, jump: str, seconds: float, record) -> None:
    run = make_run("trainer.energy=true")
    after = run.directory / "rollouts" / "1.jsonl"
    ended = run.train(
        PYTHONPATH=os.pathsep.join(
            [str(SABOTAGE), str(SABOTAGE.parent), os.environ.get("PYTHONPATH", "")]
        ),
        SABOTAGE_CLOCK=str(seconds),
        SABOTAGE_CLOCK_AFTER=str(after),
    )
    assert ended.status == 0, ended.output
    assert_same(run, undisturbed)
    for line in (run.directory / "metrics.jsonl").read_text().splitlines():
        times = {k: v for k, v in json.loads(line).items() if k.startswith("timing_s/")}
        assert all(0 <= v < 600 for v in times.values()), times
    provenance = json.loads((run.directory / "provenance.json").read_text())
    assert 0 < provenance["totals"]["wall_time_s"] < 600
    record("clock", jump, "step 2", "went on", ended.status)


# --- memory ----------------------------------------------------------------------------------

ENGINES = {
    "rollout engine": (f"{ENGINE_WORKERS}:RolloutWorker.generate", "rollout"),
    "judge's engine": (f"{JUDGE}:GenerativeJudge._generate", "judge"),
}


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_that_runs_out_of_memory_once(make_run, undisturbed, engine: str, record) -> None:
    run = make_run()
    target, role = ENGINES[engine]
    ended = run.train(**sabotage(run, target, "out_of_memory", "3"))
    assert ended.status == 0, ended.output
    assert f"the {role} worker ran out of memory: CUDA out of memory" in ended.output
    assert sum(incidents(run, "oom")) == 1
    assert_same(run, undisturbed, ignore=("incidents/oom",))
    record(engine, "out of memory", "once", "replaced", ended.status)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_without_enough_memory(make_run, engine: str, record) -> None:
    run = make_run("trainer.max_restarts=1", "trainer.save_freq=1")
    target, role = ENGINES[engine]
    ended = run.train(**sabotage(run, target, "out_of_memory", "3+"))
    assert_stopped(run, ended, f"the {role} worker ran out of memory", "kv_cache_memory_mb")
    assert "it is replaced (1)" in ended.output
    assert (run.directory / "checkpoints" / "global_step_1").is_dir()
    record(engine, "out of memory", "always", "stopped with our error", ended.status)


@pytest.mark.slow
def test_an_engine_without_memory_at_its_start(make_run, record) -> None:
    run = make_run("trainer.max_restarts=0")
    ended = run.train(
        **sabotage(run, f"{ENGINE_WORKERS}:JudgeWorker.__init__", "out_of_memory", "1+")
    )
    assert_stopped(run, ended, "the judge worker ran out of memory", "kv_cache_memory_mb")
    record("judge's engine", "out of memory", "start", "stopped with our error", ended.status)


@pytest.mark.slow
def test_an_engine_whose_cache_holds_no_request(make_run, make_tiny_model, record) -> None:
    """vLLM's own refusal."""
    model = make_tiny_model(0, num_hidden_layers=8, num_key_value_heads=2)
    models = "actor_rollout_ref"
    run = make_run(f"{models}.model.path={model}", f"{models}.rollout.max_model_len=1024")
    ended = run.train(f"{models}.rollout.kv_cache_memory_mb=1")
    assert_stopped(run, ended, "vLLM does not start", "kv_cache_memory_mb")
    record("rollout engine", "cache too small", "start", "stopped with our error", ended.status)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["out_of_memory", "host_out_of_memory"])
def test_an_update_that_runs_out_of_memory(make_light, light, fault: str, record) -> None:
    """Half the micro-batch gives the same sums but for rounding."""
    run = make_light()
    ended = run.train(**sabotage(run, f"{WORKERS}:ActorWorker.loss", fault, "1"))
    assert ended.status == 0, ended.output
    assert "step 1: memory ran out in the actor's update" in ended.output
    assert incidents(run, "oom") == [1, 0, 0, 0]
    for ours, theirs in zip(run.metrics(), light.metrics(), strict=True):
        for metrics in (ours, theirs):
            metrics.pop("incidents/oom", None)  # step 0 has none
        assert ours == pytest.approx(theirs, rel=1e-3, abs=1e-4)
    record("actor", fault.replace("_", " "), "update", "went on with half a micro-batch", 0)


@pytest.mark.slow
def test_a_forward_pass_that_runs_out_of_memory(make_light, light, record) -> None:
    """The actor's state is doubtful then, so the run goes back to its last checkpoint."""
    run = make_light()
    target = f"{WORKERS}:ActorWorker.compute_log_prob"
    ended = run.train(**sabotage(run, target, "out_of_memory", "3"))
    assert ended.status == 0, ended.output
    assert "all workers start again (1)" in ended.output
    assert sum(incidents(run, "oom")) == 1
    assert_same(run, light, ignore=("incidents/oom",))
    record("actor", "out of memory", "log-probs", "went back to the checkpoint", ended.status)


# --- numbers ---------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "target"),
    [
        ("nan_loss", f"{WORKERS}:ActorWorker.loss"),
        ("nan_gradient", "refblend.workers.distributed:clip_gradients"),
    ],
)
def test_a_gradient_that_is_not_finite_is_skipped(
    make_light, light, fault: str, target: str, record
) -> None:
    run = make_light()
    ended = run.train(**sabotage(run, target, fault, "1"))
    assert ended.status == 0, ended.output
    assert "step 1: the actor's gradient is not finite; skipped: the update" in ended.output
    assert incidents(run, "nonfinite") == [1, 0, 0, 0]
    # What was computed before the update is the light run's.
    assert run.rollouts(1) == light.rollouts(1)
    assert run.weights(LAST) != light.weights(LAST)
    assert_whole(run)
    record("actor", fault.replace("_", " "), "once", "update skipped and counted", ended.status)


@pytest.mark.slow
def test_gradients_that_are_never_finite_stop_the_run(make_light, record) -> None:
    run = make_light("trainer.total_training_steps=6")
    ended = run.train(**sabotage(run, f"{WORKERS}:ActorWorker.loss", "nan_loss", "1+"))
    assert_stopped(run, ended, "the gradient of the actor was not finite in 5 steps in a row")
    assert incidents(run, "nonfinite") == [1] * 4
    record("actor", "nan loss", "always", "stopped with our error", ended.status)


NUMBERS = {
    "log-prob of the reference": (
        f"{WORKERS}:ReferenceWorker.compute_log_prob",
        "nan_matrix",
        "3",
        "the reference policy's log-probs",
    ),
    "log-prob of the actor": (
        f"{WORKERS}:ActorWorker.compute_log_prob",
        "nan_matrix",
        "3",
        "the actor's log-probs",
    ),
    "reward": ("saboteur:reward", "nan_reward", "60", "reward.custom_reward_function"),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", NUMBERS)
def test_a_number_that_is_not_finite_stops_the_run(make_light, light, what: str, record) -> None:
    run = make_light()
    target, fault, call, words = NUMBERS[what]
    ended = run.train(**sabotage(run, target, fault, call))
    assert_stopped(run, ended, words, "not finite")
    assert 0 < len(run.metrics()) <= LAST
    assert_resumes(run, light)
    record(what, "NaN", "once", "stopped with our error, resumed", ended.status)


@pytest.mark.slow
def test_a_judgement_that_is_not_finite_stops_the_run(make_run, undisturbed, record) -> None:
    """No parser gives one (tests/scoring); should it happen, no reward is made of it."""
    run = make_run()
    ended = run.train(
        **sabotage(run, "refblend.scoring.judge:RequestJudge._result", "nan_score", "40")
    )
    assert_stopped(run, ended, "the judge's scores are not finite")
    assert [m["step"] for m in run.metrics()] == [0, 1, 2]
    assert_resumes(run, undisturbed)
    record("judge's score", "NaN", "step 3", "stopped with our error, resumed", ended.status)


def test_a_reward_that_is_not_finite(make_light, record) -> None:
    """Already in the validation before training: nothing is recorded, nothing is left."""
    run = make_light()
    # The preflight tries one row of each of the three files first.
    ended = run.train(**sabotage(run, "saboteur:reward", "nan_reward", "4"))
    assert_stopped(run, ended, "reward.custom_reward_function", "not finite")
    assert not (run.directory / "metrics.jsonl").exists()
    record("reward", "NaN", "validation", "stopped with our error", ended.status)


# --- the rest --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "target", [f"{WORKERS}:ActorWorker.update", f"{ENGINE_WORKERS}:RolloutWorker.load_weights"]
)
def test_a_defect_in_a_worker_is_shown(make_light, light, target: str, record) -> None:
    run = make_light()
    ended = run.train(**sabotage(run, target, "defect", "3"))
    assert ended.status == 1, ended.output
    assert "KeyError: 'sabotage'" in ended.output
    assert_whole(run)
    assert "resumed from step 2" in assert_resumes(run, light)
    outcome = "stopped with a traceback, resumed"
    record(target.split(":")[1], "defect", "step 3", outcome, ended.status)


@pytest.mark.slow
def test_overlength_prompts_are_counted(make_run, record) -> None:
    scoring = "algorithm.ref_quality_score.scoring"
    caps = (f"{scoring}.max_model_len=null", f"{scoring}.fallback_max_length=110")
    run = make_run(f"{scoring}.hard_clip=false", *caps)
    ended = run.train("trainer.total_training_steps=2")
    assert ended.status == 0, ended.output
    counted = incidents(run, "overlength")
    assert sum(counted) > 0
    for step, count in enumerate(counted, start=1):
        assert count == sum(r["judge_path"] == "overlength" for r in run.rollouts(step))
    record("judge's prompts", "overlength", "every step", "counted", ended.status)
