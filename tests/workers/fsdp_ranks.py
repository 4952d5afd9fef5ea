"""One rank of a group of workers, as a process of its own (run by ``test_fsdp2.py``).

Trains actor and critic on the same batch whatever the number of ranks, saves them after three
updates, loads the save of ``--resume-from`` and updates once more; the same with the optimiser's
state in shards. Every rank writes all it saw.
"""

import argparse
import os
from pathlib import Path
from typing import Any

from refblend import runtime

runtime.configure_process(1)

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

from conftest import plan_updates  # noqa: E402
from refblend.config import RefblendConfig, load_config  # noqa: E402
from refblend.workers.fsdp_workers import (  # noqa: E402
    ActorWorker,
    CriticWorker,
    ReferenceWorker,
)
from refblend.workers.roles import changed  # noqa: E402
from refblend.workers.types import Sequences, Shard  # noqa: E402


def full(tensor: torch.Tensor) -> torch.Tensor:
    """A sharded tensor as a whole one."""
    return (tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor).detach().clone()


def gather(shard: Shard) -> list[Shard]:
    """The answers of all ranks."""
    if not dist.is_initialized():
        return [shard]
    shards: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(shards, shard)
    return shards


def train(
    worker: Any, sequences: Sequences, targets: Any, rank: int, ranks: int, save: Path, resume: Path
) -> dict[str, Any]:
    """Gradients of the first mini-batch, three updates, save, load, a fourth update."""
    minis = plan_updates(sequences, worker.config, ranks, mini_rows=4)[rank]
    network, trainable = worker.trainable.network, worker.trainable
    trainable._accumulate(
        minis[0].micro_batches, lambda rows: worker.loss(sequences, targets, minis[0], rows)
    )
    found: dict[str, Any] = {
        "micro_batches": [len(m.micro_batches) for m in minis],
        "empty": sum(not rows for m in minis for rows in m.micro_batches),
        "gradients": {n: full(p.grad) for n, p in network.named_parameters() if p.requires_grad},
    }
    trainable.optimizer.zero_grad(set_to_none=True)
    found["metrics"] = [worker.update(sequences, targets, minis, step) for step in (1, 2, 3)]
    found["parameters"] = {n: full(p) for n, p in network.named_parameters()}
    worker.save(str(save))
    worker.run = changed(worker.run, {"ray.shared_filesystem": True})
    worker.save(f"{save}_sharded")
    worker.load(str(resume))
    network = worker.trainable.network
    found["restored"] = {n: full(p) for n, p in network.named_parameters()}
    found["fourth"] = worker.update(sequences, targets, minis, 4)
    found["resumed"] = {n: full(p) for n, p in network.named_parameters()}
    sharded = Path(f"{resume}_sharded")
    found["files"] = sorted(str(p.relative_to(sharded)) for p in sharded.glob("opt*/**/*"))
    worker.load(str(sharded))
    found["fourth_sharded"] = worker.update(sequences, targets, minis, 4)
    network = worker.trainable.network
    found["resumed_sharded"] = {n: full(p) for n, p in network.named_parameters()}
    return found


def main() -> None:
    """Run this rank."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rank", type=int)
    parser.add_argument("--ranks", type=int)
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--ports", nargs=3, type=int)
    parser.add_argument("--resume-from", type=Path)
    parser.add_argument("--overrides", nargs="*", default=[])
    args = parser.parse_args()
    folder, rank, ranks = args.folder, args.rank, args.ranks
    keys = ("actor_rollout_ref.actor", "actor_rollout_ref.ref", "critic")
    config: RefblendConfig = load_config(
        [folder / "config.yaml"],
        [f"{key}.fsdp_config.world_size={ranks}" for key in keys]
        + [f"{key}.fsdp_config.replicas={args.replicas}" for key in keys]
        + ["actor_rollout_ref.ref.colocated=true", *args.overrides],
    )
    sequences, policy_targets, value_targets = torch.load(folder / "case.pt", weights_only=False)
    own = folder / f"ranks_{ranks}"
    resume = args.resume_from or own
    found: dict[str, Any] = {}
    roles = (("actor", ActorWorker, policy_targets), ("critic", CriticWorker, value_targets))
    addresses = [("127.0.0.1", port, None) for port in args.ports]
    for (role, kind, targets), address in zip(roles, addresses, strict=False):
        if role == "critic" and config.use_lora:  # it has no adapter
            continue
        worker = kind(config, 9, rank, address)
        settings = worker.config
        plan = plan_updates(sequences, settings, ranks)[rank][0].micro_batches
        method = "compute_log_prob" if role == "actor" else "compute_values"
        found[f"{role}_forward"] = gather(getattr(worker, method)(sequences, plan))
        found[role] = train(worker, sequences, targets, rank, ranks, own / role, resume / role)
        if role == "actor":
            for name in ("compute_log_prob", "compute_pooled_states"):
                found[f"colocated_{name}"] = gather(worker.as_reference(sequences, plan, name))
            found["weights"] = {k: v.clone() for k, v in worker.full_weights().items()}
        if dist.is_initialized():
            dist.barrier()
            dist.destroy_process_group()
    reference = ReferenceWorker(config, 9, rank, addresses[2])
    plan = plan_updates(sequences, config.actor_rollout_ref.actor, ranks)[rank][0].micro_batches
    for name in ("compute_log_prob", "compute_pooled_states"):
        found[f"reference_{name}"] = gather(getattr(reference, name)(sequences, plan))
    found["interface"] = os.environ.get("GLOO_SOCKET_IFNAME")
    torch.save(found, folder / f"found_{ranks}_{rank}.pt")
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
