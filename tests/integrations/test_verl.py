"""The blend in the real verl, on the CPU: rewards, advantages and metrics through its own advantage
stage and transfer queue, compared with our own functions.

Runs in ``.tools/verl`` (``make .tools/verl``), or in the environment that REFBLEND_VERL_ENV names.
verl's rollout, log-prob, critic and actor workers need GPUs and are not part of this.
"""

import json
import tempfile
from itertools import product
from typing import Any

import pytest
import torch
from environments import ROOT, run_in
from torch import Tensor

from refblend import WeightParams, avg_response_entropy, blend_rewards, expand_quality, weight_for
from refblend.lookup import get_advantage
from refblend.ppo.estimators import AdvantageInputs
from refblend.ppo.kl import apply_kl_penalty, kl_penalty

pytestmark = pytest.mark.slow

EXAMPLES = ROOT / "examples" / "verl"
ESTIMATORS = ("gae", "grpo", "rloo", "reinforce_plus_plus")
PLACEMENTS = ("per_token", "terminal")
STEP, STEPS, KL = 3, 10, 0.05
GAMMA, LAM = 0.95, 0.9


def overrides(estimator: str, *more: str, kl: bool = True) -> list[str]:
    return [
        f"algorithm.adv_estimator={estimator}",
        f"algorithm.use_kl_in_reward={str(kl).lower()}",
        f"algorithm.kl_ctrl.kl_coef={KL}",
        f"algorithm.gamma={GAMMA}",
        f"algorithm.lam={LAM}",
        "actor_rollout_ref.rollout.n=4",
        "trainer.v1.refblend.strategy=linear",
        *[f"trainer.v1.refblend.{key}" for key in more],
    ]


def case(seed: int, trainer: str, settings: list[str]) -> dict[str, Any]:
    return {"seed": seed, "trainer": trainer, "overrides": settings}


BLENDED = [
    (seed, estimator, placement, kl)
    for seed, (estimator, placement, kl) in enumerate(
        product(ESTIMATORS, PLACEMENTS, (True, False))
    )
]
OURS_ALONE = (
    "scoring.control=shuffled",
    "scoring.num_threads=2",
    "scoring.timeout_s=3.0",
    "groups=mixed",
    "weight_per_length=true",
    "entropy_high_threshold=auto",
    "strategy=replay",
    "method=recheck",
    "entropy_level=response",
)
OFF = list(product(ESTIMATORS, ("enable=false", "max_weight=0.0"), (True, False)))


@pytest.fixture(scope="module")
def found() -> dict[str, list[dict[str, Any]]]:
    """All cases in one process: verl takes half a minute to start."""
    cases = [
        case(seed, "refblend", overrides(e, f"placement={p}", "max_weight=0.6", kl=kl))
        for seed, e, p, kl in BLENDED
    ]
    cases += [case(99, "refblend", overrides(e, off, kl=kl)) for e, off, kl in OFF]
    cases += [case(99, "sync", overrides(e, "enable=false", kl=kl)) for e, _, kl in OFF]
    added = "+trainer.v1.refblend.scoring.on_failure=rule_reward"
    settings = overrides("grpo", "max_weight=0.6", "placement=terminal")
    cases.append(case(7, "refblend", [*settings, added]))
    settings = overrides("grpo", "max_weight=0.6", "placement=per_token")
    for setting in OURS_ALONE:
        given = [f"++trainer.v1.refblend.{key}" for key in (setting, "replay_file=metrics.jsonl")]
        cases.append(case(8, "refblend", [*settings, *given]))
    # Ray's sockets need a short path.
    with tempfile.TemporaryDirectory(prefix="rb", dir="/tmp") as scratch:
        lines = run_in("verl", "verl_probe.py", str(EXAMPLES), scratch, json.dumps(cases))
    results = json.loads(lines.splitlines()[-1])
    n, m = len(BLENDED), len(OFF)
    return {
        "blended": results[:n],
        "off": results[n : n + m],
        "stock": results[n + m : n + 2 * m],
        "failing": results[n + 2 * m : n + 2 * m + 1],
        "refused": results[n + 2 * m + 1 :],
    }


def padded(rows: list[dict[str, Any]], name: str) -> Tensor:
    values = [torch.tensor(row[name], dtype=torch.float32) for row in rows]
    return torch.nn.utils.rnn.pad_sequence(values, batch_first=True)


