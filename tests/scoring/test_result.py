"""Aggregates and the guard against a judge that fails again and again."""

import json
import statistics

import pytest

from refblend.errors import ScoringError
from refblend.scoring.result import InvalidRateGuard, JudgeResult, score_metrics

GOOD = JudgeResult(0.8, True, "text", latency_s=0.2, new_tokens=10, prompt_tokens=100)
ZERO = JudgeResult(0.0, True, "text", latency_s=0.2, new_tokens=20, prompt_tokens=100)
TOKEN = JudgeResult(0.4, True, "token", latency_s=0.2, new_tokens=30, template="compact")
UNREAD = JudgeResult(0.5, False, "default", latency_s=0.2, new_tokens=64, clipped=True)
LONG = JudgeResult(0.5, False, "overlength", prompt_tokens=900)
ERROR = JudgeResult(0.5, False, "error", raw="TimeoutError: 30 s")


def test_metrics() -> None:
    metrics = score_metrics([GOOD, ZERO, TOKEN, UNREAD, LONG, ERROR, GOOD, GOOD])
    scores = [0.8, 0.0, 0.4, 0.5, 0.5, 0.5, 0.8, 0.8]
    assert metrics == pytest.approx(
        {
            "actor/ref_quality/score_mean": statistics.mean(scores),
            "actor/ref_quality/score_std": statistics.pstdev(scores),
            "actor/ref_quality/nonzero_rate": 4 / 8,
            "actor/ref_quality/valid_rate": 5 / 8,
            "actor/ref_quality/fallback_rate": 4 / 8,
            "actor/ref_quality/compact_rate": 1 / 8,
            "actor/ref_quality/clipped_rate": 1 / 8,
            "actor/ref_quality/new_tokens_mean": (10 * 3 + 20 + 30 + 64) / 6,
            "incidents/overlength": 1,
            "incidents/judge_invalid": 1,
            "incidents/judge_error": 1,
        }
    )


def test_metrics_where_nothing_was_submitted_or_asked_for() -> None:
    json.dumps(score_metrics([LONG, ERROR]), allow_nan=False)
    with pytest.raises(ValueError, match="no judge results"):
        score_metrics([])


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
