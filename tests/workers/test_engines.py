"""How a batch is dealt out among engines, and how its answers are put together again."""

import itertools
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refblend.errors import ConfigError
from refblend.scoring.judge import CallStats
from refblend.workers import engines
from refblend.workers.engines import EngineGroup, Work, split_rows
from refblend.workers.pools import plan_pools, totals
from refblend.workers.restarts import WorkerTimeoutError

ROLLOUT = "actor_rollout_ref.rollout"
JUDGE = "algorithm.ref_quality_score.scoring"


@st.composite
def works(draw: st.DrawFn) -> Work:
    """Up to 40 rows of up to 12 prompts; the prefix follows from the prompt."""
    keys = draw(st.lists(st.integers(0, 11), max_size=40))
    own = draw(st.lists(st.integers(1, 50), min_size=len(keys), max_size=len(keys)))
    return Work(keys, [float(7 * key) for key in keys], list(map(float, own)))


@given(works(), st.integers(1, 6))
def test_every_row_goes_to_one_engine_and_a_prompt_is_not_torn(work: Work, count: int) -> None:
    shares = split_rows(work, count)
    assert len(shares) == count
    assert sorted(itertools.chain(*shares)) == list(range(len(work.keys)))
    assert all(share == sorted(share) for share in shares)
    of_key = [{work.keys[row] for row in share} for share in shares]
    assert sum(map(len, of_key)) == len(set(work.keys))
    assert split_rows(work, count) == shares


def load(work: Work, rows: list[int]) -> float:
    prefixes = {work.keys[row]: work.prefix[row] for row in rows}
    return sum(prefixes.values()) + sum(work.own[row] for row in rows)


@given(works(), st.integers(1, 3))
def test_the_longest_share_is_near_the_best_possible(work: Work, count: int) -> None:
    """Graham's bound for LPT, 4/3 - 1/(3m), against every way to deal out up to 7 prompts."""
    keys = sorted(set(work.keys))[:7]
    rows = [row for row, key in enumerate(work.keys) if key in keys]
    work = Work(*([column[row] for row in rows] for column in (work.keys, work.prefix, work.own)))
    longest = max(load(work, share) for share in split_rows(work, count))
    best = min(
        max(
            load(work, [row for row, key in enumerate(work.keys) if deal[keys.index(key)] == e])
            for e in range(count)
        )
        for deal in itertools.product(range(count), repeat=len(keys))
    )
    assert longest <= best * (4 / 3 - 1 / (3 * count)) + 1e-9


def test_one_engine_gets_the_batch_as_it_is() -> None:
    assert split_rows(Work("abab", [1] * 4, [5, 4, 3, 2]), 1) == [[0, 1, 2, 3]]
    assert split_rows(Work("", [], []), 2) == [[], []]


def test_the_longest_prompt_has_an_engine_of_its_own() -> None:
    """Its shared tokens count once: 30 + 2 × 5 against 2 × 10 + 2 × 10."""
    work = Work("abaccb", [30, 10, 30, 10, 10, 10], [5, 5, 5, 5, 5, 5])
    assert split_rows(work, 2) == [[0, 2], [1, 3, 4, 5]]


class FakeFuture:
    def __init__(self, answers: Any) -> None:
        self.references = (object(),)
        self.answers = answers

    def results(self, left_s: float | None) -> Any:
        if isinstance(self.answers, Exception):
            raise self.answers
        return [self.answers]


class FakeEngine:
    """Doubles numbers, or misses its deadline."""

    role = "judge"

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    def call(self, method: str, numbers: list[int]) -> FakeFuture:
        assert method == "double"
        return FakeFuture(self.error or [2 * n for n in numbers])


@pytest.fixture
def last_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine that was asked last is done first."""
    monkeypatch.setattr(engines.ray, "wait", lambda waiting, **_: (waiting[-1:], waiting[:-1]))


@pytest.mark.usefixtures("last_first")
def test_answers_come_back_in_the_order_of_the_batch() -> None:
    group = EngineGroup(cast("Any", [FakeEngine() for _ in range(3)]), timeout_s=5)
    numbers = list(range(10))
    work = Work([n % 4 for n in numbers], [1] * 10, [1] * 10)
    call = group.split("double", [numbers], work)
    assert call.results() == [2 * n for n in numbers]
    assert set(group.idle_metrics()) == {f"perf/judge/idle_share/{i}" for i in range(3)}
    assert min(group.idle_shares) == 0
    assert all(part.answered for part in call.parts)


@pytest.mark.usefixtures("last_first")
def test_an_engine_that_is_late_fails_the_call_or_its_own_share() -> None:
    late = WorkerTimeoutError("the judge worker did not answer within 5 s", "Raise it.")
    group = EngineGroup(cast("Any", [FakeEngine(), FakeEngine(late)]), timeout_s=5)
    work = Work("aabb", [1] * 4, [1] * 4)
    with pytest.raises(WorkerTimeoutError):
        group.split("double", [[1, 2, 3, 4]], work).results()
    call = group.split("double", [[1, 2, 3, 4]], work)
    assert call.results(lambda error, count: [0] * count) == [2, 4, 0, 0]
    assert [part.answered for part in call.parts] == [True, False]


def test_one_engine_has_no_idle_share() -> None:
    group = EngineGroup(cast("Any", [FakeEngine()]), timeout_s=5)
    assert group.split("double", [[3]], Work("a", [1], [1])).results() == [6]
    assert group.idle_metrics() == {}


def test_statistics_of_engines_side_by_side() -> None:
    one = CallStats(4, 3, 2.0, 30, 12, 0.5)
    assert CallStats.merged([one]) is one
    assert CallStats.merged([]) == CallStats()
    both = CallStats.merged([one, CallStats(2, 2, 5.0, 10, 6, 0.9), CallStats(1, 0, 0.0, 0, 0)])
    assert both == CallStats(7, 5, 5.0, 40, 18, pytest.approx(0.6))


def test_engines_are_bundles_of_their_own(tiny_config) -> None:
    config = tiny_config(
        f"{ROLLOUT}.num_engines=3", f"{ROLLOUT}.num_gpus=0.5", f"{JUDGE}.num_engines=2"
    )
    (pool,) = plan_pools(config).values()
    assert [b.role for b in pool] == ["actor", *["rollout"] * 3, *["judge"] * 2]
    assert totals(plan_pools(config)) == (6.0, 1.5)


def test_an_endpoint_has_no_engines_of_ours(tiny_config) -> None:
    http = (f"{JUDGE}.kind=http", f"{JUDGE}.http.base_url=http://h:1/v1", f"{JUDGE}.http.model=m")
    with pytest.raises(ConfigError, match="num_engines=2, but with kind=http"):
        tiny_config(*http, f"{JUDGE}.num_engines=2")
