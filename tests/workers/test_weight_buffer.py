"""What engines read is what the actor packed; nothing outlives the actor's process."""

import multiprocessing
import signal
from pathlib import Path

import pytest
import torch

from refblend.workers.weight_buffer import MappedWeights, WeightBuffer

WEIGHTS = {
    "a.weight": torch.randn(3, 5, generator=torch.Generator().manual_seed(1)),
    "b.weight": torch.randn(7, generator=torch.Generator().manual_seed(2)),
    "c.weight": torch.randn(32, 16, generator=torch.Generator().manual_seed(3)),
    "d.weight": torch.randn(8, 16, generator=torch.Generator().manual_seed(4)),
}


def equal(found, expected) -> bool:
    return found.keys() == expected.keys() and all(
        torch.equal(found[name], tensor) for name, tensor in expected.items()
    )


def test_views_are_the_rounded_weights_and_follow_the_next_push():
    for dtype in (torch.float32, torch.bfloat16):
        buffer, engine = WeightBuffer(), MappedWeights()
        packed = buffer.pack(WEIGHTS, dtype)
        assert equal(engine.tensors(packed, None), {k: v.to(dtype) for k, v in WEIGHTS.items()})
        doubled = {name: 2 * tensor for name, tensor in WEIGHTS.items()}
        again = buffer.pack(doubled, dtype)
        assert again == packed
        assert equal(engine.tensors(again, None), {k: v.to(dtype) for k, v in doubled.items()})


def test_bytes_for_another_machine_hold_the_same_weights():
    buffer = WeightBuffer()
    packed = buffer.pack(WEIGHTS, torch.bfloat16)
    received = buffer.bytes().copy()
    received.setflags(write=False)  # as Ray hands arrays out
    buffer.pack({name: torch.zeros_like(tensor) for name, tensor in WEIGHTS.items()}, packed.dtype)
    found = MappedWeights().tensors(packed, received)
    assert equal(found, {k: v.bfloat16() for k, v in WEIGHTS.items()})


def test_tensors_begin_at_cache_lines_and_fused_ones_join_without_a_gap():
    packed = WeightBuffer().pack(WEIGHTS, torch.bfloat16)
    assert [offset for offset, _ in packed.places.values()] == [0, 64, 128, 128 + 32 * 16 * 2]
    assert packed.size == 128 + 40 * 16 * 2


def test_an_engine_maps_anew_when_the_actor_is_another():
    engine = MappedWeights()
    first = WeightBuffer()
    assert equal(engine.tensors(first.pack(WEIGHTS, torch.float32), None), WEIGHTS)
    del first
    other = {name: tensor + 1 for name, tensor in WEIGHTS.items()}
    second = WeightBuffer()  # may well get the same file descriptor
    assert equal(engine.tensors(second.pack(other, torch.float32), None), other)


def _actor(pipe) -> None:
    buffer = WeightBuffer()
    pipe.send(buffer.pack(WEIGHTS, torch.float32))
    signal.pause()


def test_another_process_reads_it_and_a_killed_actor_leaves_nothing():
    before = set(Path("/dev/shm").iterdir())
    context = multiprocessing.get_context("fork")  # spawn would import torch again
    here, there = context.Pipe()
    actor = context.Process(target=_actor, args=(there,))
    actor.start()
    assert here.poll(120)
    packed = here.recv()
    assert packed.path.startswith(f"/proc/{actor.pid}/")
    assert str(Path(packed.path).readlink()).startswith("/memfd:")  # a name in no file system
    engine = MappedWeights()
    assert equal(engine.tensors(packed, None), WEIGHTS)
    actor.kill()
    actor.join()
    assert equal(engine.tensors(packed, None), WEIGHTS)  # mapped: whole until the engine ends
    with pytest.raises(RuntimeError, match=packed.path):
        MappedWeights().tensors(packed, None)
    mine = {f for f in Path("/dev/shm").iterdir() if "refblend" in f.name}
    assert not mine - before
