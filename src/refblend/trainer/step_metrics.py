"""The metrics of a step that are computed from its tensors.

Every name is defined in docs/reference/metrics.md.
"""

import contextlib
from collections.abc import Mapping

import psutil
import torch
from torch import Tensor

from refblend.config import RefblendConfig
from refblend.ppo.metrics import explained_variance
from refblend.trainer.batch import Advantages, Experience, Rollout


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
    """GPUs of actor and rollout engine, the divisor of throughput; 1 on the CPU."""
    models = config.actor_rollout_ref
    fsdp = models.actor.fsdp_config
    return max(1, round(fsdp.world_size * fsdp.num_gpus_per_worker + models.rollout.num_gpus))


def memory_metrics() -> dict[str, float]:
    """Resident memory of the driver and its worker processes, shared pages counted in each."""
    driver = psutil.Process()
    total = 0
    for process in (driver, *driver.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            total += process.memory_info().rss
    return {"perf/cpu_memory_used_gb": total / 2**30}


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
