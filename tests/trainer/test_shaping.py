"""From experience to rewards, with numbers worked by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from refblend.config import RefblendConfig
from refblend.config.algorithm import RefQualityScoreConfig, ReprAlignConfig
from refblend.errors import TrainingError
from refblend.ppo.kl import KLController
from refblend.scoring.result import JudgeResult, score_metrics
from refblend.trainer.batch import Experience, GreedyResponses, Rollout
from refblend.trainer.shaping import (
    BlendContext,
    add_alignment_bonus,
    blend,
    judge_metrics,
    penalise_kl,
    reward_length_correlation,
)
from refblend.workers.types import Sequences, response_mask

LENGTHS = [3, 1, 2]
MASK = response_mask(LENGTHS)
RULE = torch.tensor([1.0, 0.0, 1.0])
SCORES = [0.8, 0.5, 0.2]


def rollout() -> Rollout:
    return Rollout(
        sequences=Sequences([[1]] * 3, [[2] * n for n in LENGTHS]),
        texts=["a", "b", "c"],
        finished=[True, True, False],
        response_mask=MASK,
        log_probs=torch.zeros(3, 3),
    )


def experience(quality=True, valid=(True, True, True), entropy=0.4) -> Experience:
    """Entropies of 0.2, 0.4 and 0.6 by row (garbage where masked): their mean is 0.4."""
    rows = torch.tensor([[0.2], [0.4], [0.6]]) * entropy / 0.4
    paths = ["text" if v else "default" for v in valid]
    return Experience(
        rule=RULE,
        accuracy=RULE,
        quality=[JudgeResult(s, v, p) for s, v, p in zip(SCORES, valid, paths, strict=True)]
        if quality
        else None,
        old_log_probs=-torch.ones(3, 3),
        entropy=rows.expand(3, 3) + (1 - MASK) * 99.0,
        reference=-torch.tensor([[1.5], [1.0], [0.5]]).expand(3, 3),
    )


def config(**changes) -> RefQualityScoreConfig:
    scoring = {"model_path": "judge"} | changes.pop("scoring", {})
    return RefQualityScoreConfig(scoring=scoring, **changes)


FIRST = BlendContext(1, 10, groups=(0, 0, 1))


def run(settings=None, seed=0, context=FIRST, **kwargs):
    blended = blend(
        settings or config(), rollout(), experience(**kwargs), context, np.random.default_rng(seed)
    )
    assert blended.baselines is None
    return blended.rewards, blended.metrics


def close(a, b) -> None:
    torch.testing.assert_close(a, torch.tensor(b))


def test_linear_blend_per_token_by_hand():
    rewards, metrics = run()
    # ê = 0.4/1.0, w = 0.3·(1 − 0.4) = 0.18
    assert metrics["actor/ref_quality/avg_entropy"] == pytest.approx(0.4)
    assert metrics["actor/ref_quality/weight"] == pytest.approx(0.18)
    close(
        rewards,
        [
            [0.18 * 0.8, 0.18 * 0.8, 0.82 + 0.18 * 0.8],
            [0.18 * 0.5, 0.0, 0.0],
            [0.18 * 0.2, 0.82 + 0.18 * 0.2, 0.0],
        ],
    )


def test_off_is_the_rule_reward_and_still_logs_the_entropy():
    rewards, metrics = run(RefQualityScoreConfig(enable=False), quality=False)
    close(rewards, [[0.0, 0, 1], [0, 0, 0], [0, 1, 0]])
    assert list(metrics) == ["actor/ref_quality/avg_entropy"]


def test_the_weight_is_that_of_the_strategy_and_all_are_logged():
    _, metrics = run(config(strategy="cosine"), context=replace(FIRST, step=2))
    assert metrics["actor/ref_quality/weight"] == pytest.approx(
        0.15 * (1 + math.cos(0.4 * math.pi))
    )
    ours = "actor/ref_quality/counterfactual"
    assert metrics[f"{ours}/cosine"] == metrics["actor/ref_quality/weight"]
    assert metrics[f"{ours}/schedule"] == pytest.approx(0.3 * 2 / 5)  # half of the 10 steps


def test_an_invalid_score_is_blended_as_the_neutral_one_or_not_at_all():
    valid = (True, False, False)
    neutral, metrics = run(valid=valid)
    close(neutral[1], [0.09, 0.0, 0.0])  # 0.18 · 0.5, as the result carries it
    assert metrics["actor/ref_quality/valid_rate"] == pytest.approx(1 / 3)
    assert metrics["incidents/judge_invalid"] == 2.0
    pure, _ = run(config(scoring={"on_failure": "rule_reward"}), valid=valid)
    close(pure[1:], [[0.0, 0, 0], [0, 1, 0]])  # R itself, not (1 − w)R
    close(pure[0], neutral[0].tolist())


def test_shuffled_scores_are_a_permutation_that_the_seed_decides():
    settings = config(scoring={"control": "shuffled"})
    first = [run(settings, seed=s)[0] for s in range(8)]
    again = [run(settings, seed=s)[0] for s in range(8)]
    for a, b in zip(first, again, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)
        shares = sorted(
            (row[0] - (0.82 if n == 1 and r else 0)).item() / 0.18
            for row, n, r in zip(a, LENGTHS, RULE, strict=True)
        )
        assert shares == pytest.approx(sorted(SCORES), abs=1e-6)
    assert len({tuple(a.flatten().tolist()) for a in first}) > 1


def test_judge_figures_by_hand():
    results = [
        JudgeResult(0.9, True, "text"),
        JudgeResult(0.4, True, "token"),
        JudgeResult(0.0, True, "text"),
        JudgeResult(0.5, False, "overlength"),
    ]
    metrics = judge_metrics(results, torch.tensor([1.0, 0.0, 1.0, 1.0]))
    assert metrics.items() >= score_metrics(results).items()
    # right answers 0.9 and 0.0 against the wrong 0.4: one pair of two is in order
    assert metrics["actor/ref_quality/auc"] == pytest.approx(0.5)


def kl_config(**algorithm) -> RefblendConfig:
    return RefblendConfig.model_validate(
        {
            "data": {"train_files": ["t"], "val_files": ["v"]},
            "actor_rollout_ref": {"model": {"path": "m"}},
            "algorithm": {"use_kl_in_reward": True} | algorithm,
        }
    )


def test_kl_is_taken_off_after_the_blend_by_hand():
    blended, _ = run()
    controller = KLController(0.1)
    rewards, metrics = penalise_kl(kl_config(), blended, rollout(), experience(), controller)
    # log π = −1 and log π_ref = −1.5, −1, −0.5: k1 = 0.5, 0, −0.5 on each token
    penalty = torch.tensor([[0.5], [0.0], [-0.5]]) * MASK * 0.1
    torch.testing.assert_close(rewards, blended - penalty)
    # mean over sequences of the mean over tokens
    assert metrics["actor/reward_kl_penalty"] == pytest.approx(0.0, abs=1e-7)
    assert metrics["actor/reward_kl_penalty_coeff"] == 0.1
    assert controller.value == 0.1


def test_the_adaptive_coefficient_is_logged_before_it_moves():
    controller = KLController(0.1, 0.1, 30)
    far = replace(experience(), reference=torch.full((3, 3), -3.0))
    _, metrics = penalise_kl(kl_config(), torch.zeros(3, 3), rollout(), far, controller)
    assert metrics["actor/reward_kl_penalty"] == pytest.approx(2.0)
    assert metrics["actor/reward_kl_penalty_coeff"] == 0.1
    assert controller.value == pytest.approx(0.1 * (1 + 0.2 * 3 / 30))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_divergence_that_is_not_finite_stops_before_the_controller(bad):
    controller = KLController(0.1, 0.1, 30)
    non_finite = replace(experience(), reference=torch.full((3, 3), bad))
    with pytest.raises(TrainingError, match="the KL penalty"):
        penalise_kl(kl_config(), torch.zeros(3, 3), rollout(), non_finite, controller)
    assert controller.value == 0.1


def test_reward_length_correlation():
    key = "actor/ref_quality/reward_length_corr"
    # a score that does not depend on length, put on every token, pays for length
    paid = reward_length_correlation(MASK * 0.5, MASK)
    assert paid[key] == pytest.approx(1.0)
    mean = reward_length_correlation(MASK * 0.5 / MASK.sum(-1, keepdim=True), MASK)
    assert mean == {}, "all responses have the same reward"
    # By hand: lengths 3, 1, 2 and rewards 1, 0, 1 have a correlation of √¾, and with 1, 1, 0 none.
    for rewards, expected in (([1.0, 0.0, 1.0], 0.75**0.5), ([1.0, 1.0, 0.0], 0.0)):
        sums = torch.tensor(rewards)[:, None] * MASK / MASK.sum(-1, keepdim=True)
        assert reward_length_correlation(sums, MASK)[key] == pytest.approx(expected, abs=1e-6)
    assert reward_length_correlation(MASK[:, :1], torch.ones(3, 1)) == {}


def test_greedy_baselines_are_blended_like_the_samples():
    """By hand: w = 0.18; Σ_t R' of a response of 2 tokens and of an empty one, by placement."""
    greedy = GreedyResponses(["a", ""], [2, 0])
    judged = replace(
        experience(),
        greedy_rule=torch.tensor([1.0, 1.0]),
        greedy_quality=[JudgeResult(0.5, True, "text"), JudgeResult(0.9, True, "text")],
    )

    def baselines(settings: RefQualityScoreConfig) -> torch.Tensor:
        both = replace(rollout(), greedy=greedy)
        found = blend(settings, both, judged, FIRST, np.random.default_rng(0))
        return found.baselines

    for placement, total in (("per_token", 1.0), ("terminal", 0.5), ("per_token_mean", 0.5)):
        close(baselines(config(placement=placement)), [0.82 + 0.18 * total, 0.0])
    close(baselines(config(enable=False)), [1.0, 0.0])


