import pytest

from refblend.trainer import console
from refblend.trainer.console import SANITY_KEY, TrainingProgress, validation_accuracy


def test_the_headline_is_the_mean_over_the_sources():
    metrics = {
        "val-core/b/acc/mean@1": 0.5,
        "val-core/a/acc/mean@1": 0.2,
        "val-core/c/acc/mean@1": None,
    }
    assert validation_accuracy(metrics | {SANITY_KEY: 1.0, "val-core/a/acc/mean@8": 0.9}) == 0.35
    assert validation_accuracy({SANITY_KEY: 1.0}) is None


def test_eta_after_resume_and_after_a_slow_start(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(console.time, "monotonic", lambda: now[-1])
    progress = TrainingProgress(100, "linear/seed_1", start_step=40)
    assert progress.seconds_left(40) is None
    now.append(600.0)
    progress.log(41, {})
    for step in range(42, 52):
        now.append(now[-1] + 2)
        progress.log(step, {})
    assert progress.seconds_left(51) == pytest.approx(98)
