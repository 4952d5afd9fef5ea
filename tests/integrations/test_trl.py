"""The blend in the real TRL, on the CPU, compared with our own functions and a plain forward pass.

Runs in ``.tools/trl`` (``make .tools/trl``), or in the environment that REFBLEND_TRL_ENV names.
"""

import json
import math
import statistics
from pathlib import Path
from typing import Any

import pytest
import torch
from environments import run_in
from transformers import AutoModelForCausalLM, AutoTokenizer

from refblend import WeightParams, avg_response_entropy, blend_rewards, expand_quality, weight_for
from refblend.advice.rollouts import Columns, read_rollouts

pytestmark = pytest.mark.slow

TEMPERATURE = 0.7
STEPS = 2
GROUP = 4
ROWS = [
    {
        "prompt": [
            {"role": "system", "content": "Work it out."},
            {"role": "user", "content": f"Tom has {n} eggs. He gets {n + 3} more. How many?"},
        ],
        "question": f"{n}+{n + 3}?",
    }
    for n in range(2, 10)
]


def train(
    model: Path,
    output: Path,
    placement: str,
    blend: bool,
    max_weight: float = 0.6,
    dropout: float = 0.0,
    method: str = "blend",
    entropy_level: str = "batch",
    unscored: bool = False,
) -> Any:
    job = {
        "unscored": unscored,
        "method": method,
        "entropy_level": entropy_level,
        "model": str(model),
        "rows": ROWS,
        "output": str(output),
        "placement": placement,
        "steps": STEPS,
        "temperature": TEMPERATURE,
        "blend": blend,
        "max_weight": max_weight,
        "dropout": dropout,
    }
    return json.loads(run_in("trl", "trl_probe.py", json.dumps(job)).splitlines()[-1])


