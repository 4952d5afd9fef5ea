"""The optimiser's accumulation, its schedule and what it survives, on a linear model."""

import copy
import math

import pytest
import torch
from torch import nn

from refblend.config.actor_rollout_ref import ActorConfig, FsdpConfig, OptimConfig
from refblend.workers.ranks import Trainable, learning_rate, mean_over_steps

ROWS = 8
LENGTHS = [1] * ROWS


class Problem:
    """Least squares on 8 rows; the loss of some rows is their share of the whole sum."""

    def __init__(self, **config) -> None:
        rng = torch.Generator().manual_seed(0)
        self.inputs = torch.randn(ROWS, 5, generator=rng)
        self.labels = torch.randn(ROWS, 2, generator=rng)
        self.network = nn.Linear(5, 2)
        with torch.no_grad():
            for parameter in self.network.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=rng))
        values = {"optim": OptimConfig(lr=0.01), "grad_clip": 1e6} | config
        self.trainable = Trainable(self.network, ActorConfig(**values), total_steps=10)

    def loss_of(self, rows: list[int]) -> tuple[torch.Tensor, dict[str, float]]:
        error = self.network(self.inputs[rows]) - self.labels[rows]
        loss = (error**2).sum() / ROWS
        return loss, {"loss": float(loss.detach()), "rows": float(len(rows))}

    def parameters(self) -> list[torch.Tensor]:
        return [p.detach().clone() for p in self.network.parameters()]


def assert_equal(ours, theirs, atol=1e-6) -> None:
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, atol=atol, rtol=0)


def test_an_empty_micro_batch_adds_nothing():
    whole, parts = Problem(), Problem()
    whole.trainable.step([list(range(ROWS))], whole.loss_of, 1, LENGTHS)
    metrics = parts.trainable.step([list(range(ROWS)), [], []], parts.loss_of, 1, LENGTHS)
    assert metrics["rows"] == ROWS
    assert_equal(parts.parameters(), whole.parameters(), 0)


OUT_OF_MEMORY = [
    torch.OutOfMemoryError("CUDA out of memory"),
    RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."),
    MemoryError(),
]


@pytest.mark.parametrize("error", OUT_OF_MEMORY, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize(("fits", "ooms"), [(4, 1), (2, 2), (1, 3)])
def test_memory_running_out_halves_the_micro_batches(fits, ooms, error):
    whole, short = Problem(), Problem()
    # The first micro-batch fits: its gradient must not be counted twice.
    micro = [[0], list(range(1, ROWS))]

    def loss_of(rows: list[int]) -> tuple[torch.Tensor, dict[str, float]]:
        if len(rows) > fits:
            raise error
        return short.loss_of(rows)

    for step in (1, 2):
        whole.trainable.step(micro, whole.loss_of, step, LENGTHS)
        metrics = short.trainable.step(micro, loss_of, step, LENGTHS)
        assert metrics["oom"] == (ooms if step == 1 else 0), "what fitted is kept"
        assert metrics["rows"] == ROWS
    assert_equal(short.parameters(), whole.parameters())


@pytest.mark.parametrize(
    ("ranks", "error", "tried"),
    [
        (1, torch.OutOfMemoryError("out of memory"), [4, 2, 1]),
        (2, torch.OutOfMemoryError("a rank of a group does not retry alone"), [4]),
        (1, RuntimeError("mat1 and mat2 shapes cannot be multiplied"), [4]),
    ],
)
def test_what_no_smaller_micro_batch_mends_is_an_error(ranks, error, tried):
    problem = Problem(fsdp_config=FsdpConfig(world_size=ranks))
    calls = []

    def loss_of(rows: list[int]) -> tuple[torch.Tensor, dict[str, float]]:
        calls.append(len(rows))
        raise error

    with pytest.raises(type(error)):
        problem.trainable.step([[0, 1, 2, 3]], loss_of, 1, LENGTHS)
    assert calls == tried


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_non_finite_gradient_skips_the_update(bad):
    problem, undisturbed = Problem(), Problem()
    problem.trainable.step([list(range(ROWS))], problem.loss_of, 1, LENGTHS)
    undisturbed.trainable.step([list(range(ROWS))], undisturbed.loss_of, 1, LENGTHS)
    before = problem.parameters()
    state = copy.deepcopy(problem.trainable.optimizer.state_dict()["state"])

    def loss_of(rows: list[int]) -> tuple[torch.Tensor, dict[str, float]]:
        loss, metrics = problem.loss_of(rows)
        return loss * bad, metrics

    metrics = problem.trainable.step([[0, 1], [2, 3]], loss_of, 2, LENGTHS)
    assert not math.isfinite(metrics["grad_norm"])
    assert metrics["nonfinite"] == 1.0
    assert_equal(problem.parameters(), before, 0)
    after = problem.trainable.optimizer.state_dict()["state"]
    for name, values in state.items():
        assert all(torch.equal(v, after[name][k]) for k, v in values.items())
    # Nothing of it is left in the next update.
    problem.trainable.step([list(range(ROWS))], problem.loss_of, 3, LENGTHS)
    undisturbed.trainable.step([list(range(ROWS))], undisturbed.loss_of, 3, LENGTHS)
    assert_equal(problem.parameters(), undisturbed.parameters(), 0)


def test_learning_rate_schedule():
    constant = OptimConfig(lr=0.4, lr_warmup_steps=4)
    rates = [learning_rate(constant, step, 10) for step in range(1, 11)]
    assert rates == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4])
    assert learning_rate(OptimConfig(lr=0.4), 1, 10) == 0.4
    cosine = OptimConfig(lr=0.4, lr_warmup_steps=2, lr_scheduler_type="cosine")
    rates = [learning_rate(cosine, step, 10) for step in range(1, 13)]
    assert rates[:3] == pytest.approx([0.2, 0.4, 0.4])
    expected = [0.2 * (1 + math.cos(math.pi * k / 8)) for k in range(8)]
    assert rates[2:10] == pytest.approx(expected)
    assert rates[10:] == pytest.approx([0.0, 0.0])  # beyond the plan it stays at zero
    assert learning_rate(OptimConfig(lr=0.4, lr_warmup_steps=9), 3, 5) == pytest.approx(0.4 / 3)


def test_the_step_uses_the_rate_of_the_training_step():
    problem = Problem(optim=OptimConfig(lr=0.4, lr_warmup_steps=4))
    for step, rate in ((1, 0.1), (3, 0.3), (9, 0.4)):
        before = problem.parameters()
        metrics = problem.trainable.step([list(range(ROWS))], problem.loss_of, step, LENGTHS)
        assert metrics["lr"] == pytest.approx(rate)
        if step == 1:  # AdamW's first update is rate · sign(gradient)
            moves = [(a - b).abs() for a, b in zip(problem.parameters(), before, strict=True)]
            assert_equal(moves, [torch.full_like(m, rate) for m in moves], 1e-4)


def test_mean_over_steps():
    def step(loss: float, oom: float = 0.0, nonfinite: float = 0.0) -> dict[str, float]:
        return {"loss": loss, "grad_norm": 2 * loss, "oom": oom, "nonfinite": nonfinite}

    assert mean_over_steps([]) == {}
    assert mean_over_steps([step(1.0, oom=1.0), step(3.0, oom=2.0)]) == step(2.0, oom=3.0)
    lost = step(math.nan, nonfinite=1.0)
    assert mean_over_steps([step(1.0), lost, step(3.0), lost]) == step(2.0, nonfinite=2.0)
    none = mean_over_steps([lost, lost])
    assert math.isnan(none["grad_norm"])
    assert none["nonfinite"] == 2.0
