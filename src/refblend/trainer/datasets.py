"""The data of a run: encoded prompts of training and validation, and the actor's tokenizer."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from refblend.config import RefblendConfig
from refblend.data.dataset import PromptDataset, load_prompt_dataset
from refblend.data.tokenizer import decode_response, load_tokenizer
from refblend.errors import DataError
from refblend.identity import prompts_hash
from refblend.trainer.guards import SANITY_SOURCE
from refblend.trainer.validation import ValidationSet


@dataclass(frozen=True)
class RunData:
    """Loaded and checked before any worker starts."""

    tokenizer: Any
    train: PromptDataset
    validation_sets: list[ValidationSet]
    keep_special: bool = False
    """Whether texts of responses have the special tokens in them."""

    def parts(self) -> dict[str, PromptDataset]:
        """All prompts, by the key of ``data`` that names their files."""
        sanity = {s.source == SANITY_SOURCE: s.dataset for s in self.validation_sets}
        found = {"train": self.train, "val": sanity.get(False), "sanity": sanity.get(True)}
        return {f"data.{name}_files": part for name, part in found.items() if part is not None}

    @cached_property
    def data_sources(self) -> set[str]:
        """Where the rows come from, which says by which rule they are scored."""
        return {row.data_source for part in self.parts().values() for row in part.rows}

    @cached_property
    def prompts_hash(self) -> str:
        """Hash of all encoded prompts."""
        return prompts_hash(part.prompt_ids for part in self.parts().values())

    def decode(self, token_ids: list[int]) -> str:
        """A response's text as rewards and judge see it."""
        return decode_response(self.tokenizer, token_ids, self.keep_special)

    def encode(self, text: str) -> list[int]:
        """A response's token ids; special tokens in the text are treated as plain text."""
        return self.tokenizer.encode(text, add_special_tokens=False)


def load_run_data(config: RefblendConfig) -> RunData:
    """Read and encode all files; DataError or ModelError if they cannot be used."""
    tokenizer = load_tokenizer(config.actor_rollout_ref.model.path)
    data = config.data
    for key, files in (("train_files", data.train_files), ("val_files", data.val_files)):
        if not files:
            raise DataError(f"data.{key} names no file", "Give at least one parquet or jsonl file.")

    def load(files: list[str]) -> PromptDataset:
        overlong = (data.max_prompt_length, data.filter_overlong_prompts, data.truncation)
        return load_prompt_dataset(files, tokenizer, *overlong)

    sets = [ValidationSet(load(data.val_files), data.max_val_samples)]
    if data.sanity_files:
        sets.append(ValidationSet(load(data.sanity_files), source=SANITY_SOURCE))
    return RunData(tokenizer, load(data.train_files), sets, config.reward.keep_special_tokens)