def entropy_of(batch: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Entropy (B, T) and mask, one sequence at a time, from the logits of transformers."""
    model = AutoModelForCausalLM.from_pretrained(batch["weights"], dtype=torch.float32)
    longest = max(map(len, batch["completion_ids"]))
    entropy = torch.full((len(batch["completion_ids"]), longest), torch.nan)
    mask = torch.zeros(entropy.shape)
    pairs = zip(batch["prompt_ids"], batch["completion_ids"], strict=True)
    for row, (prompt, answer) in enumerate(pairs):
        with torch.no_grad():
            logits = model(torch.tensor([prompt + answer])).logits[0, len(prompt) - 1 : -1]
        p = torch.softmax(logits.double() / TEMPERATURE, dim=-1)
        entropy[row, : len(answer)] = -(p * p.log()).sum(-1).float()
        mask[row, : len(answer)] = 1
    return entropy, mask


def rule_of(texts: list[str]) -> list[float]:
    """Digits, and a quarter of the spaces."""
    return [sum(map(str.isdigit, text)) + 0.25 * text.count(" ") for text in texts]


def scores_of(texts: list[str]) -> list[float]:
    """What the judge of ``trl_probe.py`` says."""
    return [0.5 if len(text.split()) % 2 else len(text) % 11 / 10 for text in texts]


def normalised(rewards: torch.Tensor) -> torch.Tensor:
    """Each reward beside those of its group, as GRPO has it; 0 where there is none (nan)."""
    found = torch.zeros_like(rewards)
    for start in range(0, len(rewards), GROUP):
        rows = [i for i in range(start, start + GROUP) if not rewards[i].isnan()]
        if len(rows) > 1:
            group = rewards[rows]
            found[rows] = (group - group.mean()) / (group.std() + 1e-4)
    return found


def advantages_are(batch: Any, expected: torch.Tensor, tolerance: float = 1e-3) -> None:
    found = torch.tensor(batch["advantages"])
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("placement", ["per_token", "terminal"])
def test_rewards_weights_and_advantages_are_those_of_the_blend(
    placement: Any, tiny_model_dir: Path, tmp_path: Path
) -> None:
    found = train(tiny_model_dir, tmp_path, placement, blend=True)
    tokenizer = AutoTokenizer.from_pretrained(tiny_model_dir)
    assert len(found["batches"]) == STEPS
    questions = {row["question"] for row in ROWS}
    answers = iter(found["judged"])
    rollouts = read_rollouts(tmp_path, Columns(reward="digits", truth="spaces")).frame
    logged = iter(rollouts.itertuples())
    assert (rollouts.groupby(["step", "prompt_id"]).size() == GROUP).all(), (
        "as `refblend advise` reads them"
    )
    for step, batch in enumerate(found["batches"], start=1):
        texts = tokenizer.batch_decode(batch["completion_ids"], skip_special_tokens=True)
        asked = [next(answers) for _ in texts]
        assert [response for _, response in asked] == texts
        assert {question for question, _ in asked} <= questions
        entropy, mask = entropy_of(batch)
        average = avg_response_entropy(entropy, mask)
        params = WeightParams(max_weight=0.6, entropy_high_threshold=8.0)
        weight = weight_for("linear", average, step, STEPS, params)
        assert 0.01 < weight < 0.59, "neither end of the map, or the test says little"

        scores = scores_of(texts)
        rows = [next(logged) for _ in texts]
        assert [row.reward for row in rows] == [sum(map(str.isdigit, t)) for t in texts]
        assert [row.judge_score for row in rows] == pytest.approx(scores)
        quality = expand_quality(torch.tensor(scores), mask, placement)
        rule = expand_quality(torch.tensor(rule_of(texts)), mask, "terminal")
        rewards = blend_rewards(rule, quality, mask, weight).sum(-1)
        assert batch["reward"] == pytest.approx(float(rewards.mean()), rel=1e-4)
        advantages_are(batch, normalised(rewards))
        assert batch["functions"] == ["digits", "spaces", "judge"]
        share = 1 - weight
        expected = pytest.approx([share, 0.25 * share, weight], rel=1e-4)
        assert batch["reward_weights"] == expected
        line = found["log"][step - 1]
        assert line["actor/ref_quality/weight"] == pytest.approx(weight, rel=1e-4)
        assert line["actor/ref_quality/avg_entropy"] == pytest.approx(float(average), rel=1e-4)
        invalid = sum(len(text.split()) % 2 for text in texts)
        assert line["actor/ref_quality/valid_rate"] == pytest.approx(1 - invalid / len(texts))


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_without_weight_the_run_is_trls_own(dropout, tiny_model_dir, tmp_path) -> None:
    """w_max = 0: responses, advantages and gradients are the same to the bit, step after step."""
    ours = train(tiny_model_dir, tmp_path / "ours", "terminal", True, 0.0, dropout)
    theirs = train(tiny_model_dir, tmp_path / "theirs", "terminal", False, dropout=dropout)
    for mine, other in zip(ours["batches"], theirs["batches"], strict=True):
        assert mine["completion_ids"] == other["completion_ids"]
        assert mine["advantages"] == other["advantages"]
        assert mine["reward_weights"] == [*other["reward_weights"], 0.0]
    norms = [[line["grad_norm"] for line in run["log"][:STEPS]] for run in (ours, theirs)]
    assert norms[0] == norms[1]
    assert min(norms[0]) > 0
    for text in ours["refused"]:
        assert text.startswith("DataError: row 3 of "), text
        assert "column 'question' holds None" in text


def expected_rewards(
    method: str, rule: list[float], scores: list[float], w: list[float]
) -> tuple[list[float], list[float]]:
    """R' and the factor of the advantage of each response, in plain loops; nan without a rule."""
    rows = [i for i in range(len(rule)) if not math.isnan(rule[i])]
    groups = {i: [j for j in rows if j // GROUP == i // GROUP] for i in rows}
    spread = {
        i: statistics.stdev([scores[j] for j in groups[i]]) if len(groups[i]) > 1 else 0.0
        for i in rows
    }
    rewards, factors = [math.nan] * len(rule), [1.0] * len(rule)
    for i in rows:
        if method == "hero":
            stratum = [scores[j] for j in groups[i] if rule[j] == rule[i]]
            scaled = (scores[i] - min(stratum)) / (max(stratum) - min(stratum) + 1e-6)
            rewards[i] = rule[i] + w[i] * (2 * scaled - 1)
            mean = statistics.fmean({i // GROUP: spread[i] for i in rows}.values())
            factors[i] = 0.4 + 2.6 / (1 + math.exp(-6 * (spread[i] - mean)))
        elif method == "recheck" and rule[i] > 0:
            rewards[i] = rule[i]
        else:
            rewards[i] = (1 - w[i]) * rule[i] + w[i] * scores[i]
    return rewards, factors


@pytest.mark.parametrize(
    ("method", "level", "unscored"),
    [
        ("recheck", "batch", False),
        ("hero", "batch", False),
        ("hero", "batch", True),
        ("blend", "response", False),
    ],
)
def test_methods_and_levels_by_response(method, level, unscored, tiny_model_dir, tmp_path) -> None:
    found = train(
        tiny_model_dir,
        tmp_path,
        "terminal",
        True,
        0.4,
        method=method,
        entropy_level=level,
        unscored=unscored,
    )
    tokenizer = AutoTokenizer.from_pretrained(tiny_model_dir)
    rollouts = read_rollouts(tmp_path, Columns(reward="digits", truth="spaces")).frame
    logged = iter(rollouts.judge_score)
    for step, batch in enumerate(found["batches"], start=1):
        texts = tokenizer.batch_decode(batch["completion_ids"], skip_special_tokens=True)
        assert [next(logged) for _ in texts] == pytest.approx(scores_of(texts))
        entropy, mask = entropy_of(batch)
        params = WeightParams(max_weight=0.4, entropy_high_threshold=8.0)
        own = [float(row[m.bool()].mean()) for row, m in zip(entropy, mask, strict=True)]
        entropies = own if level == "response" else [statistics.fmean(own)] * len(own)
        weights = [weight_for("linear", h, step, STEPS, params) for h in entropies]
        rule = rule_of(texts)
        if unscored:
            rule = [r if len(t) % 3 else math.nan for t, r in zip(texts, rule, strict=True)]
            assert any(map(math.isnan, rule)), "or the test says nothing"
        rewards, factors = expected_rewards(method, rule, scores_of(texts), weights)
        mean = statistics.fmean(r for r in rewards if not math.isnan(r))
        assert batch["reward"] == pytest.approx(mean, rel=1e-3)
        advantages_are(batch, normalised(torch.tensor(rewards)) * torch.tensor(factors), 1e-2)
        line = found["log"][step - 1]["actor/ref_quality/weight"]
        assert line == pytest.approx(statistics.fmean(weights), rel=1e-4)


def test_gdpo_is_the_sum_of_normalised_rewards(tiny_model_dir: Path, tmp_path: Path) -> None:
    found = train(tiny_model_dir, tmp_path, "terminal", True, 0.4, method="gdpo")
    tokenizer = AutoTokenizer.from_pretrained(tiny_model_dir)
    for step, batch in enumerate(found["batches"]):
        texts = tokenizer.batch_decode(batch["completion_ids"], skip_special_tokens=True)
        w = found["log"][step]["actor/ref_quality/weight"]
        columns = [
            ([sum(map(str.isdigit, t)) for t in texts], 1 - w),
            ([t.count(" ") for t in texts], 0.25 * (1 - w)),
            (scores_of(texts), w),
        ]
        total = torch.zeros(len(texts))
        for values, weight in columns:
            total += weight * normalised(torch.tensor(values, dtype=torch.float32))
        advantages_are(batch, (total - total.mean()) / (total.std() + 1e-4))