def test_auto_sets_tau_from_the_first_batch_and_keeps_it():
    """H₀ = 0.4, τ = 1.5·0.4 = 0.6: w = 0.3·(1 − 0.4/0.6) = 0.1 first, 0.3·(1 − 0.3/0.6) later."""
    auto = config(entropy_high_threshold="auto", entropy_high_threshold_factor=1.5)
    _, first = run(auto)
    assert first["actor/ref_quality/entropy_high_threshold"] == pytest.approx(0.6)
    assert first["actor/ref_quality/weight"] == pytest.approx(0.1)
    later = replace(FIRST, step=2, initial_entropy=first["actor/ref_quality/avg_entropy"])
    assert run(auto, context=later, entropy=0.3)[1]["actor/ref_quality/weight"] == pytest.approx(
        0.15
    )
    with pytest.raises(TrainingError, match="auto is a multiple"):
        run(auto, entropy=0.0)


def test_mixed_groups_alone_are_blended():
    """Rows 0 and 1 (R = 1, 0) are one group; row 2 is alone, so it keeps its rule reward."""
    mixed, _ = run(config(groups="mixed"))
    everywhere, _ = run(config())
    close(mixed[:2], everywhere[:2].tolist())
    close(mixed[2], [0.0, 1.0, 0.0])


