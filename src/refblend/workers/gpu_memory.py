"""Memory of GPUs that a run needs, by a formula, before any engine starts.

With N parameters, hidden size H, MLP size I, L layers and vocabulary V, a device holds in bytes::

    actor, critic    16 N / ranks           float32 weights and gradients, AdamW's two moments
    with LoRA         2 N / ranks           the actor's base in bfloat16 (4 N in float32)
    reference         2 N / ranks           the same, gathered layer by layer; also if colocated
    a pass            tokens × 2 (12 H + 4 I) × layers kept, and 2 H L with checkpointing
    the head         10 × min(2²⁹, tokens × V) + 4 V H    logits in bfloat16 and twice in float32
    an engine         its share of the device, gpu_memory_utilization
    a process         0.5 GiB for CUDA itself, which vLLM does not count in its share

Layers kept are L, or one with ``enable_gradient_checkpointing``; in float32 a pass takes twice as
much. Passes of separate processes run at once, so they add up; those of engines that sleep follow
them, and the largest counts. A sleeping engine holds 1 GiB. The constant 12 H + 4 I is the
activations of Qwen's and Llama's layers; with the head of that time it gives the one measured
update (``results/gpu/check.md``) to within a tenth. Nothing else of the formula has been measured.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from refblend.config import RefblendConfig
from refblend.errors import ResourceError
from refblend.rollout.model_dir import count_parameters, model_record
from refblend.workers.placement import on_devices
from refblend.workers.roles import BYTES, JUDGE, MODEL, ROLLOUT, Role, changed, roles_of, value_of

GIB = 2.0**30
CONTEXT = 0.5 * GIB
ASLEEP = 1.0 * GIB
GRAPHS = 1.0 * GIB
"""CUDA graphs and buffers of an engine beside weights and cache."""
HEAD_LOGITS = 2**29
SHARE = "gpu_memory_utilization"


@dataclass(frozen=True)
class Need:
    """What a process of a role holds on its device, in bytes."""

    role: str
    gpus: float
    """The part of a device that the process reserves."""
    kept: float
    """Held all the time."""
    working: float
    """More, while it works."""
    sleeps: bool = False


@dataclass(frozen=True)
class Model:
    """The sizes of a model, read from its directory."""

    parameters: int
    hidden: int
    mlp: int
    layers: int
    vocabulary: int

    @classmethod
    def of(cls, path: str, key: str) -> "Model":
        """Read the model's headers and ``config.json``, or ModelError."""
        record = model_record(Path(path) / "config.json")
        hidden = int(record.get("hidden_size", 0))
        return cls(
            parameters=count_parameters(Path(path), key),
            hidden=hidden,
            mlp=int(record.get("intermediate_size", 4 * hidden)),
            layers=int(record.get("num_hidden_layers", 0)),
            vocabulary=int(record.get("vocab_size", 0)),
        )

    def activations(self, tokens: int, dtype: str, kept: int) -> float:
        """Bytes of a pass over ``tokens`` that keeps ``kept`` layers, with its head."""
        of_layers = tokens * BYTES[dtype] * (12 * self.hidden + 4 * self.mlp) * kept
        if kept < self.layers:
            of_layers += tokens * BYTES[dtype] * self.hidden * self.layers
        logits = min(HEAD_LOGITS, tokens * self.vocabulary)
        return of_layers + 10.0 * logits + 4.0 * self.vocabulary * self.hidden


def gpu_needs(config: RefblendConfig, device: float) -> list[Need]:
    """What every process on a GPU needs, on devices of ``device`` bytes."""
    actor = Model.of(config.actor_rollout_ref.model.path, MODEL)
    needs = []
    for role in roles_of(config):
        asked = role.processes(config)
        if asked.gpus:
            ranks = max(1, round(asked.gpus)) if role.engine_model else 1
            one = _engine(role, config, device) if role.engine_model else _rank(role, config, actor)
            needs += [one] * (asked.count * ranks)
    return needs


def _rank(role: Role, config: RefblendConfig, model: Model) -> Need:
    settings = role.settings(config)
    fsdp, tokens = settings.fsdp_config, getattr(settings, role.budget)
    shards = fsdp.world_size // fsdp.replicas
    copies = role.copies(config)
    size = BYTES["float32" if copies > 1 else fsdp.param_dtype]  # what is frozen: param_dtype
    bytes_each = copies * size + role.frozen_copies(config) * BYTES[fsdp.param_dtype]
    state = bytes_each * model.parameters / shards
    checkpointing = config.actor_rollout_ref.model.enable_gradient_checkpointing
    kept = 1 if checkpointing or not role.learns else model.layers
    working = model.activations(tokens, fsdp.param_dtype, kept)
    return Need(role.name, fsdp.num_gpus_per_worker, state + CONTEXT, working)


