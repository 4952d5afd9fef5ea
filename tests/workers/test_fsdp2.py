"""Ranks (gloo, FSDP2) do what one process does: forward passes, gradients, updates, saves.

Two ranks share the parameters; four hold two copies of them (HSDP), each shared by two.
The batch has seven rows of uneven lengths, one response empty, in mini-batches of four and three
rows: neither divides over two ranks in equal micro-batches.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
import yaml
from torch.distributed import TCPStore

from refblend.workers.types import merge_shards

pytestmark = pytest.mark.engine

SCRIPT = Path(__file__).with_name("fsdp_ranks.py")
DEADLINE_S = 240
SHARD_FILES = [".metadata", "__0_0.distcp", "__1_0.distcp"]
"""Of torch.distributed.checkpoint."""
LORA = ("actor_rollout_ref.model.lora_rank=3", "actor_rollout_ref.model.lora_alpha=6")


def run_group(
    folder: Path,
    ranks: int,
    resume_from: Path | None = None,
    replicas: int = 1,
    overrides: Sequence[str] = (),
) -> list[dict]:
    """Run all ranks to their end; what each wrote."""
    stores = [TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) for _ in range(3)]
    command = [sys.executable, str(SCRIPT), str(folder), "--ranks", str(ranks)]
    command += ["--replicas", str(replicas), "--overrides", *overrides]
    command += ["--ports", *(str(store.port) for store in stores)]
    if resume_from is not None:
        command += ["--resume-from", str(resume_from)]
    processes = [
        subprocess.Popen(
            [*command, "--rank", str(rank)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        for rank in range(ranks)
    ]
    try:
        outputs = [p.communicate(timeout=DEADLINE_S)[0].decode() for p in processes]
    finally:
        for process in processes:
            process.kill()
    assert not any(p.returncode for p in processes), "\n".join(outputs)
    files = [folder / f"found_{ranks}_{rank}.pt" for rank in range(ranks)]
    return [torch.load(file, weights_only=False) for file in files]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, rank_config, sequences, targets):
    """The configuration and the batch of all groups."""
    folder = tmp_path_factory.mktemp("fsdp")
    (folder / "config.yaml").write_text(yaml.safe_dump(rank_config))
    torch.save((sequences, *targets), folder / "case.pt")
    return folder


@pytest.fixture(scope="module")
def groups(folder):
    """What two ranks found, and what one process found that resumed from their save."""
    two = run_group(folder, 2)
    one = run_group(folder, 1, resume_from=folder / "ranks_2")
    return two, one[0]


@pytest.fixture(scope="module")
def hybrid(folder, groups):
    """The same, where two copies of two ranks each are compared."""
    return run_group(folder, 4, replicas=2), groups[1]


@pytest.fixture(scope="module")
def adapters(folder):
    """The same as ``groups`` with LoRA."""
    own = folder / "lora"
    own.mkdir()
    for name in ("config.yaml", "case.pt"):
        (own / name).symlink_to(folder / name)
    two = run_group(own, 2, overrides=LORA)
    return two, run_group(own, 1, resume_from=own / "ranks_2", overrides=LORA)[0]


def largest_difference(a: dict, b: dict) -> float:
    assert a.keys() == b.keys()
    return max(float((a[k] - b[k]).abs().max()) for k in a)


CASES = [("groups", "actor"), ("groups", "critic"), ("adapters", "actor")]
HYBRID = [pytest.param("hybrid", role, marks=pytest.mark.slow) for role in ("actor", "critic")]


def test_ranks_talk_over_loopback_and_the_case_is_uneven(groups):
    two, _ = groups
    assert [rank["interface"] for rank in two] == ["lo", "lo"]
    assert sum(rank["actor"]["empty"] for rank in two) > 0
    assert two[0]["actor"]["micro_batches"] == two[1]["actor"]["micro_batches"]


def assert_forward_passes_agree(ours: dict, theirs: dict, name: str, other: str = "") -> None:
    matrices = merge_shards(ours[name], 7), merge_shards(theirs[other or name], 7)
    pairs = zip(*matrices, strict=True)
    for a, b in pairs:
        torch.testing.assert_close(a, b, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("kind", "place"), [("groups", "reference"), ("groups", "colocated"), ("adapters", "colocated")]
)
@pytest.mark.parametrize("name", ["compute_log_prob", "compute_pooled_states"])
def test_passes_of_the_reference_policy(kind, name, place, request):
    """In ranks of its own, or in those of an actor that has learned since."""
    two, one = request.getfixturevalue(kind)
    assert_forward_passes_agree(two[0], one, f"{place}_{name}", f"reference_{name}")


@pytest.mark.parametrize(("kind", "role"), [*CASES, *HYBRID])
def test_they_train_as_one_process(kind, role, request):
    ranks, one = request.getfixturevalue(kind)
    assert_forward_passes_agree(ranks[0], one, f"{role}_forward")
    assert max(float(g.abs().max()) for g in one[role]["gradients"].values()) > 1e-3
    for rank in ranks:
        for what in ("gradients", "parameters"):
            difference = largest_difference(rank[role][what], one[role][what])
            print(f"{role}: largest difference of {what} {difference:.1e}")
            assert difference < 1e-5
        for ours, theirs in zip(rank[role]["metrics"], one[role]["metrics"], strict=True):
            assert ours == pytest.approx(theirs, rel=1e-5, abs=1e-5)
        assert largest_difference(rank[role]["restored"], ranks[0][role]["parameters"]) == 0
    # Rank 0 has all Hugging Face names; the others have nothing to send.
    assert [bool(rank["weights"]) for rank in ranks] == [True, *[False] * (len(ranks) - 1)]
    assert largest_difference(ranks[0]["weights"], one["weights"]) < 1e-5


@pytest.mark.parametrize(("kind", "role"), CASES)
def test_a_save_of_two_ranks_continues_on_one_and_on_two(kind, role, request):
    two, one = request.getfixturevalue(kind)
    assert largest_difference(one[role]["restored"], two[0][role]["parameters"]) == 0
    assert one[role]["fourth"] == pytest.approx(two[0][role]["fourth"], rel=1e-5, abs=1e-5)
    # Without the optimiser's moments the fourth update would differ by about the rate, 1e-4.
    assert largest_difference(one[role]["resumed"], two[0][role]["resumed"]) < 1e-5
    assert largest_difference(one[role]["resumed"], one[role]["restored"]) > 5e-5


@pytest.mark.parametrize(("kind", "role"), CASES)
def test_a_save_in_shards_continues_as_a_whole_one(kind, role, request):
    """On two ranks, each of which wrote a shard, and on one."""
    two, one = request.getfixturevalue(kind)
    for rank in (*two, one):
        found = rank[role]
        assert found["files"] == [f"optimizer/{name}" for name in SHARD_FILES]
        assert found["fourth_sharded"] == found["fourth"]
        assert largest_difference(found["resumed_sharded"], found["resumed"]) == 0
