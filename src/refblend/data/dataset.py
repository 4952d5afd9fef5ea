"""Encoded prompts and the order in which training reads them."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from refblend.data.schema import PromptRow, read_rows
from refblend.data.tokenizer import encode_chat
from refblend.errors import CheckpointError, DataError, ModelError
from refblend.seeding import derive_generator

Truncation = Literal["error", "left", "right", "middle"]


@dataclass(frozen=True)
class PromptDataset:
    """Rows with their encoded prompts, the chat template applied."""

    rows: list[PromptRow]
    prompt_ids: list[list[int]]
    n_dropped: int
    n_truncated: int

    def __len__(self) -> int:
        return len(self.rows)


def load_prompt_dataset(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    tokenizer: Any,
    max_prompt_length: int,
    filter_overlong: bool = True,
    truncation: Truncation = "error",
) -> PromptDataset:
    """Read files, apply the chat template, and drop or cut prompts over ``max_prompt_length``.

    DataError: a file is invalid, no row is left, or one is too long to be dropped or cut.
    """
    files = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    rows: list[PromptRow] = []
    prompt_ids: list[list[int]] = []
    dropped = truncated = 0
    for path in files:
        for row in read_rows(path):
            try:
                ids = encode_chat(tokenizer, row.messages)
            except ModelError as error:
                raise DataError(
                    f"{path} row with index {row.index}: {error.reason}", error.remedy
                ) from error
            if len(ids) > max_prompt_length:
                if filter_overlong:
                    dropped += 1
                    continue
                if truncation == "error":
                    raise DataError(
                        f"{path} row with index {row.index} has {len(ids)} prompt tokens, "
                        f"data.max_prompt_length is {max_prompt_length}",
                        "Raise it, set data.filter_overlong_prompts=true or data.truncation.",
                    )
                truncated += 1
                ids = truncate_ids(ids, max_prompt_length, truncation)
            rows.append(row)
            prompt_ids.append(ids)
    if not rows:
        raise DataError(
            f"all {dropped} prompts of {', '.join(map(str, files)) or 'no files'} were dropped",
            f"Raise data.max_prompt_length (it is {max_prompt_length}) or give other files.",
        )
    return PromptDataset(rows, prompt_ids, dropped, truncated)


def truncate_ids(ids: list[int], length: int, truncation: Truncation) -> list[int]:
    """Cut to ``length`` tokens; ``left`` removes the beginning, ``right`` the end (as in verl)."""
    head = {"left": 0, "right": length, "middle": length // 2}[truncation]
    return ids if len(ids) <= length else ids[:head] + ids[len(ids) - (length - head) :]


class PromptSampler:
    """Row indices by batch: a new permutation each epoch, no incomplete last batch."""

    SETTINGS = ("num_rows", "batch_size", "shuffle", "seed")

    def __init__(self, num_rows: int, batch_size: int, shuffle: bool, seed: int) -> None:
        if batch_size > num_rows:
            raise DataError(
                f"data.train_batch_size is {batch_size} but only {num_rows} prompts are left",
                "Lower it, or provide more rows (data.max_prompt_length drops long ones).",
            )
        self.num_rows = num_rows
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0
        self.position = 0
        self._order = self._permutation(0)

    def _permutation(self, epoch: int) -> list[int]:
        if not self.shuffle:
            return list(range(self.num_rows))
        return derive_generator(self.seed, "data", epoch).permutation(self.num_rows).tolist()

    def next_batch(self) -> list[int]:
        """The next ``batch_size`` row indices; starts the next epoch when needed."""
        if self.position + self.batch_size > self.num_rows:
            self.epoch += 1
            self.position = 0
            self._order = self._permutation(self.epoch)
        batch = self._order[self.position : self.position + self.batch_size]
        self.position += self.batch_size
        return batch

    def state_dict(self) -> dict[str, int | bool]:
        """Everything needed to continue the order, and the settings it was made with."""
        return {name: getattr(self, name) for name in ("epoch", "position", *self.SETTINGS)}

    def load_state_dict(self, state: dict[str, int | bool]) -> None:
        """Continue from a saved state; CheckpointError if it is of other settings."""
        for name in self.SETTINGS:
            if state.get(name) != getattr(self, name):
                raise CheckpointError(
                    f"the saved data order has {name}={state.get(name)}, "
                    f"this run has {getattr(self, name)}",
                    "Resume with the same data and batch settings, or use resume_mode=disable.",
                )
        self.epoch, self.position = int(state["epoch"]), int(state["position"])
        self._order = self._permutation(self.epoch)
