"""A process group of one rank, as on one GPU: here with gloo on the CPU."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from refblend.config.actor_rollout_ref import ActorConfig, FsdpConfig
from refblend.errors import WorkerError
from refblend.workers import distributed
from refblend.workers.fsdp_workers import ActorWorker
from refblend.workers.layout import pad_batch
from refblend.workers.networks import PolicyNetwork, load_policy
from refblend.workers.ranks import Trainable
from refblend.workers.restarts import RestartBudget, WorkerDiedError, WorkerMemoryError
from refblend.workers.types import Sequences

SEQUENCES = Sequences([[5, 6, 7], [8, 9], [5, 6], [10, 11, 12]], [[4, 5], [6], [7, 8], [9, 4, 5]])
ROWS = [[0, 1], [2, 3]]


@pytest.fixture
def group() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def update(
    model: Path, dtype: str, fail: str = ""
) -> tuple[PolicyNetwork, dict[str, Tensor], dict[str, float]]:
    """One update; with ``fail`` memory runs out once, in the second micro-batch."""
    fsdp = FsdpConfig.model_validate({"param_dtype": dtype})
    network = distributed.shard(load_policy(str(model), 1.0), fsdp)
    config = ActorConfig.model_validate({"fsdp_config": {"param_dtype": dtype}})
    failures = [fail] if fail else []

    class Shortage(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: Tensor) -> Tensor:
            return x

        @staticmethod
        def backward(ctx: object, grad: Tensor) -> Tensor:
            if failures == ["backward"]:
                failures.clear()
                raise MemoryError
            return grad

    def hook(module: object, inputs: object, output: Tensor) -> Tensor:
        if failures == ["forward"]:
            failures.clear()
            raise MemoryError
        return Shortage.apply(output)

    def loss(rows: list[int]) -> tuple[Tensor, dict[str, float]]:
        if rows == ROWS[1]:
            network.lm.model.layers[0].mlp.register_forward_hook(hook)
        log_probs, _ = network(pad_batch(SEQUENCES, rows, torch.device("cpu")))
        return -log_probs.sum() / 8, {}

    metrics = Trainable(network, config, 1).step(ROWS, loss, 1, SEQUENCES.lengths)
    return network, distributed.full_state(network), metrics


def test_it_updates_as_a_process_without_a_group(tiny_model_dir, group):
    sharded = update(tiny_model_dir, "float32")
    dist.destroy_process_group()
    plain = update(tiny_model_dir, "float32")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    assert sharded[2]["grad_norm"] == pytest.approx(plain[2]["grad_norm"], rel=1e-5)
    for name, tensor in plain[1].items():
        torch.testing.assert_close(sharded[1][name], tensor)


def test_it_computes_in_bfloat16_with_float32_master_weights(tiny_model_dir, group):
    network, state, metrics = update(tiny_model_dir, "bfloat16")
    assert {tensor.dtype for tensor in state.values()} == {torch.float32}
    assert {p.dtype for p in network.parameters()} == {torch.float32}
    seen: list[torch.dtype] = []
    network.lm.model.layers[0].mlp.gate_proj.register_forward_hook(
        lambda module, inputs, output: seen.append(output.dtype)
    )
    network(pad_batch(SEQUENCES, [0], torch.device("cpu")))
    assert seen == [torch.bfloat16]
    exact = update(tiny_model_dir, "float32")[2]
    assert metrics["grad_norm"] == pytest.approx(exact["grad_norm"], rel=0.05)


@pytest.mark.parametrize("where", ["forward", "backward"])
def test_it_goes_on_after_memory_ran_out(tiny_model_dir, group, where):
    """A pass that was broken off leaves FSDP2's state half way."""
    _, state, metrics = update(tiny_model_dir, "float32", where)
    _, expected, clean = update(tiny_model_dir, "float32")
    assert (metrics["oom"], clean["oom"]) == (1, 0)
    assert metrics["grad_norm"] == pytest.approx(clean["grad_norm"], rel=1e-5)
    for name, tensor in expected.items():
        torch.testing.assert_close(state[name], tensor)


def test_one_rank_on_cuda_forms_a_group_and_one_on_the_cpu_does_not(tiny_config, monkeypatch):
    formed: list[str] = []
    monkeypatch.setattr(dist, "init_process_group", lambda backend, **_: formed.append(backend))
    for gpus in (0.0, 0.4, 1.0):
        fsdp = FsdpConfig(num_gpus_per_worker=gpus)
        distributed.init_process_group(0, fsdp, "", tiny_config())
    assert formed == ["nccl", "nccl"]


def test_frozen_weights_are_in_bfloat16_and_buffers_are_not(tiny_model_dir, group):
    fsdp = FsdpConfig(param_dtype="bfloat16")
    frozen = distributed.shard(load_policy(str(tiny_model_dir), 1.0).requires_grad_(False), fsdp)
    assert {p.dtype for p in frozen.parameters()} == {torch.bfloat16}
    assert not any(p.requires_grad for p in frozen.parameters())
    assert torch.bfloat16 not in {b.dtype for b in frozen.buffers()}


def test_the_base_of_an_adapter_is_in_bfloat16_and_the_adapter_in_float32(
    training_config, sequences, targets, plan, group
):
    """Log-probs are those of a base in float32, since FSDP2 computes in bfloat16 either way."""
    key = "actor_rollout_ref"
    lora = [f"{key}.model.lora_rank=3", f"{key}.actor.fsdp_config.param_dtype=bfloat16"]
    worker = ActorWorker(training_config(*lora), 9)
    policy = load_policy(worker.model_path, worker.temperature, **worker.loading)
    whole = distributed.shard(policy, worker.fsdp)  # trained, so float32
    batch = pad_batch(sequences, [0, 1], torch.device("cpu"))
    with torch.no_grad():
        for own, other in zip(worker.network(batch), whole(batch), strict=True):
            assert torch.equal(own, other)
    metrics = worker.update(sequences, targets[0], plan(sequences, worker.config)[0], 1)
    assert 0 < metrics["grad_norm"] < float("inf")
    for name, parameter in worker.network.named_parameters():
        adapter = ".lora_" in name
        assert parameter.dtype == (torch.float32 if adapter else torch.bfloat16)
        assert (parameter.grad is not None) <= adapter
    assert {tensor.dtype for tensor in worker.full_weights().values()} == {torch.float32}


def test_a_role_that_runs_out_of_memory_twice_is_not_started_again():
    budget = RestartBudget(5)
    budget.spend(WorkerMemoryError("judge", "CUDA out of memory"))
    budget.spend(WorkerDiedError("judge", "killed"))
    budget.spend(WorkerMemoryError("actor", "CUDA out of memory"))
    with pytest.raises(WorkerError, match=r"judge .* for the second time") as error:
        budget.spend(WorkerMemoryError("judge", "CUDA out of memory"))
    assert "gpu_memory_utilization" in str(error.value)
