"""A verifier with faults: how often, for whom, and that the seed decides."""

import pytest

from refblend.config.root import VerifierConfig
from refblend.errors import ConfigError
from refblend.rewards.imperfect import imperfect_rewards

PLACES = [(prompt, sample) for prompt in range(400) for sample in range(4)]
RIGHT = [1.0] * len(PLACES)


def test_a_verifier_without_faults_changes_nothing() -> None:
    rewards = [0.3, -2.0, 7.0]
    assert imperfect_rewards(VerifierConfig(), rewards, PLACES[:3], 1, 1) == rewards


def test_a_sparse_verifier_credits_some_problems_in_every_step() -> None:
    sparse = VerifierConfig(checked_share=0.25)
    first, later = (imperfect_rewards(sparse, RIGHT, PLACES, step, 1) for step in (1, 9))
    assert first == later
    by_problem = [set(first[4 * prompt : 4 * prompt + 4]) for prompt in range(400)]
    assert all(len(values) == 1 for values in by_problem)
    assert sum(first) / len(first) == pytest.approx(0.25, abs=0.07)  # three standard errors
    assert imperfect_rewards(sparse, RIGHT, PLACES, 1, 2) != first
    assert set(imperfect_rewards(sparse, [0.0] * len(PLACES), PLACES, 1, 1)) == {0.0}


def test_a_noisy_verifier_flips_responses_anew_in_every_step() -> None:
    noisy = VerifierConfig(flip_rate=0.2)
    first, later = (imperfect_rewards(noisy, RIGHT, PLACES, step, 1) for step in (1, 2))
    assert first == imperfect_rewards(noisy, RIGHT, PLACES, 1, 1) != later
    assert 1 - sum(first) / len(first) == pytest.approx(0.2, abs=0.03)
    flipped = imperfect_rewards(noisy, [0.0] * len(PLACES), PLACES, 1, 1)
    assert [1 - reward for reward in flipped] == first


def test_a_reward_without_an_opposite_is_refused() -> None:
    with pytest.raises(ConfigError, match="one is 2"):
        imperfect_rewards(VerifierConfig(flip_rate=1.0), [2.0], [(0, 0)], 1, 1)
