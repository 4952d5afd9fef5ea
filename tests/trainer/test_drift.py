"""The drift guard compares with the first validation, also after a resume."""

import json

import pytest

from refblend.config.trainer import DriftGuardConfig
from refblend.errors import DriftError
from refblend.trainer.drift import SANITY_KEY, DriftGuard


def at(accuracy: float) -> dict[str, float]:
    return {SANITY_KEY: accuracy, "val-core/other/acc/mean@1": 0.0}


def test_warns_when_it_falls_by_more_than_the_margin() -> None:
    guard = DriftGuard(DriftGuardConfig(max_drop=0.25))
    assert guard.check(at(0.5)) is None
    assert guard.check(at(0.25)) is None, "the margin itself is allowed"
    assert guard.check(at(0.9)) is None
    warning = guard.check(at(0.125))
    assert warning is not None
    assert "0.500" in warning
    assert "0.125" in warning


def test_no_sanity_set_no_guard() -> None:
    guard = DriftGuard(DriftGuardConfig())
    assert guard.check({"val-core/refblend/arithmetic/acc/mean@1": 1.0}) is None
    assert guard.check({}) is None
    assert guard.state_dict() == {"start": None}


def test_stops_when_told_to() -> None:
    guard = DriftGuard(DriftGuardConfig(max_drop=0.1, stop=True))
    guard.check(at(0.5))
    with pytest.raises(DriftError, match=r"0\.500 to 0\.300") as caught:
        guard.check(at(0.3))
    assert caught.value.remedy


def test_a_resumed_run_compares_with_the_run_s_start() -> None:
    guard = DriftGuard(DriftGuardConfig(max_drop=0.1))
    guard.check(at(0.5))
    resumed = DriftGuard(DriftGuardConfig(max_drop=0.1))
    resumed.load_state_dict(json.loads(json.dumps(guard.state_dict())))
    assert resumed.check(at(0.3)) is not None
