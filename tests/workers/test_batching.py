from hypothesis import given, settings
from hypothesis import strategies as st

from refblend.workers.batching import (
    pack_by_tokens,
    plan_micro_batches,
    split_mini_batches,
    split_over_ranks,
)

LENGTHS = st.lists(st.integers(1, 60), min_size=1, max_size=50)


@st.composite
def batches(draw) -> tuple[list[int], list[int]]:
    """Lengths of a whole batch, and some of its rows in any order."""
    lengths = draw(LENGTHS)
    rows = draw(st.permutations(range(len(lengths))))
    return lengths, rows[: draw(st.integers(1, len(rows)))]


@given(batches(), st.integers(1, 200), st.none() | st.integers(1, 7))
def test_packing_keeps_every_row_once_within_the_budget(batch, budget, max_rows) -> None:
    lengths, rows = batch
    groups = pack_by_tokens(lengths, rows, budget, max_rows)
    assert sorted(r for group in groups for r in group) == sorted(rows)
    for group in groups:
        padded = len(group) * max(lengths[r] for r in group)
        assert padded <= budget or len(group) == 1
        assert max_rows is None or len(group) <= max_rows


@given(batches(), st.integers(1, 6))
def test_ranks_share_rows_and_tokens_evenly(batch, ranks) -> None:
    lengths, rows = batch
    shares = split_over_ranks(lengths, rows, ranks)
    assert sorted(r for share in shares for r in share) == sorted(rows)
    counts = [len(share) for share in shares]
    assert max(counts) - min(counts) <= 1
    tokens = [sum(lengths[r] for r in share) for share in shares]
    assert max(tokens) - min(tokens) <= max(lengths[r] for r in rows)


@given(batches(), st.integers(1, 6), st.integers(1, 200))
def test_plan_gives_every_rank_equally_many_micro_batches(batch, ranks, budget) -> None:
    lengths, rows = batch
    plans = plan_micro_batches(lengths, rows, ranks, budget)
    assert len(plans) == ranks
    assert len({len(plan) for plan in plans}) == 1
    assert sorted(r for plan in plans for group in plan for r in group) == sorted(rows)
    for plan in plans:  # empty ones stand at the end
        filled = [bool(group) for group in plan]
        assert filled == sorted(filled, reverse=True)
    assert any(plan[-1] for plan in plans)


@given(batches(), st.integers(1, 6), st.integers(1, 200))
@settings(max_examples=30)
def test_plan_does_not_depend_on_the_order_of_rows(batch, ranks, budget) -> None:
    lengths, rows = batch
    expected = plan_micro_batches(lengths, sorted(rows), ranks, budget)
    assert plan_micro_batches(lengths, rows, ranks, budget) == expected


@given(st.integers(1, 60), st.none() | st.integers(1, 70))
def test_mini_batches_are_consecutive(rows, size) -> None:
    minis = split_mini_batches(rows, size)
    assert [r for mini in minis for r in mini] == list(range(rows))
    assert all(len(mini) == (size or rows) for mini in minis[:-1])
