"""One number per run and measure, compared with numbers worked by hand."""

import numpy as np
import pandas as pd
import pytest

from refblend.study.design.measures import MEASURES
from refblend.study.runs.collect import STEP, Collected, frames_of
from refblend.study.runs.measures import run_measures, wide

STEPS = 8
VALIDATION = {0: 0.1, 4: 0.5, 8: 0.3}
SCORES = [0.0, 0.0, 0.0, 0.1, 0.2, 0.3, 0.4, 0.5]
ENTROPY = [1.0, 0.9, 0.8, 0.05, 0.05, 0.05, 0.05, 0.05]
SECONDS = [60.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0]


def collected(judged: bool = True, status: str = "finished") -> Collected:
    rows: list[tuple[int, str, float]] = [
        (step, "val-core/refblend/arithmetic/acc/mean@1", value)
        for step, value in VALIDATION.items()
    ]
    for step in range(1, STEPS + 1):
        rows += [
            (step, "critic/score/mean", SCORES[step - 1]),
            (step, "critic/acc/mean", 0.1 * step),
            (step, "actor/ref_quality/avg_entropy", ENTROPY[step - 1]),
            (step, "actor/pg_loss", 0.01 * (step % 3) + (9.0 if step == 5 else 0.0)),
            (step, "actor/grad_norm", 0.3 + 0.01 * (step % 3)),
            (step, "response_length/mean", 20.0 + step),
            (step, "perf/time_per_step", SECONDS[step - 1]),
            (step, "perf/throughput", 100.0 * step),
            (step, "perf/cpu_memory_used_gb", 3.0 if step == 6 else 2.0),
        ]
        if judged:
            rows += [
                (step, "actor/ref_quality/weight", 0.01 * step),
                (step, "timing_s/ref_quality_score", float(step)),
                (step, "actor/ref_quality/valid_rate", 1.0),
            ]
    rows += [(STEPS, "test/greedy", 0.6), (STEPS, "test/sampled", 0.4)]
    if judged:  # the AUC is missing where a batch has one class only
        rows += [(2, "actor/ref_quality/auc", 0.8), (3, "actor/ref_quality/auc", 0.6)]
    frame = pd.DataFrame([("x", 1, *row) for row in rows], columns=[*STEP, "metric", "value"])
    wide = frame.pivot(index=STEP, columns="metric", values="value").reset_index()
    runs = pd.DataFrame([{"arm": "x", "seed": 1, "status": status, "reason": ""}])
    return frames_of(runs, wide, pd.DataFrame())


def numbers(frames: Collected) -> dict[str, float]:
    values = run_measures(frames)
    assert set(values.arm) <= {"x"}
    return values.drop(columns=["arm", "seed"]).iloc[0].dropna().to_dict()


def test_every_measure_by_hand() -> None:
    expected = {
        "test_greedy": 0.6,
        "test_sampled": 0.4,
        "val_final": 0.3,
        "val_best": 0.5,
        "val_gain": 0.2,
        "val_auc": (4 * (0.1 + 0.5) / 2 + 4 * (0.5 + 0.3) / 2) / 8,
        # From 0.1 at step 0 to 0.5 at step 4: a straight line, and 8/3 steps of it.
        "val_auc_third": 0.1 + 0.1 * (8 / 3) / 2,
        "val_drawdown": 0.2,
        "train_acc": 0.45,
        "train_acc_third": 0.15,  # steps 1 and 2 of 8
        "final_return": (0.1 + 0.2 + 0.3 + 0.4 + 0.5) / 5,
        "loss_spikes": 1,
        "grad_spikes": 0,
        "entropy_start": 1.0,
        "entropy_end": 0.05,
        "entropy_collapse": 1.0,
        "length_end": 28.0,
        "weight_mean": 0.045,
        "judge_auc": 0.7,
        "valid_rate": 1.0,
        "step_seconds": 7.0,  # median of 4 … 10: the first step is left out
        "throughput": 500.0,
        "memory_gb": 3.0,
        "judge_seconds": 5.0,
    }
    found = numbers(collected())
    assert found == pytest.approx(expected)
    assert list(found) == [name for name in MEASURES if name in expected]  # in declared order


def test_no_judge_no_row() -> None:
    found = numbers(collected(judged=False))
    judges = {"weight_mean", "judge_auc", "nonzero_rate", "valid_rate", "judge_seconds"}
    assert not judges & set(found)
    assert found["test_greedy"] == 0.6


def test_entropy_that_stays_is_no_collapse() -> None:
    frames = collected()
    steady = frames.metrics.assign(**{"actor/ref_quality/avg_entropy": 0.5})
    assert numbers(frames._replace(metrics=steady))["entropy_collapse"] == 0.0


@pytest.mark.parametrize("status", ["failed", "stopped", "incomplete", "missing"])
def test_only_finished_runs_count(status: str) -> None:
    assert run_measures(collected(status=status)).empty


def test_wide_has_every_arm_and_seed_that_was_asked_for() -> None:
    values = pd.DataFrame(
        [("a", 2, 0.2, np.nan), ("a", 1, 0.1, 9.0), ("b", 2, 0.4, np.nan)],
        columns=["arm", "seed", "m", "other"],
    )
    table = wide(values, "m", {"b": [2], "gone": [], "a": [4, 1]})
    assert table.columns.tolist() == ["b", "gone", "a"]
    assert table.index.tolist() == [1, 2, 4]
    missing = np.nan
    np.testing.assert_array_equal(
        table, [[missing, missing, 0.1], [0.4, missing, missing], [missing] * 3]
    )
