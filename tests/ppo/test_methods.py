"""The methods against slow loops that are written from the papers' formulas."""

import math
import statistics

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from refblend.ppo.blending import blend_rewards, expand_quality
from refblend.ppo.methods import prepare

METHODS = ("blend", "recheck", "gdpo", "hero")


@st.composite
def batches(draw):
    """Rules, scores, groups and weights of up to four groups of up to five, in any order."""
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    groups = draw(st.permutations([g for g, size in enumerate(sizes) for _ in range(size)]))
    rows = len(groups)
    rule = draw(st.lists(st.sampled_from([0.0, 1.0]), min_size=rows, max_size=rows))
    scores = st.integers(0, 20).map(lambda n: n / 20)
    quality = draw(st.lists(scores, min_size=rows, max_size=rows))
    weight = draw(st.sampled_from([0.0, 0.05, 0.3, 0.45]))
    return rule, quality, groups, weight


def slow(method, rule, quality, groups, w):
    """R' of each response, and the factor of its advantage."""
    rows = range(len(rule))

    def z(values, i):
        mine = [values[j] for j in rows if groups[j] == groups[i]]
        spread = statistics.stdev(mine) if len(mine) > 1 else 1.0
        return (values[i] - statistics.fmean(mine)) / (spread + 1e-6)

    def deviation(group):
        mine = [quality[j] for j in rows if groups[j] == group]
        return statistics.stdev(mine) if len(mine) > 1 else 0.0

    average = statistics.fmean(map(deviation, set(groups)))
    found, factors = [], []
    for i in rows:
        factors.append(1.0)
        if method == "blend" or (method == "recheck" and rule[i] == 0):
            found.append((1 - w) * rule[i] + w * quality[i])
        elif method == "recheck":
            found.append(rule[i])
        elif method == "gdpo":
            found.append((1 - w) * z(rule, i) + w * z(quality, i))
        else:
            stratum = [quality[j] for j in rows if (groups[j], rule[j]) == (groups[i], rule[i])]
            scaled = (quality[i] - min(stratum)) / (max(stratum) - min(stratum) + 1e-6)
            # -alpha + 2 alpha q for wrong answers, 1 - beta + 2 beta q for right ones
            found.append(-w + 2 * w * scaled if rule[i] == 0 else 1 - w + 2 * w * scaled)
            steep = math.exp(-6.0 * (deviation(groups[i]) - average))
            factors[-1] = 0.4 + (3.0 - 0.4) / (1 + steep)
    return found, factors


def mixed(method, rule, quality, groups, weight):
    weights = torch.full((len(rule),), weight)
    ready = prepare(method, torch.tensor(rule), torch.tensor(quality), weights, groups)
    mask = torch.ones(len(rule), 2)
    placed = [expand_quality(each, mask, "terminal") for each in (ready.rule, ready.quality)]
    return blend_rewards(*placed, mask, ready.weights).sum(-1), ready


@pytest.mark.parametrize("method", METHODS)
@given(batch=batches())
def test_every_method_is_its_formula(method, batch):
    rewards, ready = mixed(method, *batch)
    expected, factors = slow(method, *batch)
    torch.testing.assert_close(rewards, torch.tensor(expected), rtol=1e-4, atol=1e-5)
    if method == "hero":
        torch.testing.assert_close(
            ready.advantage_factors, torch.tensor(factors), rtol=1e-4, atol=1e-5
        )
    else:
        assert ready.advantage_factors is None


def test_an_unknown_method_is_refused():
    with pytest.raises(ValueError, match="method='best' is unknown"):
        prepare("best", torch.zeros(1), torch.zeros(1), torch.zeros(1), [0])
