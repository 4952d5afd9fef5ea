from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refblend.data.dataset import PromptSampler, load_prompt_dataset, truncate_ids
from refblend.data.schema import PromptRow, write_rows
from refblend.errors import DataError


class LetterTokenizer:
    """One token a letter, and no chat template."""

    all_special_tokens = ()
    chat_template = None

    def __call__(self, text: str, add_special_tokens: bool = True) -> dict[str, list[int]]:
        return {"input_ids": [ord(char) for char in text]}


def write(path: Path, lengths: list[int]) -> Path:
    rows = [
        PromptRow(i, "mine", [{"role": "user", "content": "x" * n}], "q", "1", "")
        for i, n in enumerate(lengths)
    ]
    write_rows(path, rows)
    return path


def test_overlong_rows_are_dropped_and_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", [3, 9, 5, 12])
    data = load_prompt_dataset(path, LetterTokenizer(), max_prompt_length=8)
    assert [len(ids) for ids in data.prompt_ids] == [3, 5]
    assert [row.index for row in data.rows] == [0, 2]
    assert (len(data), data.n_dropped, data.n_truncated) == (2, 2, 0)


def test_truncation_when_not_filtered(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", [3, 9])
    data = load_prompt_dataset(path, LetterTokenizer(), 8, False, "left")
    assert ([len(ids) for ids in data.prompt_ids], data.n_truncated) == ([3, 8], 1)
    with pytest.raises(DataError, match=r"index 1 has 9 prompt tokens.*max_prompt_length is 8"):
        load_prompt_dataset(path, LetterTokenizer(), 8, False, "error")


def test_nothing_left(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", [9, 9])
    with pytest.raises(DataError, match="all 2 prompts"):
        load_prompt_dataset(path, LetterTokenizer(), 8)
    with pytest.raises(DataError, match="no files"):
        load_prompt_dataset([], LetterTokenizer(), 8)


@given(st.lists(st.integers(0, 99), max_size=12), st.integers(1, 12))
def test_truncate_keeps_the_right_part(ids: list[int], length: int) -> None:
    assert truncate_ids(ids, length, "left") == ids[-length:]
    assert truncate_ids(ids, length, "right") == ids[:length]
    middle = truncate_ids(ids, length, "middle")
    assert len(middle) == min(length, len(ids))
    assert middle[: length // 2] == ids[: length // 2]
    assert len(ids) < length or middle[length // 2 :] == ids[len(ids) - (length - length // 2) :]


@given(st.integers(1, 30), st.integers(1, 30), st.booleans(), st.integers(0, 5))
def test_each_epoch_gives_each_row_at_most_once(rows, batch, shuffle, seed) -> None:
    if batch > rows:
        with pytest.raises(DataError, match="train_batch_size"):
            PromptSampler(rows, batch, shuffle, seed)
        return
    sampler = PromptSampler(rows, batch, shuffle, seed)
    for epoch in range(3):
        seen = [i for _ in range(rows // batch) for i in sampler.next_batch()]
        assert sampler.epoch == epoch
        assert len(seen) == len(set(seen)) == rows // batch * batch
        assert set(seen) <= set(range(rows))
        if not shuffle:
            assert seen == list(range(len(seen)))


@given(st.integers(0, 25))
def test_resumed_order_is_the_same(done: int) -> None:
    straight = PromptSampler(10, 3, True, 7)
    for _ in range(done):
        straight.next_batch()
    resumed = PromptSampler(10, 3, True, 7)
    resumed.load_state_dict(straight.state_dict())
    assert [straight.next_batch() for _ in range(8)] == [resumed.next_batch() for _ in range(8)]
