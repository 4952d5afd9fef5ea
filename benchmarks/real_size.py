"""Shared by the benchmarks at a real size: the model, its batch, its run, and the GEMM peak.

The model is SmolLM2-135M-Instruct, which `make pretrained` brings, and the prompts are those of
scale smollm, which `snakemake data --config scale=smollm` makes. Without the one a random model of
the same shape, which costs the same per token, takes its place; without the others, the embedded
problems; the record says so. The batch is that of scale smollm: 8 prompts × 8 responses of 26
tokens on average.
"""

from pathlib import Path
from typing import Any

import common
import torch
from peers import Job
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from refblend.config import RefblendConfig, load_config
from refblend.seeding import derive_generator
from refblend.workers.fsdp_workers import ActorWorker
from refblend.workers.layout import PrefixTree, pad_batch
from refblend.workers.types import Sequences

CONFIGS = [common.ROOT / "params" / "ppo.yaml", common.ROOT / "params" / "scale" / "smollm.yaml"]
BASE = common.ROOT / "models" / "smollm" / "base"
DATA = common.ROOT / "data" / "smollm"
_SCALE = load_config(CONFIGS, [])
PROMPTS, GROUP = _SCALE.data.train_batch_size, _SCALE.actor_rollout_ref.rollout.n
RESPONSE_TOKENS = (16, 37)
PRECISIONS = ("float32", "bfloat16")
PRECISION = _SCALE.actor_rollout_ref.rollout.dtype
"""The scale's own."""
NEW_TOKENS = 26
SMALL_PROMPTS = 2
SMALL_RUN = [
    f"data.train_batch_size={SMALL_PROMPTS}",
    f"data.max_response_length={NEW_TOKENS}",
    f"actor_rollout_ref.actor.fsdp_config.num_threads={common.THREADS}",
    f"actor_rollout_ref.rollout.num_threads={common.THREADS}",
    f"algorithm.ref_quality_score.scoring.num_threads={common.THREADS}",
]
"""Overrides of scale smollm for a step of a few CPU seconds: 2 prompts × 8 responses."""


def model(folder: Path) -> Path:
    """The pretrained model's directory, or that of a random one, written below ``folder``."""
    if (BASE / "model.safetensors").exists():
        return BASE
    path = folder / "random"
    if not path.exists():
        tokenizer = common.embedded_tokenizer()
        config = LlamaConfig(
            vocab_size=49_152,
            hidden_size=576,
            intermediate_size=1536,
            num_hidden_layers=30,
            num_attention_heads=9,
            num_key_value_heads=3,
            max_position_embeddings=2048,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            dtype="float32",
        )
        torch.manual_seed(0)
        LlamaForCausalLM(config).save_pretrained(path)
        tokenizer.save_pretrained(path)
    return path


def prepare_inputs(folder: Path) -> Path:
    """Data, and the model as actor and as judge, below ``folder``; the model's directory."""
    path = model(folder)
    for role in ("actor", "judge"):
        (folder / role).symlink_to(path, target_is_directory=True)
    if (DATA / "train.parquet").exists():
        (folder / "data").symlink_to(DATA, target_is_directory=True)
    else:
        common.prepare_data(folder)
    return path


def job(folder: Path, dtype: str) -> Job:
    """A small GRPO job on :func:`prepare_inputs`, in one precision."""
    precision = [
        f"actor_rollout_ref.actor.fsdp_config.param_dtype={dtype}",
        f"actor_rollout_ref.rollout.dtype={dtype}",
    ]
    settings = [*SMALL_RUN, *precision]
    return Job(
        folder,
        SMALL_PROMPTS,
        GROUP,
        NEW_TOKENS,
        1e-5,
        dtype=dtype,
        configs=CONFIGS,
        settings=settings,
    )


def batch(folder: Path, path: Path, prompts: int = PROMPTS, group: int = GROUP) -> Sequences:
    """Prompts of the data below ``folder`` in the chat format of the model at ``path``, with random
    responses."""
    tokenizer = AutoTokenizer.from_pretrained(path)
    rng = derive_generator(0, "real bench")
    texts: list[list[int]] = []
    for prompt in common.train_prompts(folder, prompts):
        chat = [{"role": "user", "content": prompt}]
        found = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
        texts += [list(found)] * group
    sizes = rng.integers(*RESPONSE_TOKENS, len(texts))
    return Sequences(texts, [rng.integers(5, len(tokenizer), size).tolist() for size in sizes])


def config_of(path: Path, dtype: str, *settings: str) -> RefblendConfig:
    """Scale smollm with one thread, a model and a precision; updates leave the weights unchanged.

    Args:
        path: the model's directory.
        dtype: of the networks' products and of the engine.
        settings: ``key=value`` below ``actor_rollout_ref``.
    """
    own = [
        f"model.path={path}",
        "actor.optim.lr=0",
        f"actor.fsdp_config.param_dtype={dtype}",
        f"actor.fsdp_config.num_threads={common.THREADS}",
        f"rollout.num_threads={common.THREADS}",
        f"rollout.dtype={dtype}",
        *settings,
    ]
    disabled = "algorithm.ref_quality_score.enable=false"
    return load_config(CONFIGS, [*(f"actor_rollout_ref.{each}" for each in own), disabled])


def load_actor(path: Path, dtype: str) -> ActorWorker:
    """The actor of :func:`config_of`."""
    return ActorWorker(config_of(path, dtype), total_steps=1)


def distinct_tokens(sequences: Sequences, plan: list[list[int]]) -> int:
    """Tokens that the shared layout computes, once for each distinct prefix of a micro-batch."""
    cpu = torch.device("cpu")
    return sum(len(PrefixTree(pad_batch(sequences, rows, cpu)).keep) for rows in plan)


def gemm(dtype: str, repeats: int = 64) -> tuple[Any, float]:
    """A product of the model's largest layer for 2,048 tokens, and its operations (2·m·n·k)."""
    kind = getattr(torch, dtype)
    left, right = torch.randn(2048, 576, dtype=kind), torch.randn(1536, 576, dtype=kind)

    @torch.no_grad()
    def work() -> None:
        for _ in range(repeats):
            torch.nn.functional.linear(left, right)

    return work, repeats * 2.0 * 2048 * 576 * 1536


def described(path: Path) -> str:
    """Which model it is, and whose prompts, for the record."""
    name = "SmolLM2-135M-Instruct" if path == BASE else "random model of its shape"
    return f"{name}, prompts of {'chain_sum' if DATA.is_dir() else 'embedded problems'}"
