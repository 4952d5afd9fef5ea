"""Parameter files and pydantic tree: the same parameters with the same defaults."""

from pathlib import Path

import pytest

from refblend.config import RefblendConfig, load_config
from refblend.config.algorithm import RefQualityScoreConfig
from refblend.config.loading import merge, read_yaml
from refblend.ppo.weights import STRATEGIES, Strategy

PARAMS = Path(__file__).resolve().parents[2] / "params"
JUDGE = "algorithm.ref_quality_score"


def test_every_parameter_has_a_place_in_the_json_schema() -> None:
    schema = RefblendConfig.model_json_schema()
    assert schema["additionalProperties"] is False
    for name, section in schema["$defs"].items():
        assert section["additionalProperties"] is False, name


def test_ppo_yaml_holds_the_defaults_of_the_tree() -> None:
    """All keys and no others. Excepted is what has no default, and the judge: it needs a model."""
    written = read_yaml(PARAMS / "ppo.yaml")
    path = {"model": {"path": "m"}}
    least = {"data": {"train_files": [], "val_files": []}, "actor_rollout_ref": path}
    defaults = RefblendConfig.model_validate(least).resolved()
    quality = written["algorithm"]["ref_quality_score"]
    assert quality.pop("enable") is RefQualityScoreConfig.model_fields["enable"].default is True
    assert defaults["algorithm"]["ref_quality_score"].pop("enable") is False
    written["actor_rollout_ref"]["model"]["path"] = "m"
    assert written == defaults


def test_the_spec_s_defaults() -> None:
    """Section 4 of docs/spec.md: what ppo.yaml gives without scale and arm."""
    tree = merge(
        read_yaml(PARAMS / "ppo.yaml"),
        {
            "actor_rollout_ref": {"model": {"path": "m"}},
            "algorithm": {"ref_quality_score": {"scoring": {"model_path": "j"}}},
        },
    )
    config = RefblendConfig.model_validate(tree)
    quality = config.algorithm.ref_quality_score
    assert quality.enable
    assert (quality.strategy, quality.placement) == ("linear", "per_token")
    assert (quality.max_weight, quality.entropy_high_threshold) == (0.3, 1.0)
    assert (quality.invalid_score, quality.scoring.max_new_tokens) == (0.5, 64)
    assert quality.scoring.fallback_max_length == 768
    assert (config.data.max_prompt_length, config.data.max_response_length) == (256, 256)
    assert config.actor_rollout_ref.rollout.max_model_len == 2048
    assert config.actor_rollout_ref.rollout.gpu_memory_utilization <= 0.65
    assert config.algorithm.repr_align.entropy_high_threshold == 0.32


def test_critic_reference_and_judge_follow_from_the_algorithm() -> None:
    files = [PARAMS / "ppo.yaml", PARAMS / "scale" / "smoke.yaml"]
    plain = load_config(files, [f"{JUDGE}.enable=false", "algorithm.use_kl_in_reward=false"])
    assert not plain.use_critic
    assert not plain.use_reference
    assert not plain.use_judge
    assert load_config(files, ["algorithm.adv_estimator=gae"]).use_critic
    assert load_config(files, ["critic.enable=true"]).use_critic
    assert load_config(files, ["algorithm.use_kl_in_reward=true"]).use_reference
    no_kl = ["algorithm.use_kl_in_reward=false"]
    assert load_config(files, [*no_kl, "actor_rollout_ref.actor.use_kl_loss=true"]).use_reference
    assert load_config(files, [*no_kl, "algorithm.repr_align.enable=true"]).use_reference
    assert not load_config(files, [f"{JUDGE}.scoring.control=random"]).use_judge
    assert load_config(files, [f"{JUDGE}.scoring.control=shuffled"]).use_judge


def test_every_registered_strategy_is_a_value_of_the_configuration(monkeypatch) -> None:
    for name in STRATEGIES:
        assert RefQualityScoreConfig(enable=False, strategy=name).strategy == name
    toy = Strategy("toy", lambda entropy, params, at: 0.0, ())
    with pytest.raises(ValueError, match="'schedule'"):
        RefQualityScoreConfig(enable=False, strategy="toy")
    monkeypatch.setitem(STRATEGIES, "toy", toy)
    assert RefQualityScoreConfig(enable=False, strategy="toy").strategy == "toy"


@pytest.mark.parametrize(
    ("settings", "remedy"),
    [
        ({"method": "gdpo"}, "set placement=terminal"),
        (
            {"method": "hero", "placement": "terminal", "scoring": {"on_failure": "rule_reward"}},
            "set scoring.on_failure=invalid_score",
        ),
        ({"scoring": {"control": "shuffled", "on_failure": "rule_reward"}}, "on_failure=invalid"),
        ({"weight_per_length": True, "placement": "terminal"}, "weight_per_length=false"),
        (
            {"strategy": "replay", "replay_file": "m.jsonl", "max_weight_warmup_steps": 2},
            "max_weight_warmup_steps=0",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused_with_a_remedy(settings, remedy) -> None:
    own = settings.get("scoring", {})
    given = settings | {"scoring": {"model_path": "judge"} | own}
    with pytest.raises(ValueError, match=remedy):
        RefQualityScoreConfig.model_validate(given)
    RefQualityScoreConfig.model_validate(given | {"enable": False})
