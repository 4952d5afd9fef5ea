"""``data.*``: files, lengths and batching of the prompts."""

from typing import Literal

from refblend.config.base import PositiveInt, Section


class DataConfig(Section):
    """Where prompts come from and how long they may be (verl's names)."""

    train_files: list[str]
    """Parquet or jsonl files in verl's schema, trained on."""
    val_files: list[str]
    """Files evaluated every ``trainer.test_freq`` steps."""
    sanity_files: list[str] = []
    """Items known to the actor, for the drift guard; evaluated with the validation files."""
    max_prompt_length: PositiveInt = 256
    """Tokens; longer prompts are dropped and counted, or truncated (``truncation``)."""
    max_response_length: PositiveInt = 256
    """Maximum number of tokens generated for one response."""
    train_batch_size: PositiveInt = 32
    """Prompts per step, before replication by ``actor_rollout_ref.rollout.n``."""
    shuffle: bool = True
    """Shuffle the training prompts every epoch, from the run's seed."""
    filter_overlong_prompts: bool = True
    """Drop prompts over ``max_prompt_length`` at start-up, with a count."""
    truncation: Literal["error", "left", "right", "middle"] = "error"
    """How to treat overlong prompts that are not dropped."""
    min_steps: PositiveInt | None = None
    """Train only on problems whose solution has at least so many steps (``extra_info.n_steps``)."""
    max_val_samples: PositiveInt | None = None
    """Evaluate at most this many validation rows, from the top."""
