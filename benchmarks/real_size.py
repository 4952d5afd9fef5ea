"""Shared by the benchmarks at a real size: the model, and its run.

The model is SmolLM2-135M-Instruct, which `make pretrained` brings, and the prompts are those of
scale smollm, which `snakemake data --config scale=smollm` makes. Without the one a random model of
the same shape, which costs the same per token, takes its place; without the others, the embedded
problems; the record says so. The batch is that of scale smollm: 8 prompts × 8 responses of 26
tokens on average.
"""

from pathlib import Path

import common
import torch
from peers import Job
from transformers import LlamaConfig, LlamaForCausalLM

from refblend.config import load_config

CONFIGS = [common.ROOT / "params" / "ppo.yaml", common.ROOT / "params" / "scale" / "smollm.yaml"]
BASE = common.ROOT / "models" / "smollm" / "base"
DATA = common.ROOT / "data" / "smollm"
GROUP = load_config(CONFIGS, []).actor_rollout_ref.rollout.n
PRECISIONS = ("float32", "bfloat16")
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


def described(path: Path) -> str:
    """Which model it is, and whose prompts, for the record."""
    name = "SmolLM2-135M-Instruct" if path == BASE else "random model of its shape"
    return f"{name}, prompts of {'chain_sum' if DATA.is_dir() else 'embedded problems'}"
