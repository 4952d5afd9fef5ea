"""The record of one training step: the seconds of its stages, and its metrics.

Every name is defined in docs/reference/metrics.md.
"""

import contextlib
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import psutil
import torch
from torch import Tensor

from refblend.config import RefblendConfig
from refblend.lifecycle.devices import device_memory
from refblend.ppo.metrics import explained_variance
from refblend.trainer.batch import Advantages, Experience, Rollout
from refblend.workers.placement import processes_of, totals
from refblend.workers.roles import ACTOR, ROLLOUT
from refblend.workers.types import COUNTS

INCIDENTS = ("oom", "nonfinite", "overlength", "drift", "reward_error")
"""Counted by the trainer itself, so that they are there in every step."""


def all_lost(metrics: Mapping[str, float]) -> bool:
    """Whether no update of a step was made; one whose gradient is not finite is skipped."""
    return not math.isfinite(metrics["grad_norm"])


def update_notices(role: str, metrics: Mapping[str, float]) -> list[str]:
    """The user's messages about an update with problems, see :meth:`StepRecord.add_update`."""
    notices = []
    if metrics["oom"]:
        notices.append(
            f"memory ran out in the {role}'s update; it was repeated with half the tokens in a "
            f"micro-batch ({metrics['oom']:g} times halved)"
        )
    if metrics["nonfinite"]:
        count = f"{metrics['nonfinite']:g} of the step's updates"
        lost = "the update" if all_lost(metrics) else count
        notices.append(f"the {role}'s gradient is not finite; skipped: {lost}")
    return notices


@dataclass
class StepRecord:
    """Filled by the stages of a step in their order."""

    metrics: dict[str, float] = field(
        default_factory=lambda: {f"incidents/{name}": 0.0 for name in INCIDENTS}
    )
    seconds: dict[str, float] = field(default_factory=dict)
    """Wall time of each stage; those that run side by side overlap."""

    @contextlib.contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Measure the block as the stage ``name``."""
        start = time.monotonic()
        yield
        self.seconds[name] = time.monotonic() - start

    def add_update(self, role: str, metrics: Mapping[str, float]) -> None:
        """Add an update's metrics, and its incidents; of memory the larger of the two roles'."""
        for name in COUNTS:
            self.metrics[f"incidents/{name}"] += metrics[name]
        for name, value in metrics.items():
            if name.startswith("perf/"):
                self.metrics[name] = max(value, self.metrics.get(name, 0.0))
            elif name not in COUNTS:
                self.metrics[f"{role}/{name}"] = value


def spread(prefix: str, values: Tensor) -> dict[str, float]:
    """Mean, largest and smallest value; empty without values (all responses empty)."""
    if values.numel() == 0:
        return {}
    return {
        f"{prefix}/mean": float(values.float().mean()),
        f"{prefix}/max": float(values.max()),
        f"{prefix}/min": float(values.min()),
    }


def data_metrics(
    rollout: Rollout, experience: Experience, advantages: Advantages
) -> dict[str, float]:
    """``critic/*``, ``response_length/*`` and ``prompt_length/*`` of a batch."""
    mask = rollout.response_mask.bool()
    lengths = mask.sum(-1)
    metrics = (
        spread("critic/score", experience.rule)
        | spread("critic/rewards", advantages.token_level_rewards.sum(-1))
        | spread("critic/advantages", advantages.advantages[mask])
        | spread("critic/returns", advantages.returns[mask])
        | spread("response_length", lengths)
        | spread("prompt_length", torch.tensor([len(p) for p in rollout.sequences.prompt_ids]))
    )
    metrics["response_length/clip_ratio"] = 1.0 - sum(rollout.finished) / len(rollout.finished)
    metrics["critic/acc/mean"] = float(experience.accuracy.mean())
    if experience.values is not None:
        metrics |= spread("critic/values", experience.values[mask])
        explained = explained_variance(experience.values, advantages.returns, rollout.response_mask)
        if explained is not None:
            metrics["critic/vf_explained_var"] = explained
    return metrics


def training_devices(config: RefblendConfig) -> int:
    """GPUs of actor and rollout engines, the divisor of throughput; 1 on the CPU."""
    names = (ACTOR.name, ROLLOUT.name)
    return max(1, totals([p for p in processes_of(config) if p.role in names])[1])


def memory_metrics() -> dict[str, float]:
    """Memory in GiB: resident, of the driver and the processes below it; and on visible GPUs."""
    driver, host = psutil.Process(), 0
    for process in [driver, *driver.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            host += process.memory_info().rss
    found = {"perf/cpu_memory_used_gb": host / 2**30}
    gpus = range(torch.cuda.device_count() if torch.cuda.is_available() else 0)
    names = [f"GPU-{torch.cuda.get_device_properties(number).uuid}" for number in gpus]
    used = device_memory("used") if names else {}
    if not names or not used.keys() >= set(names):  # no GPU, or NVML says nothing about it
        return found
    return found | {"perf/gpu_memory_used_gb": sum(used[name] for name in names) / 2**30}


def timing_metrics(
    seconds: Mapping[str, float], rollout: Rollout, num_devices: int
) -> dict[str, float]:
    """``timing_s/*`` and ``perf/*``; throughput is tokens per second and device."""
    tokens = sum(rollout.sequences.lengths)
    step = seconds["step"]
    return {f"timing_s/{name}": value for name, value in seconds.items()} | {
        "perf/total_num_tokens": float(tokens),
        "perf/time_per_step": step,
        "perf/throughput": tokens / step / num_devices,
    }
