"""The drift guard compares with the first validation, also after a resume."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from refblend.config import RefblendConfig
from refblend.config.actor_rollout_ref import ValKwargs
from refblend.config.trainer import DriftGuardConfig
from refblend.data.schema import read_rows, write_rows
from refblend.errors import DriftError
from refblend.rewards.rule import RuleReward
from refblend.rollout.base import Generation
from refblend.trainer.datasets import load_run_data
from refblend.trainer.guards import SANITY_KEY, DriftGuard
from refblend.trainer.validation import validation_metrics


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


def test_a_resumed_run_compares_with_the_run_s_start() -> None:
    guard = DriftGuard(DriftGuardConfig(max_drop=0.1))
    guard.check(at(0.5))
    resumed = DriftGuard(DriftGuardConfig(max_drop=0.1))
    resumed.load_state_dict(json.loads(json.dumps(guard.state_dict())))
    assert resumed.check(at(0.3)) is not None


def test_any_rows_may_be_the_sanity_set(
    tmp_path: Path, tiny_config: Callable[..., RefblendConfig], tiny_data_dir: Path
) -> None:
    rows = [
        dataclasses.replace(row, data_source="openai/gsm8k")
        for row in read_rows(tiny_data_dir / "sanity.parquet")
    ]
    write_rows(tmp_path / "known.parquet", rows)
    data = load_run_data(tiny_config(f"data.sanity_files=[{tmp_path / 'known.parquet'}]"))
    right = [row.ground_truth for part in data.validation_sets for row in part.dataset.rows]
    assert len(right) == 16 + 8

    def metrics_of(known: str) -> dict[str, float]:
        texts = ["#### 0"] * 8 + [known.format(row.ground_truth) for row in rows]
        answers = [Generation([ord(c) for c in text], [], "stop", 0) for text in texts]
        return validation_metrics(
            data.validation_sets,
            ValKwargs(n=0),
            answers,
            lambda ids: "".join(map(chr, ids)),
            RuleReward(),
        )

    guard = DriftGuard(DriftGuardConfig())
    assert guard.check(metrics_of("#### {}")) is None
    warning = guard.check(metrics_of("#### 0{}1"))
    assert warning is not None
    assert "from 1.000 to 0.000" in warning
