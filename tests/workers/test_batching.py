from hypothesis import given
from hypothesis import strategies as st

from refblend.workers.batching import (
    deal_parts,
    group_rows,
    halve_micro_batches,
    plan_micro_batches,
    split_mini_batches,
)

LENGTHS = st.lists(st.integers(1, 60), min_size=1, max_size=50)


@st.composite
def batches(draw) -> tuple[list[int], list[int]]:
    """Lengths of a whole batch, and some of its rows in any order."""
    lengths = draw(LENGTHS)
    rows = draw(st.permutations(range(len(lengths))))
    return lengths, rows[: draw(st.integers(1, len(rows)))]


@given(batches())
def test_halving_keeps_order_and_leaves_half_a_row_over_at_most(batch):
    lengths, rows = batch
    halves = halve_micro_batches([rows], lengths)
    assert [row for half in halves for row in half] == rows
    assert len(halves) == min(2, len(rows))
    tokens = [sum(lengths[row] for row in half) for half in halves]
    assert max(tokens) <= (sum(tokens) + max(lengths[row] for row in rows)) / 2 or len(rows) == 1


@given(st.integers(1, 60), st.none() | st.integers(1, 70))
def test_mini_batches_are_consecutive(rows, size):
    minis = split_mini_batches(rows, size)
    assert [r for mini in minis for r in mini] == list(range(rows))
    assert all(len(mini) == (size or rows) for mini in minis[:-1])


@st.composite
def shared_batches(draw) -> tuple[list[list[int]], list[int], list[int]]:
    """Prompts (few distinct ones), lengths of the rows, and some rows in any order."""
    known = draw(st.lists(st.integers(1, 30), min_size=1, max_size=6))
    distinct = [[i, *range(size)] for i, size in enumerate(known)]
    chosen = draw(st.lists(st.sampled_from(distinct), min_size=1, max_size=40))
    answers = draw(st.lists(st.integers(0, 30), min_size=len(chosen), max_size=len(chosen)))
    lengths = [len(p) + a for p, a in zip(chosen, answers, strict=True)]
    rows = draw(st.permutations(range(len(chosen))))
    return chosen, lengths, rows[: draw(st.integers(1, len(rows)))]


def layout_tokens(prompts, lengths, rows) -> int:
    """Distinct tokens of a micro-batch, counted one by one."""
    seen = set()
    for row in rows:
        prompt = prompts[row]
        seen |= {("prompt", tuple(prompt), i) for i in range(len(prompt))}
        seen |= {("response", row, i) for i in range(lengths[row] - len(prompt))}
    return len(seen)


@given(
    shared_batches(),
    st.booleans(),
    st.integers(1, 6),
    st.integers(1, 200),
    st.none() | st.integers(1, 7),
)
def test_plans_keep_every_row_once_within_the_budget(batch, shared, ranks, budget, max_rows):
    """Whether or not rows share the tokens of their prompt, and whatever their order."""
    prompts, lengths, rows = batch
    more = ranks, budget, max_rows, prompts if shared else None
    plans = plan_micro_batches(lengths, rows, *more)
    assert sorted(r for plan in plans for group in plan for r in group) == sorted(rows)
    assert len(plans) == ranks
    assert len({len(plan) for plan in plans}) == 1
    assert any(plan[-1] for plan in plans)
    for plan in plans:
        filled = [bool(group) for group in plan]
        assert filled == sorted(filled, reverse=True), "empty ones stand at the end"
        for group in filter(None, plan):
            padded = len(group) * max(lengths[r] for r in group)
            tokens = layout_tokens(prompts, lengths, group) if shared else padded
            assert tokens <= budget or len(group) == 1
            assert max_rows is None or len(group) <= max_rows
    assert plan_micro_batches(lengths, sorted(rows), *more) == plans


@given(shared_batches(), st.integers(1, 4))
def test_parts_are_dealt_evenly(batch, ranks):
    prompts, lengths, rows = batch
    shares = deal_parts(group_rows(lengths, rows, prompts, 50), ranks)
    tokens = [sum(part.tokens for part in share) for share in shares]
    largest = max(part.tokens for share in shares for part in share)
    assert max(tokens) - min(tokens) <= largest


def test_groups_stay_whole_where_the_budget_allows():
    prompts = [[1] * 40] * 8 + [[2] * 40] * 8
    lengths = [40 + 10] * 16
    assert plan_micro_batches(lengths, range(16), 1, 120, prompts=prompts) == [
        [list(range(8)), list(range(8, 16))]
    ]
    two = plan_micro_batches(lengths, range(16), 2, 1000, prompts=prompts)
    assert two == [[list(range(8))], [list(range(8, 16))]]


def test_one_prompt_is_cut_so_that_every_rank_has_work():
    prompts = [[1] * 10] * 8
    plans = plan_micro_batches([30] * 8, range(8), 2, 1000, prompts=prompts)
    assert plans == [[[0, 1, 2, 3]], [[4, 5, 6, 7]]]


def test_a_group_beyond_the_budget_is_cut():
    prompts = [[1] * 10] * 4
    plans = plan_micro_batches([30, 20, 30, 20], range(4), 1, 50, prompts=prompts)
    assert plans == [[[0, 2], [1, 3]]]
