import types

import pytest
import torch

from refblend.errors import ConfigError
from refblend.lookup import call_advantage, get_advantage
from refblend.ppo import advantages
from refblend.ppo.choices import ADVANTAGES
from refblend.ppo.estimators import ESTIMATORS, AdvantageInputs, register_advantage

MASK = torch.tensor([[1, 1, 1], [1, 1, 0], [1, 0, 0], [0, 0, 0]])
REWARDS = torch.arange(12.0).reshape(4, 3)
VALUES = torch.linspace(-1, 1, 12).reshape(4, 3)
INDEX = ["p", "p", "q", "q"]
INPUTS = AdvantageInputs(
    REWARDS, MASK, INDEX, VALUES, torch.ones(4), gamma=0.9, lam=0.8, norm_adv_by_std_in_grpo=False
)
BY_GROUP = {"index": INDEX}
DIRECT = {
    "gae": {"values": VALUES, "gamma": 0.9, "lam": 0.8},
    "grpo": BY_GROUP | {"norm_adv_by_std_in_grpo": False},
    "rloo": BY_GROUP,
    "reinforce_plus_plus": {"gamma": 0.9},
    "reinforce_plus_plus_baseline": BY_GROUP,
    "remax": {"reward_baselines": torch.ones(4)},
}
"""What each function is given beside rewards and mask."""


@pytest.fixture
def module(monkeypatch):
    """A user's module, and a registry that forgets what the test registers."""
    monkeypatch.setattr("refblend.ppo.estimators.ESTIMATORS", dict(ESTIMATORS))
    made = types.ModuleType("users_module")
    monkeypatch.setitem(__import__("sys").modules, "users_module", made)
    return made


@pytest.mark.parametrize("name", DIRECT)
def test_the_registry_calls_the_function_of_that_name(name):
    kind = "advantage_return" if name == "gae" else "outcome_advantage"
    function = getattr(advantages, f"compute_{name}_{kind}")
    wanted = function(token_level_rewards=REWARDS, response_mask=MASK, **DIRECT[name])
    for got, want in zip(get_advantage(name)(INPUTS), wanted, strict=True):
        assert torch.equal(got, want)


def test_all_names_and_needs():
    assert set(ESTIMATORS) == set(DIRECT) == set(ADVANTAGES)
    assert [n for n, e in ESTIMATORS.items() if e.needs_values] == ["gae"]
    assert [n for n, e in ESTIMATORS.items() if e.needs_reward_baselines] == ["remax"]


@pytest.mark.parametrize(("name", "field"), [("gae", "values"), ("remax", "reward_baselines")])
def test_a_missing_input_is_named(name, field):
    with pytest.raises(ValueError, match=f"{name} needs {field}"):
        get_advantage(name)(AdvantageInputs(REWARDS, MASK, INDEX))


def test_a_users_plain_function(module):
    module.mine = lambda inputs: (inputs.token_level_rewards, inputs.token_level_rewards)
    estimator = get_advantage("users_module:mine")
    assert not estimator.needs_values
    assert torch.equal(estimator(INPUTS)[0], REWARDS)


def test_a_users_registered_function_keeps_its_needs(module):
    @register_advantage("mine", needs_values=True)
    def mine(inputs):
        return inputs.values, inputs.values

    module.mine = mine
    assert get_advantage("users_module:mine").needs_values
    assert get_advantage("mine").compute is mine


def test_a_name_is_taken_once(module):
    with pytest.raises(ValueError, match="registered already"):
        register_advantage("grpo")(lambda inputs: (REWARDS, REWARDS))
    with pytest.raises(ValueError, match="colon"):
        register_advantage("a:b")(lambda inputs: (REWARDS, REWARDS))


def test_a_result_of_another_shape_is_refused(module):
    module.bad = lambda inputs: (inputs.token_level_rewards.sum(-1), inputs.token_level_rewards)
    with pytest.raises(ValueError, match="gave advantages"):
        get_advantage("users_module:bad")(INPUTS)
    with pytest.raises(ConfigError, match=r"adv_estimator=users_module:bad failed.*gave"):
        call_advantage(get_advantage("users_module:bad"), INPUTS)


def test_what_a_users_estimator_raises_is_named_with_its_place(module):
    module.bad = lambda inputs: torch.zeros(2, 3) @ torch.zeros(2, 3)
    with pytest.raises(ConfigError, match=r"failed: RuntimeError: .*test_estimators\.py, line"):
        call_advantage(get_advantage("users_module:bad"), INPUTS)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("gro", "algorithm.adv_estimator='gro'"),
        ("no_such_module:f", "no_such_module"),
        ("users_module:f", "defines no f"),
        (":f", "module:function"),
        ("users_module:", "module:function"),
    ],
)
def test_an_unknown_name_is_a_users_error(module, name, part):
    with pytest.raises(ConfigError, match=part):
        get_advantage(name)
