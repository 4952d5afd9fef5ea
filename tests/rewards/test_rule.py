import pytest

from refblend.errors import ConfigError, DataError
from refblend.rewards.result import RewardResult
from refblend.rewards.rule import RuleReward

SOURCES = ["openai/gsm8k", "refblend/arithmetic", "refblend/sanity"]


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
