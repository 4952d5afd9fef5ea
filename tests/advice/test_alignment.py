"""Alignment against a slow implementation, and what the pieces of the advice must satisfy."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_rollouts import rollouts, slow_alignment

from refblend.advice.alignment import (
    Blend,
    Samples,
    auc_within_prompts,
    map_headroom,
    resampled,
    tilted,
)
from refblend.advice.answer import samples_of


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 10_000),
    st.sampled_from([0.0, 0.3, 1.0]),
    st.sampled_from(["terminal", "per_token"]),
    st.sampled_from(["all", "mixed"]),
)
def test_alignment_equals_the_slow_implementation(seed, weight, placement, groups):
    frame = rollouts(12, n=4, seed=seed)
    blend = Blend(weight, placement, groups)
    found = samples_of(frame).sums([blend], norm_by_std=True).alignment()[0]
    assert found == pytest.approx(slow_alignment(frame, blend), abs=1e-6)


def test_an_exact_reward_is_aligned_and_shuffled_rows_change_nothing():
    frame = rollouts(40, flip=0.0)
    blends = [Blend(0.0), Blend(0.4)]
    sums = samples_of(frame).sums(blends, norm_by_std=False)
    assert sums.alignment()[0] == pytest.approx(1.0)
    other = samples_of(frame.sample(frac=1, random_state=1)).sums(blends, norm_by_std=False)
    np.testing.assert_allclose(other.alignment(), sums.alignment(), rtol=1e-9)


def test_drawing_every_prompt_once_is_the_estimate_itself():
    samples = samples_of(rollouts(30))
    sums = samples.sums([Blend(0.0), Blend(0.5)], norm_by_std=True)
    once = sums.alignment(np.ones((1, samples.prompts)))[0]
    np.testing.assert_allclose(once, sums.alignment())
    counts = resampled(samples.prompts)
    assert (counts.sum(axis=1) == samples.prompts).all()


def test_labels_of_half_the_responses_give_nearly_the_same_alignment():
    frame = rollouts(400, n=8)
    whole = samples_of(frame).sums([Blend(0.3)], norm_by_std=True).alignment()[0]
    frame.loc[frame.prompt_id % 2 == 1, "truth"] = np.nan
    half = samples_of(frame).sums([Blend(0.3)], norm_by_std=True).alignment()[0]
    assert half == pytest.approx(whole, abs=0.03)


def test_auc_within_prompts_counts_pairs():
    frame = rollouts(15, n=5)
    samples = samples_of(frame)
    good = pairs = 0.0
    for _, group in frame.groupby("prompt_id"):
        for right in group[group.truth == 1].judge_score:
            for wrong in group[group.truth == 0].judge_score:
                good += (right > wrong) + 0.5 * (right == wrong)
                pairs += 1
    assert auc_within_prompts(samples, samples.score) == pytest.approx(good / pairs)


def test_a_positive_tilt_takes_weight_from_high_entropy_and_keeps_the_mean():
    rank = (np.arange(100) + 0.5) / 100
    weights = tilted(np.full(100, 0.4), rank, 1.0)
    assert weights[0] > weights[-1]
    assert weights.mean() == pytest.approx(0.4)
    assert weights.min() >= 0
    assert weights.max() <= 1


def _headroom(frame: pd.DataFrame) -> tuple[float, tuple[float, float]]:
    samples: Samples = samples_of(frame)
    constants = [Blend(0.1 * k) for k in range(11)]
    maps = [Blend(0.1 * k, tilt=t) for k in range(1, 11) for t in (-1.0, 0.0, 1.0)]
    sums = (samples.sums(blends, norm_by_std=True) for blends in (constants, maps))
    return map_headroom(*sums, resampled(samples.prompts))


def test_an_entropy_that_says_nothing_gives_a_map_no_headroom():
    gain, low, high = _headroom(rollouts(200))
    assert abs(gain) < 0.005
    assert low <= 0 <= high


def test_a_judge_that_is_right_only_at_low_entropy_gives_a_map_headroom():
    frame = rollouts(300, skill=3.0)
    chance = np.random.default_rng(5).random(len(frame))
    frame["judge_score"] = frame.judge_score.where(frame.entropy < 0.5, chance)
    gain, low, _ = _headroom(frame)
    assert gain > 0.01
    assert low > 0
