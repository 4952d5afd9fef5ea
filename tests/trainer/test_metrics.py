"""The metrics of a step, by hand."""

import math

import pytest
import torch

from refblend.trainer.batch import Advantages, Experience, Rollout
from refblend.trainer.step_metrics import data_metrics, timing_metrics
from refblend.workers.types import LogProbs, Sequences, response_mask

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
        old=LogProbs(MASK, MASK),
        values=values,
    )


ADVANTAGES = Advantages(
    token_level_rewards=torch.tensor([[0.1, 0.1, 1.0], [0.2, 0.0, 0.0]]),
    advantages=torch.tensor([[1.0, 2.0, 3.0], [-2.0, 0.0, 0.0]]) + JUNK,
    returns=torch.tensor([[4.0, 4.0, 4.0], [0.0, 0.0, 0.0]]) + JUNK,
)


def test_a_batch_by_hand() -> None:
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


def test_a_critic_adds_its_values() -> None:
    values = torch.tensor([[3.0, 4.0, 5.0], [0.0, 0.0, 0.0]]) + JUNK
    metrics = data_metrics(rollout(), experience(values), ADVANTAGES)
    assert metrics["critic/values/mean"] == pytest.approx(3.0)
    # residuals 1, 0, −1, 0 and returns 4, 4, 4, 0: 1 − var(residuals)/var(returns) = 1 − 2/12
    assert metrics["critic/vf_explained_var"] == pytest.approx(1 - 2 / 12, rel=1e-3)


def test_timings() -> None:
    metrics = timing_metrics({"step": 2.0, "gen": 0.5}, rollout(), num_devices=5)
    assert metrics == {
        "timing_s/step": 2.0,
        "timing_s/gen": 0.5,
        "perf/total_num_tokens": 10.0,
        "perf/time_per_step": 2.0,
        "perf/throughput": 1.0,
    }
    assert all(math.isfinite(v) for v in metrics.values())
