"""The metrics of a step, by hand: of its batch, its updates, its times and its memory."""

import math
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from refblend.trainer import step_metrics
from refblend.trainer.batch import Advantages, Experience, Rollout
from refblend.trainer.step_metrics import StepRecord, data_metrics, memory_metrics, timing_metrics
from refblend.workers.types import Sequences, response_mask

MASK = response_mask([3, 1])
JUNK = (1 - MASK) * 99.0


def rollout() -> Rollout:
    return Rollout(
        sequences=Sequences([[1, 2], [1, 2, 3, 4]], [[5, 6, 7], [5]]),
        texts=["", ""],
        finished=[False, True],
        response_mask=MASK,
        log_probs=MASK,
    )


def experience(values: torch.Tensor | None = None) -> Experience:
    return Experience(
        rule=torch.tensor([1.0, 0.0]),
        accuracy=torch.tensor([1.0, 0.0]),
        quality=None,
        old_log_probs=MASK,
        entropy=MASK,
        values=values,
    )


ADVANTAGES = Advantages(
    token_level_rewards=torch.tensor([[0.1, 0.1, 1.0], [0.2, 0.0, 0.0]]),
    advantages=torch.tensor([[1.0, 2.0, 3.0], [-2.0, 0.0, 0.0]]) + JUNK,
    returns=torch.tensor([[4.0, 4.0, 4.0], [0.0, 0.0, 0.0]]) + JUNK,
)


def test_a_batch_by_hand():
    metrics = data_metrics(rollout(), experience(), ADVANTAGES)
    wanted = {
        "critic/score": (0.5, 1, 0),
        "critic/rewards": (0.7, 1.2, 0.2),
        "critic/advantages": (1.0, 3, -2),  # masked places do not count
        "critic/returns": (3.0, 4, 0),
        "response_length": (2.0, 3, 1),
        "prompt_length": (3.0, 4, 2),
    }
    flat = {
        f"{name}/{kind}": value
        for name, values in wanted.items()
        for kind, value in zip(("mean", "max", "min"), values, strict=True)
    }
    flat |= {"response_length/clip_ratio": 0.5, "critic/acc/mean": 0.5}
    assert metrics == pytest.approx(flat)


def test_a_critic_adds_its_values():
    values = torch.tensor([[3.0, 4.0, 5.0], [0.0, 0.0, 0.0]]) + JUNK
    metrics = data_metrics(rollout(), experience(values), ADVANTAGES)
    assert metrics["critic/values/mean"] == pytest.approx(3.0)
    # residuals 1, 0, −1, 0 and returns 4, 4, 4, 0: 1 − var(residuals)/var(returns) = 1 − 2/12
    assert metrics["critic/vf_explained_var"] == pytest.approx(1 - 2 / 12, rel=1e-3)


def test_timings():
    metrics = timing_metrics({"step": 2.0, "gen": 0.5}, rollout(), num_devices=5)
    assert metrics == {
        "timing_s/step": 2.0,
        "timing_s/gen": 0.5,
        "perf/total_num_tokens": 10.0,
        "perf/time_per_step": 2.0,
        "perf/throughput": 1.0,
    }


def test_updates_enter_under_their_role_and_incidents_add_up():
    record = StepRecord()
    assert record.metrics == {
        f"incidents/{k}": 0.0 for k in ("oom", "nonfinite", "overlength", "drift", "reward_error")
    }
    memory = "perf/max_memory_allocated_gb"
    lost, made = {"grad_norm": math.nan, "nonfinite": 3.0}, {"grad_norm": 0.5, "nonfinite": 0.0}
    record.add_update("critic", lost | {"oom": 1.0, "lr": 0.1, memory: 3.0})
    record.add_update("actor", made | {"oom": 2.0, "pg_loss": -1.0, memory: 2.0})
    found = record.metrics
    assert (found["incidents/oom"], found["incidents/nonfinite"]) == (3.0, 3.0)
    assert math.isnan(found.pop("critic/grad_norm"))
    assert {k: v for k, v in found.items() if not k.startswith("incidents/")} == {
        "critic/lr": 0.1,
        "actor/grad_norm": 0.5,
        "actor/pg_loss": -1.0,
        memory: 3.0,
    }


def test_a_stage_that_fails_has_no_time():
    record = StepRecord()
    with record.timed("gen"):
        pass
    with pytest.raises(KeyError), record.timed("adv"):
        raise KeyError
    assert set(record.seconds) == {"gen"}
    assert record.seconds["gen"] >= 0


SLEEP = "import time; x = bytearray({} * 2**20); print('up', flush=True); time.sleep(60)"


def test_the_memory_of_processes_below_the_driver_counts():
    before = memory_metrics()["perf/cpu_memory_used_gb"]
    child = [sys.executable, "-c", SLEEP.format(120)]
    with subprocess.Popen(child, stdout=subprocess.PIPE) as worker:
        assert worker.stdout.readline() == b"up\n"
        assert memory_metrics()["perf/cpu_memory_used_gb"] > before + 100 / 1024
        worker.kill()


@pytest.mark.parametrize("fails_in", ["nvmlInit", "nvmlDeviceGetCount"])
def test_a_driver_that_tells_nothing_costs_only_its_numbers(fails_in, monkeypatch):
    import pynvml

    def fail(*_: object) -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    for name in ("nvmlInit", "nvmlDeviceGetCount", "nvmlShutdown"):
        monkeypatch.setattr(pynvml, name, fail if name == fails_in else lambda *_: None)
    cuda = step_metrics.torch.cuda
    monkeypatch.setattr(cuda, "is_available", lambda: True)
    monkeypatch.setattr(cuda, "device_count", lambda: 1)
    monkeypatch.setattr(cuda, "get_device_properties", lambda _: SimpleNamespace(uuid="1"))
    found = memory_metrics()
    assert found["perf/cpu_memory_used_gb"] > 0
    assert not [name for name in found if "gpu" in name]
