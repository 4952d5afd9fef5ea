"""Aggregates and the guard against a judge that fails again and again."""

import json
import math

import pytest

from refblend.errors import ScoringError
from refblend.scoring.result import InvalidRateGuard, JudgeResult, summarise

GOOD = JudgeResult(0.8, True, "text", latency_s=0.2, new_tokens=10, prompt_tokens=100)
ZERO = JudgeResult(0.0, True, "text", latency_s=0.2, new_tokens=20, prompt_tokens=100)
TOKEN = JudgeResult(0.4, True, "token", latency_s=0.2, new_tokens=30, template="compact")
UNREAD = JudgeResult(0.5, False, "default", latency_s=0.2, new_tokens=64, clipped=True)
LONG = JudgeResult(0.5, False, "overlength", prompt_tokens=900)
ERROR = JudgeResult(0.5, False, "error", raw="TimeoutError: 30 s")


def test_summary() -> None:
    summary = summarise([GOOD, ZERO, TOKEN, UNREAD, LONG, ERROR, GOOD, GOOD])
    assert summary.count == 8
    assert summary.score_mean == pytest.approx((0.8 * 3 + 0.4 + 1.5) / 8)
    assert summary.valid_score_mean == pytest.approx((0.8 * 3 + 0.4) / 5)
    assert summary.nonzero_rate == 4 / 8
    assert summary.valid_rate == 5 / 8
    assert summary.fallback_rate == 4 / 8
    assert summary.paths == {
        "text": 4,
        "token": 1,
        "logit": 0,
        "default": 1,
        "overlength": 1,
        "error": 1,
    }
    assert summary.compact_rate == summary.clipped_rate == 1 / 8
    assert summary.new_tokens_mean == pytest.approx((10 * 3 + 20 + 30 + 64) / 6)
    assert summary.latency_s_mean == pytest.approx(0.2)
    metrics = summary.metrics()
    assert metrics["incidents/overlength"] == metrics["incidents/judge_error"] == 1
    assert metrics["actor/ref_quality/nonzero_rate"] == 0.5


def test_metrics_are_json_numbers_even_when_nothing_was_submitted() -> None:
    json.dumps(summarise([LONG, ERROR]).metrics(), allow_nan=False)
    assert math.isnan(summarise([LONG]).valid_score_mean)


def test_nothing_to_summarise() -> None:
    with pytest.raises(ValueError, match="no judge results"):
        summarise([])


def test_guard_acts_from_the_first_step() -> None:
    with pytest.raises(ScoringError, match=r"100\.0% .* of the last 1 steps"):
        InvalidRateGuard(max_invalid_rate=0.5, window=3).update([ERROR] * 10)


def test_guard_looks_at_the_window_and_forgets() -> None:
    guard = InvalidRateGuard(max_invalid_rate=0.5, window=3)
    guard.update([GOOD] * 20)
    guard.update([ERROR] * 10)
    guard.update([ERROR] * 10)
    assert guard.rate == 0.5
    guard.update([GOOD] * 60)
    assert guard.rate == 0.25


def test_guard_stops_the_run_and_says_why() -> None:
    guard = InvalidRateGuard(max_invalid_rate=0.5, window=2)
    guard.update([ERROR, GOOD, GOOD])
    with pytest.raises(ScoringError) as caught:
        guard.update([ERROR, LONG, UNREAD, GOOD])
    message = str(caught.value)
    for words in ("57.1%", "last 2 steps", "default 1", "overlength 1", "error 2", "50.0%"):
        assert words in message
    assert "scoring.max_invalid_rate" in caught.value.remedy


def test_guard_at_the_limit_goes_on_and_ignores_empty_batches() -> None:
    guard = InvalidRateGuard(max_invalid_rate=0.5, window=1)
    guard.update([ERROR, GOOD])
    guard.update([])
    assert guard.rate == 0.5
    InvalidRateGuard(1.0, 1).update([ERROR])


def test_guard_survives_a_checkpoint() -> None:
    guard = InvalidRateGuard(max_invalid_rate=0.4, window=2)
    guard.update([GOOD] * 4)
    state = json.loads(json.dumps(guard.state_dict()))
    resumed = InvalidRateGuard(max_invalid_rate=0.4, window=2)
    resumed.load_state_dict(state)
    resumed.update([ERROR, ERROR])
    with pytest.raises(ScoringError):
        InvalidRateGuard(max_invalid_rate=0.4, window=2).update([ERROR, ERROR])


@pytest.mark.parametrize(("rate", "window"), [(-0.1, 5), (1.1, 5), (float("nan"), 5), (0.5, 0)])
def test_guard_refuses_nonsense(rate: float, window: int) -> None:
    with pytest.raises(ScoringError, match="scoring"):
        InvalidRateGuard(rate, window)
