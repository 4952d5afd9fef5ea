import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refblend.errors import StudyError
from refblend.study.planning.schedule import (
    busiest_memory,
    makespan,
    parallel_places,
    schedule_longest_first,
)

durations = st.lists(st.floats(0.1, 1e4), min_size=1, max_size=12)
places = st.integers(1, 6)


def test_longest_runs_start_first_on_the_place_that_is_free_first() -> None:
    # By hand: 7 and 6 start; 5 follows 6 (until 11), 4 follows 7 (until 11), 3 follows on place 0.
    found = schedule_longest_first([3, 5, 7, 4, 6], 2)
    assert [(p.run, p.place, p.start, p.end) for p in found] == [
        (0, 0, 11, 14),
        (1, 1, 6, 11),
        (2, 0, 0, 7),
        (3, 0, 7, 11),
        (4, 1, 0, 6),
    ]
    assert makespan(found) == 14


def test_the_schedule_can_miss_the_best_one_as_graham_says() -> None:
    # Graham's worst case for two places: 3 + 3 and 2 + 2 + 2 would end at 6.
    assert makespan(schedule_longest_first([3, 3, 2, 2, 2], 2)) == 7


@given(durations, places)
def test_makespan_lies_between_its_bounds(seconds: list[float], count: int) -> None:
    end = makespan(schedule_longest_first(seconds, count))
    slack = 1 + 1e-9
    assert end * slack >= sum(seconds) / count
    assert end * slack >= max(seconds)
    assert end <= sum(seconds) * slack


@given(durations)
def test_one_place_takes_the_sum(seconds: list[float]) -> None:
    assert makespan(schedule_longest_first(seconds, 1)) == pytest.approx(sum(seconds))


@given(durations)
def test_a_place_a_run_takes_the_longest(seconds: list[float]) -> None:
    assert makespan(schedule_longest_first(seconds, len(seconds))) == max(seconds)


@given(durations, places)
def test_no_place_holds_two_runs_at_once(seconds: list[float], count: int) -> None:
    found = schedule_longest_first(seconds, count)
    assert [p.run for p in found] == list(range(len(seconds)))
    assert all(p.end == p.start + seconds[p.run] for p in found)
    for place in range(count):
        here = sorted((p.start, p.end) for p in found if p.place == place)
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(here))


@settings(max_examples=40)
@given(st.lists(st.integers(1, 50), min_size=1, max_size=6), st.integers(1, 3))
def test_makespan_is_within_grahams_bound_of_the_best(seconds: list[int], count: int) -> None:
    best = min(
        max(sum(s for s, p in zip(seconds, chosen, strict=True) if p == k) for k in range(count))
        for chosen in itertools.product(range(count), repeat=len(seconds))
    )
    assert makespan(schedule_longest_first(seconds, count)) <= best * (4 / 3 - 1 / (3 * count))


def test_memory_is_counted_where_runs_overlap() -> None:
    # Runs of 4, 3 and 3 s on two places: 4 with 3 until 3 s, then 4 with the second 3, then it
    # alone; a run that starts when another ends does not meet it.
    found = schedule_longest_first([4.0, 3.0, 3.0], 2)
    assert busiest_memory(found, [1.0, 2.0, 8.0]) == 9.0
    assert busiest_memory(found, [1.0, 8.0, 2.0]) == 9.0
    assert busiest_memory(schedule_longest_first([1.0, 1.0], 1), [5.0, 7.0]) == 7.0


@given(durations, places)
def test_memory_is_at_least_the_largest_and_at_most_that_of_full_places(
    seconds: list[float], count: int
) -> None:
    memory = [1.0 + i for i in range(len(seconds))]
    peak = busiest_memory(schedule_longest_first(seconds, count), memory)
    assert max(memory) <= peak <= sum(sorted(memory)[-count:])


def test_places() -> None:
    assert parallel_places(3, None) == 3
    assert parallel_places(9, 4) == 2
    with pytest.raises(StudyError, match="needs 4 GPUs and there are 3"):
        parallel_places(3, 4)
    with pytest.raises(StudyError, match="at least 1"):
        parallel_places(0, None)