def oracle(
    rows: list[dict[str, Any]], estimator: str, placement: Any, kl: bool, unblended: bool = False
) -> dict[str, Any]:
    """R' and advantages of the real rows, with refblend's functions."""
    rows = [row for row in rows if row["uid"] != "pad"]
    mask = padded(rows, "response_mask")
    entropy = float(avg_response_entropy(padded(rows, "entropy"), mask))
    params = WeightParams(max_weight=0.6, entropy_high_threshold=1.0)
    weight = weight_for("linear", entropy, STEP, STEPS, params)
    judged = [row["extra_fields"]["reward_extra_info"] for row in rows]
    quality = expand_quality(torch.tensor([j["judge_score"] for j in judged]), mask, placement)
    weights = weight * torch.tensor([j["judge_valid"] if unblended else 1.0 for j in judged])
    blended = blend_rewards(padded(rows, "rm_scores"), quality, mask, weights)
    rewards = blended
    if kl:
        penalty = kl_penalty(padded(rows, "old_log_probs"), padded(rows, "ref_log_prob"), "kl")
        rewards = apply_kl_penalty(blended, penalty, mask, KL)
    advantages, returns = get_advantage(estimator)(
        AdvantageInputs(
            token_level_rewards=rewards,
            response_mask=mask,
            index=[row["uid"] for row in rows],
            values=padded(rows, "values"),
            gamma=GAMMA,
            lam=LAM,
        )
    )
    return {
        "entropy": entropy,
        "weight": weight,
        "rewards": rewards,
        "advantages": advantages,
        "returns": returns,
        "valid": sum(j["judge_valid"] for j in judged) / len(judged),
        "score": sum(j["judge_score"] for j in judged) / len(judged),
    }


def output(result: dict[str, Any], name: str) -> Tensor:
    rows = zip(result["input"], result["output"][name], strict=True)
    kept = [torch.tensor(values) for row, values in rows if row["uid"] != "pad"]
    return torch.nn.utils.rnn.pad_sequence(kept, batch_first=True)


@pytest.mark.parametrize(
    "number", range(len(BLENDED)), ids=lambda n: "-".join(map(str, BLENDED[n]))
)
def test_rewards_advantages_and_metrics_are_ours(found: Any, number: int) -> None:
    _, estimator, placement, kl = BLENDED[number]
    result = found["blended"][number]
    expected = oracle(result["input"], estimator, placement, kl)
    close = {"rtol": 1e-4, "atol": 1e-5}
    torch.testing.assert_close(output(result, "token_level_rewards"), expected["rewards"], **close)
    torch.testing.assert_close(output(result, "advantages"), expected["advantages"], **close)
    torch.testing.assert_close(output(result, "returns"), expected["returns"], **close)
    metrics = result["metrics"]
    assert 0.05 < expected["weight"] < 0.55
    prefix = "actor/ref_quality"
    assert metrics[f"{prefix}/weight"] == pytest.approx(expected["weight"], rel=1e-6)
    assert metrics[f"{prefix}/avg_entropy"] == pytest.approx(expected["entropy"], rel=1e-6)
    assert metrics[f"{prefix}/valid_rate"] == pytest.approx(expected["valid"])
    assert metrics[f"{prefix}/score_mean"] == pytest.approx(expected["score"])
    assert ("actor/reward_kl_penalty" in metrics) == kl
    rule = [row["rm_scores"] for row in result["input"]]
    assert result["output"]["rm_scores"] == rule, "critic/score/* stay the rule reward's"
    assert (result["mode"], result["buffer"]) == ("sync", "ReplayBuffer")


@pytest.mark.parametrize("number", range(len(OFF)), ids=lambda n: f"{OFF[n]}")
def test_without_blend_it_is_verls_stage_to_the_bit(found: Any, number: int) -> None:
    ours, theirs = found["off"][number], found["stock"][number]
    for name, values in theirs["output"].items():
        assert ours["output"][name] == values, name
    for name, value in theirs["metrics"].items():
        assert ours["metrics"][name] == value


def test_samples_without_a_valid_score_keep_their_rule_reward(found: Any) -> None:
    (result,) = found["failing"]
    expected = oracle(result["input"], "grpo", "terminal", True, unblended=True)
    assert expected["valid"] < 1
    got = output(result, "token_level_rewards")
    torch.testing.assert_close(got, expected["rewards"], rtol=1e-4, atol=1e-5)


def test_what_only_our_trainer_has_is_refused(found: Any) -> None:
    told = [result["refused"] for result in found["refused"]]
    for setting, message in zip(OURS_ALONE, told, strict=True):
        assert f"trainer.v1.refblend.{setting}: only refblend's own trainer" in message