def _engine(role: Role, config: RefblendConfig, device: float) -> Need:
    """The engine's share; ResourceError if its weights and CUDA graphs alone need more."""
    settings, key = role.settings(config), str(role.engine_model)
    share, path = settings.gpu_memory_utilization * device, value_of(config, key)
    if path is not None and getattr(settings, "kind", "vllm") != "http":
        weights = BYTES[settings.dtype] * Model.of(path, key).parameters
        least = weights / settings.tensor_model_parallel_size + GRAPHS
        if least > share:
            reason = (
                f"{role.name} needs {least / GIB:.1f} GiB for weights and graphs alone, and "
                f"{role.section}.{SHARE}={settings.gpu_memory_utilization:g} gives it "
                f"{share / GIB:.1f}"
            )
            raise ResourceError(reason, f"Raise {role.section}.{SHARE}.")
    return Need(role.name, min(1.0, settings.num_gpus), CONTEXT, share, role.sleeps(config))


def peak(held: Sequence[Need]) -> float:
    """The most that the processes of one device hold at once; sleepers take turns with ranks."""
    always = sum(need.kept + (ASLEEP if need.sleeps else 0.0) for need in held)
    turns = defaultdict[str, float](float, ranks=0.0)
    for need in held:
        if need.sleeps:
            turns[need.role] += need.working  # all engines of a role wake together
        elif need.role in (ROLLOUT.name, JUDGE.name):
            always += need.working
        else:
            turns["ranks"] += need.working
    return always + max(turns.values())


def summary(held: Sequence[Need], device: float) -> str:
    """What the processes of a device hold, and their peak."""
    parts = [
        f"{need.role} {need.kept / GIB:.1f} GiB kept and {need.working / GIB:.1f} at work"
        + (" (sleeps)" if need.sleeps else "")
        for need in held
    ]
    return f"{'; '.join(parts)}; peak {peak(held) / GIB:.1f} of {device / GIB:.1f}"


def check_gpu_memory(config: RefblendConfig, device: float) -> None:
    """Refuse (ResourceError) what cannot fit on devices of ``device`` bytes; say what would."""
    fullest = _fullest(config, device)
    if peak(fullest) <= device:
        return
    changes = nearest(config, device)
    lora = "" if config.use_lora else ", or LoRA"
    remedy = f"No smaller setting fits: take a smaller model or larger GPUs{lora}."
    if changes:
        remedy = f"This fits: {' '.join(changes)}"
    raise ResourceError(
        f"the run does not fit into {device / GIB:.0f} GiB of GPU memory: "
        f"{summary(fullest, device)}",
        remedy,
    )


def _fullest(config: RefblendConfig, device: float) -> list[Need]:
    return max(on_devices(gpu_needs(config, device)), key=peak, default=[])


def nearest(config: RefblendConfig, device: float) -> list[str]:
    """Of the first changes that make the run fit, those that are needed; empty if none do."""
    changes: dict[str, Any] = {}
    for key, value in _steps(config):
        changes[key] = value
        if _fits(changed(config, changes), device):
            break
    else:
        return []
    for key in list(changes):
        fewer = {k: v for k, v in changes.items() if k != key}
        if _fits(changed(config, fewer), device):
            changes = fewer
    return [f"{key}={str(value).lower()}" for key, value in changes.items()]


def _fits(config: RefblendConfig, device: float) -> bool:
    try:
        return peak(_fullest(config, device)) <= device
    except ResourceError:  # an engine's share is too small for it
        return False


def _steps(config: RefblendConfig) -> Iterator[tuple[str, Any]]:
    """Changes in the order of what they cost: time first, then room for sequences."""
    if not config.actor_rollout_ref.model.enable_gradient_checkpointing:
        yield "actor_rollout_ref.model.enable_gradient_checkpointing", True
    longest = config.data.max_prompt_length + config.data.max_response_length
    engines = [role for role in roles_of(config) if role.engine_model]
    ranks = [role for role in roles_of(config) if not role.engine_model]
    budget = max(getattr(role.settings(config), role.budget) for role in ranks)
    while budget > 2 * longest:
        budget //= 2
        for role in ranks:
            if getattr(role.settings(config), role.budget) > budget:
                yield f"{role.section}.{role.budget}", budget
    for share in (0.4, 0.3, 0.25, 0.2, 0.15, 0.1):
        for role in engines:
            if role.settings(config).gpu_memory_utilization > share:
                yield f"{role.section}.{SHARE}", share