def test_a_weight_per_length_is_divided_by_the_tokens():
    """w = 0.18; row 0 has 3 tokens: w/3 = 0.06 a token, q = 0.8, R on the last."""
    rewards, _ = run(config(weight_per_length=True))
    close(rewards[0], [0.06 * 0.8, 0.06 * 0.8, 0.94 + 0.06 * 0.8])
    assert rewards[1, 0] == pytest.approx(0.18 * 0.5)


def test_replayed_weights_come_from_the_context():
    replayed = config(strategy="replay", replay_file="other/metrics.jsonl")
    context = replace(FIRST, step=2, replayed=(0.1, 0.2))
    assert run(replayed, context=context)[1]["actor/ref_quality/weight"] == 0.2


@pytest.mark.parametrize("entropy", [math.nan, math.inf])
@pytest.mark.parametrize("enable", [True, False])
def test_an_entropy_that_is_not_finite_stops_with_a_remedy(entropy, enable):
    with pytest.raises(TrainingError, match="step 1: the actor's average entropy") as caught:
        run(config(enable=enable), entropy=entropy)
    assert "learning rate" in caught.value.remedy


def test_the_alignment_bonus_needs_a_similarity_and_enough_entropy():
    settings = ReprAlignConfig(enable=True, weight=0.3, entropy_high_threshold=0.4)
    rewards = torch.ones(3, 3) * MASK
    unchanged, metrics = add_alignment_bonus(settings, rewards, rollout(), experience(), 1)
    assert metrics == {}
    close(unchanged, rewards.tolist())
    similar = replace(experience(), alignment=torch.tensor([1.0, 0.5, -1.0]))
    given, metrics = add_alignment_bonus(settings, rewards, rollout(), similar, 1)
    close(given, [[1.1, 1.1, 1.1], [1.15, 0, 0], [0.85, 0.85, 0]])
    assert metrics["actor/repr_align/weight"] == pytest.approx(0.3)
    certain = replace(experience(entropy=0.2), alignment=torch.tensor([1.0, 0.5, -1.0]))
    close(add_alignment_bonus(settings, rewards, rollout(), certain, 1)[0], rewards.tolist())


def test_hero_scales_advantages_and_not_rewards():
    settings = config(method="hero", strategy="constant", placement="terminal", max_weight=0.1)
    blended = blend(settings, rollout(), experience(), FIRST, np.random.default_rng(0))
    close(blended.rewards, [[0, 0, 0.9], [-0.1, 0, 0], [0, 0.9, 0]])
    deviations = [0.3 / math.sqrt(2), 0.0]  # of the two groups' scores
    mean = sum(deviations) / 2
    factors = [0.4 + 2.6 / (1 + math.exp(-6 * (s - mean))) for s in deviations]
    close(blended.advantage_factors, [factors[0], factors[0], factors[1]])


def test_weights_of_the_responses_own_entropies():
    settings = config(entropy_level="response", placement="terminal")
    blended = blend(settings, rollout(), experience(), FIRST, np.random.default_rng(0))
    close(blended.weights, [0.3 * 0.8, 0.3 * 0.6, 0.3 * 0.4])  # entropies 0.2, 0.4, 0.6
    close(blended.rewards, [[0, 0, 0.76 + 0.24 * 0.8], [0.18 * 0.5, 0, 0], [0, 0.88 + 0.024, 0]])
    assert blended.metrics["actor/ref_quality/weight"] == pytest.approx(0.18)
