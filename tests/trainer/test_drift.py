"""The drift guard compares with the first validation, also after a resume."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from refblend.config import RefblendConfig
from refblend.config.trainer import DriftGuardConfig
from refblend.errors import DriftError
from refblend.trainer.datasets import load_run_data
from refblend.trainer.guards import SANITY_KEY, SANITY_SOURCE, DriftGuard


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


def test_an_actor_that_learned_is_compared_with_its_best() -> None:
    """From 0.25 up to 0.9 and down to 0.5: never below the start, and lost 0.4 all the same."""
    course = (0.25, 0.9, 0.85, 0.5)
    for reference, warned in (("start", False), ("best", True)):
        settings = {"max_drop": 0.2, "reference": reference}
        guard = DriftGuard(DriftGuardConfig.model_validate(settings))
        assert [guard.check(at(accuracy)) for accuracy in course[:3]] == [None] * 3
        resumed = DriftGuard(guard.config)
        resumed.load_state_dict(json.loads(json.dumps(guard.state_dict())))
        assert (resumed.check(at(course[3])) is not None) == warned


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


def test_any_rows_may_be_the_sanity_set(
    tiny_config: Callable[..., RefblendConfig], tiny_data_dir: Path
) -> None:
    """It is named by its purpose; see test_validation.py for the metrics."""
    data = load_run_data(tiny_config(f"data.sanity_files=[{tiny_data_dir / 'train.parquet'}]"))
    assert [part.source for part in data.validation_sets] == [None, SANITY_SOURCE]
