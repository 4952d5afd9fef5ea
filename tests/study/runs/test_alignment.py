"""Alignment of recorded responses, against the definition written out."""

import numpy as np
import pandas as pd
import pytest

from refblend.study.runs.run_files import alignment_by_step


def _written_out(blended: np.ndarray, acc: np.ndarray, by_std: bool) -> float:
    """(prompts, responses) → cosine of GRPO's advantages and the centred truth."""
    own = blended - blended.mean(axis=1, keepdims=True)
    if by_std:
        own = own / (blended.std(axis=1, ddof=1, keepdims=True) + 1e-6)
    truth = acc - acc.mean(axis=1, keepdims=True)
    return float((own * truth).sum() / np.sqrt((own**2).sum() * (truth**2).sum()))


@pytest.mark.parametrize("by_std", [True, False])
def test_each_recorded_step_has_its_own_alignment(by_std: bool) -> None:
    rng = np.random.default_rng(3)
    rows, expected = [], {}
    for step in (5, 10):
        acc = (rng.random((6, 4)) < 0.5).astype(float)
        blended = 0.7 * acc + 0.3 * rng.random((6, 4))
        expected[step] = _written_out(blended, acc, by_std)
        rows += [
            {"step": step, "uid": p, "blended": blended[p, n], "acc": acc[p, n], "reward": 1.0}
            for n in range(4)
            for p in range(6)
        ]
    algorithm, frame = {"norm_adv_by_std_in_grpo": by_std}, pd.DataFrame(rows)
    assert alignment_by_step(algorithm, frame) == pytest.approx(expected, abs=1e-6)
    for other in ({"adv_estimator": "gae"}, {"ref_quality_score": {"method": "hero"}}):
        assert alignment_by_step(other, frame) == {}, "its advantages are not recorded"


def test_steps_without_groups_or_truth_have_none() -> None:
    alone = [{"step": 5, "uid": p, "blended": 0.5, "acc": 1.0} for p in range(3)]
    equal = [{"step": 6, "uid": 0, "blended": b, "acc": 1.0} for b in (0.1, 0.9)]
    unknown = [{"step": 7, "uid": 0, "blended": b, "acc": None} for b in (0.1, 0.9)]
    for rows in ([*alone, *equal, *unknown], []):
        assert alignment_by_step({}, pd.DataFrame(rows)) == {}
