"""The purposes that a run depends on, and their versions."""

import json
from pathlib import Path

import pytest

from refblend import numerics
from refblend.config import RefblendConfig, load_config
from refblend.numerics import training_purposes, versions
from refblend.rewards.rule import RULES, reward_purposes

ROOT = Path(__file__).parents[1]


def config_of(*overrides: str) -> RefblendConfig:
    return load_config([ROOT / "params" / "ppo.yaml", ROOT / "params/scale/cpu.yaml"], overrides)


def test_versions_are_whole_numbers_from_1_on() -> None:
    stored = json.loads(Path(numerics.__file__).with_name("numerics.json").read_text())
    assert all(type(value) is int and value >= 1 for value in stored.values())
    assert versions("train", "judge.parse") == {
        name: stored[name] for name in ("judge.parse", "train")
    }
    with pytest.raises(KeyError):
        versions("weather")


SCORE = "algorithm.ref_quality_score"


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ([f"{SCORE}.enable=false"], []),
        ([f"{SCORE}.enable=true"], ["judge.parse", "judge.prompt"]),
        ([f"{SCORE}.enable=true", f"{SCORE}.scoring.control=random"], []),
        ([f"{SCORE}.enable=true", f"{SCORE}.scoring.control=oracle"], ["reward.imperfect"]),
        ([f"{SCORE}.enable=true", f"{SCORE}.scoring.kind=mine:Judge"], []),
        ([f"{SCORE}.enable=true", f"{SCORE}.scoring.kind=reward_model"], []),
        ([f"{SCORE}.enable=false", "reward.verifier.flip_rate=0.1"], ["reward.imperfect"]),
        ([f"{SCORE}.enable=false", "reward.verifier.checked_share=0.5"], ["reward.imperfect"]),
        ([f"{SCORE}.enable=false", "algorithm.repr_align.enable=true"], ["reward.alignment"]),
    ],
)
def test_a_run_depends_on_what_it_uses(overrides: list[str], expected: list[str]) -> None:
    assert training_purposes(config_of(*overrides)) == sorted([*expected, "train"])


def test_the_rows_say_which_rules_score_them() -> None:
    reward = config_of().reward
    assert reward_purposes(reward, ["refblend/arithmetic", "openai/gsm8k"]) == {"reward.gsm8k"}
    assert reward_purposes(reward, ["lighteval/MATH", "unknown"]) == {"reward.math"}
    own = config_of("reward.custom_reward_function=mine:score").reward
    assert reward_purposes(own, ["openai/gsm8k"]) == set()
    name = "refblend.rewards.reasoning_gym:compute_score"
    ours = config_of(f"reward.custom_reward_function={name}").reward
    assert reward_purposes(ours, ["reasoning_gym/sums"]) == {"reward.reasoning_gym"}
    for source in RULES:
        assert reward_purposes(reward, [source]), source
