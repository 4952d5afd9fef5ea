"""A run that is stopped anywhere loses nothing: the same numbers, the same weights."""

import json
import signal
import subprocess
import sys

import pytest
from ray._private import ray_constants

from refblend.trainer.checkpoint import find_damage

pytestmark = pytest.mark.engine

TWO_ENGINES = (
    "actor_rollout_ref.rollout.num_engines=2",
    "algorithm.ref_quality_score.scoring.num_engines=2",
)


def assert_same(run, undisturbed) -> None:
    """Every metric that is not a time, every response, every bit of the weights, the summary."""
    run.assert_same(undisturbed)
    assert run.weights(2) == undisturbed.weights(2)
    ours, theirs = run.summary(), undisturbed.summary()
    assert ours.pop("step_seconds_mean") > 0
    theirs.pop("step_seconds_mean")
    assert ours == theirs


@pytest.mark.slow  # `make chaos-short` kills and stops a driver in the same continuous integration
def test_a_driver_that_is_killed_and_stopped_resumes(make_run, undisturbed):
    """Between the two with another number of engines."""
    run = make_run("trainer.max_ckpt_to_keep=3")
    # SIGKILL in the middle of step 3: Ray's processes go with the driver, and the command tells.
    killed = run.train(SABOTEUR_TARGET="driver", SABOTEUR_AFTER="2")
    assert killed.status == 4, killed.output
    assert "error: signal SIGKILL ended the training process" in killed.output
    assert [m["step"] for m in run.metrics()] == [0, 1, 2]
    # SIGTERM at the same place: the step is finished and saved, and the status is the shell's.
    stopped = run.train(*TWO_ENGINES, SABOTEUR_TARGET="driver-term", SABOTEUR_AFTER="2")
    assert stopped.status == 128 + signal.SIGTERM, stopped.output
    assert "resumed from step 2" in stopped.output
    assert [m["step"] for m in run.metrics()] == [0, 1, 2, 3]
    assert find_damage(run.directory / "checkpoints" / "global_step_3") is None
    assert run.summary() == {"status": "stopped", "reason": "as asked, after step 3"}
    assert "resumed from step 3" in run.complete()
    assert_same(run, undisturbed)
    sessions = json.loads((run.directory / "provenance.json").read_text())["sessions"]
    assert [s["end"] is None for s in sessions] == [True, True, False]


WORKERS = ["RolloutWorker", "JudgeWorker", "ReferenceWorker", "ActorWorker", "driver"]


@pytest.mark.slow
@pytest.mark.parametrize("worker", WORKERS)
@pytest.mark.parametrize(("after", "delay"), [(0, 0), (2, 0), (0, 0.1), (0, 0.4), (0, 0.8)])
def test_a_death_in_any_stage_loses_nothing(make_run, undisturbed, worker, after, delay):
    """Where a late strike falls depends on the machine; that nothing is lost must not."""
    run = make_run()
    when = {"SABOTEUR_AFTER": str(after), "SABOTEUR_DELAY": str(delay)}
    ended = run.train(SABOTEUR_TARGET=worker, **when)
    if worker == "driver":
        assert ended.status == 4, ended.output
        ended = run.train()
    assert ended.status == 0, ended.output
    assert_same(run, undisturbed)
    if worker == "ActorWorker":
        assert "all workers start again (1)" in ended.output
        assert after == 0 or "resumed from step 2" in ended.output
    elif worker != "driver" and not delay:
        assert "worker died" in ended.output
        assert "it is replaced (1)" in ended.output
        assert "resumed" not in ended.output


@pytest.mark.slow
def test_the_death_of_one_of_two_training_ranks(make_run):
    """The other rank waits in a collective; it must not hang the run."""
    two = "actor_rollout_ref.actor.fsdp_config.world_size=2"
    undisturbed, run = make_run(two), make_run(two)
    undisturbed.complete()
    said = run.complete(SABOTEUR_TARGET="ActorWorker", SABOTEUR_AFTER="2", SABOTEUR_RANKS="1")
    assert "all workers start again (1)" in said
    assert_same(run, undisturbed)


@pytest.mark.slow
def test_an_existing_cluster_is_used_and_left_running(make_run, undisturbed):
    """The cluster's owner is a process of its own; the run brings only its token."""
    code = (
        "import os, sys, ray\n"
        "from refblend.config.trainer import RayConfig\n"
        "from refblend.workers.cluster import ray_cluster\n"
        "with ray_cluster(RayConfig(object_store_memory_mb=80), 6, 0):\n"
        "    address = ray.get_runtime_context().gcs_address\n"
        "    print(address, os.environ['RAY_AUTH_TOKEN_PATH'], flush=True)\n"
        "    sys.stdin.readline()\n"
        "    free = ray.available_resources()['CPU'] == ray.cluster_resources()['CPU']\n"
        "    print('free' if free else ray.available_resources(), flush=True)\n"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        address, token = owner.stdout.readline().split()
        run = make_run(f"ray.address={address}")
        # Our cluster listens on loopback alone; on a machine with a network Ray would call another.
        loopback = {ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR: "0"}
        run.complete(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN_PATH=token, **loopback)
        owner.stdin.write("\n")
        owner.stdin.flush()
        assert owner.stdout.readline().strip() == "free"
        assert owner.wait(60) == 0
    finally:
        owner.kill()
    assert_same(run, undisturbed)


STOPS = {
    # As SIGTERM does: the step is finished, saved and named; saving is due only at the end.
    "once": ({"DELAY": "0.1"}, ["trainer.save_freq=-1"], 1),
    # The grace is over while the step is not: the step before it is saved, weights unharmed.
    "given up": ({"STEPS": "1"}, ["trainer.save_freq=-1", "trainer.stop_grace_s=0.01"], 1),
    "twice": ({"TARGET": "driver-int-twice", "AFTER": "2"}, [], 2),
}
"""When Ctrl-C is pressed, settings, and the step that is saved."""


@pytest.mark.slow  # `make chaos-short` presses Ctrl-C and sends SIGTERM
@pytest.mark.parametrize("how", STOPS)
def test_ctrl_c_says_how_to_go_on_and_loses_nothing(make_run, undisturbed, how):
    strike, settings, step = STOPS[how]
    run = make_run(*settings)
    strike = {"TARGET": "driver-int", "AFTER": "0"} | strike
    stopped = run.train(**{f"SABOTEUR_{name}": value for name, value in strike.items()})
    assert stopped.status == 128 + signal.SIGINT, stopped.output
    told = f"{run.directory}: stopped after step {step}; the same command continues"
    assert told in stopped.output
    assert [m["step"] for m in run.metrics()] == list(range(step + 1))
    assert find_damage(run.directory / "checkpoints" / f"global_step_{step}") is None
    assert f"resumed from step {step}" in run.complete()
    run.assert_same(undisturbed)
