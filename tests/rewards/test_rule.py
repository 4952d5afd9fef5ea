import math
import sys
import types

import pytest

from refblend.errors import ConfigError, DataError
from refblend.rewards import rule
from refblend.rewards.rule import RewardResult, RuleReward, register_reward

SOURCES = ["openai/gsm8k", "refblend/arithmetic", "refblend/sanity"]


@pytest.fixture
def module(monkeypatch):
    made = types.ModuleType("users_rewards")
    monkeypatch.setitem(sys.modules, "users_rewards", made)
    return made


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(
    ("text", "strict", "flexible"),
    [("#### 4", 1.0, 1.0), ("it is 4", 0.0, 1.0), ("#### 4, not 5", 1.0, 0.0), ("", 0.0, 0.0)],
)
def test_both_accuracies_and_the_chosen_score(source, text, strict, flexible):
    assert RuleReward("strict")(source, text, "4") == RewardResult(strict, strict, flexible)
    assert RuleReward("flexible")(source, text, "4") == RewardResult(flexible, strict, flexible)


def test_errors_name_the_source_and_the_remedy():
    with pytest.raises(ConfigError, match=r"'other/source'.*openai/gsm8k.*custom_reward_function"):
        RuleReward()("other/source", "#### 4", "4")
    with pytest.raises(DataError, match="'four'"):
        RuleReward()("openai/gsm8k", "#### 4", "four")


def test_a_rule_of_ones_own(monkeypatch):
    monkeypatch.setattr(rule, "RULES", dict(rule.RULES))

    @register_reward("mine/a", "mine/b")
    def longer(solution_str, ground_truth, method):
        return RewardResult(float(len(solution_str)), 0.0, 0.0)

    assert RuleReward()("mine/b", "abc", "").score == 3.0


def test_a_custom_function_is_called_as_verl_calls_it(module):
    calls = []

    def compute_score(data_source, solution_str, ground_truth, extra_info=None):
        calls.append((data_source, solution_str, ground_truth, extra_info))
        return 1

    module.compute_score = compute_score
    reward = RuleReward(custom_reward_function="users_rewards:compute_score")
    assert reward("any/source", "text", "gold", {"index": 3}) == RewardResult(1.0, 1.0, 1.0)
    assert reward("any/source", "text", "gold").score == 1.0
    assert calls == [
        ("any/source", "text", "gold", {"index": 3}),
        ("any/source", "text", "gold", {}),
    ]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.25, (0.25, 0.25, 0.25)),
        (True, (1.0, 1.0, 1.0)),
        ({"score": 0.5}, (0.5, 0.5, 0.5)),
        ({"score": 0.5, "acc": True, "other": "x"}, (0.5, 1.0, 1.0)),
        ({"score": 0.5, "acc_strict": 0, "acc_flexible": 1}, (0.5, 0.0, 1.0)),
        (RewardResult(0.1, 0.2, 0.3), (0.1, 0.2, 0.3)),
    ],
)
def test_what_a_custom_function_may_give(module, value, expected):
    module.f = lambda **_: value
    assert RuleReward(custom_reward_function="users_rewards:f")("s", "t", "g") == RewardResult(
        *expected
    )


@pytest.mark.parametrize("value", [None, "good", {}, {"score": None}, math.nan, math.inf, [1]])
def test_what_it_may_not_give(module, value):
    module.f = lambda **_: value
    with pytest.raises(ConfigError, match="custom_reward_function='users_rewards:f'"):
        RuleReward(custom_reward_function="users_rewards:f")("s", "t", "g")


@pytest.mark.parametrize("name", ["f", "users_rewards:g", "no_such_module_x:f"])
def test_a_function_that_does_not_exist_fails_before_the_run(module, name):
    with pytest.raises(ConfigError, match="custom_reward_function"):
        RuleReward(custom_reward_function=name)
