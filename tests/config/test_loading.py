"""Loading, overrides, and the one-line errors for every kind of wrong input."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refblend.config import load_config, parse_override
from refblend.config.loading import merge
from refblend.errors import ConfigError

PARAMS = Path(__file__).resolve().parents[2] / "params"
FILES = [PARAMS / "ppo.yaml", PARAMS / "scale" / "smoke.yaml"]
QUALITY = "algorithm.ref_quality_score"


def refusal(*overrides: str, files: list[Path] | None = None) -> str:
    """The message of the refusal; one line with reason and remedy."""
    with pytest.raises(ConfigError) as caught:
        load_config(FILES if files is None else files, overrides)
    message = str(caught.value)
    assert message.splitlines() == [message]
    assert caught.value.reason
    assert caught.value.remedy
    assert caught.value.exit_status == 2
    return message


# --- what is accepted ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("trainer.seed=7", ["trainer", "seed"], 7),
        ("a=1e-4", ["a"], 1e-4),
        ("a=", ["a"], None),
        ("a={b: 1}", ["a"], {"b": 1}),
        ("a=/data/x=1/train.parquet", ["a"], "/data/x=1/train.parquet"),
    ],
)
def test_parse_override(text: str, path: list[str], value: Any) -> None:
    assert parse_override(text) == (path, value)


def test_overrides_reach_the_tree_and_the_last_one_wins() -> None:
    config = load_config(
        FILES,
        [
            "actor_rollout_ref.actor.optim.lr=1e-4",
            "actor_rollout_ref.actor.optim.lr=3e-5",
            "actor_rollout_ref.rollout.max_model_len=null",
            "data.train_files=[a.parquet,b.jsonl]",
            "trainer.logger=[]",
            f"{QUALITY}.max_weight=0",
        ],
    )
    assert config.actor_rollout_ref.actor.optim.lr == 3e-5
    assert config.actor_rollout_ref.rollout.max_model_len is None
    assert config.data.train_files == ["a.parquet", "b.jsonl"]
    assert config.trainer.logger == []
    assert config.algorithm.ref_quality_score.max_weight == 0.0


def test_later_files_win_and_exponents_without_a_dot_are_numbers(tmp_path: Path) -> None:
    later = tmp_path / "later.yaml"
    later.write_text("critic: {optim: {lr: 5e-4}}\ndata: {val_files: [v.parquet]}\n")
    config = load_config([*FILES, later])
    assert config.critic.optim.lr == 5e-4
    assert config.data.val_files == ["v.parquet"]
    assert config.data.train_files == ["data/smoke/train.parquet"]
    named = load_config([*FILES], ["trainer.experiment_name='1e5'"])
    assert named.trainer.experiment_name == "1e5"


def test_an_empty_file_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").write_text("# nothing\n")
    assert load_config([*FILES, tmp_path / "empty.yaml"]) == load_config(FILES)


# --- what is refused -------------------------------------------------------------------------


ROLLOUT = "actor_rollout_ref.rollout"
JUDGE = f"{QUALITY}.scoring"
REWARD = "reward.custom_reward_function"
ADAPTER = f"actor_rollout_ref.model.lora_rank=3; {ROLLOUT}.lora=adapter"
REFERENCE = f"{QUALITY}.enable=true; {QUALITY}.scoring.kind=reference"
WRONG_VALUES = {
    f"{QUALITY}.max_wieght=0.2": f"{QUALITY}.max_wieght … Did you mean {QUALITY}.max_weight?",
    "trainer.sede=1": "trainer.sede … Did you mean trainer.seed?",
    "algoritm.gamma=1": "algoritm … Did you mean algorithm?",
    "trainer.zzz=1": "trainer.zzz … total_epochs",
    f"{QUALITY}.max_weight=1.5": f"{QUALITY}.max_weight=1.5 … less than or equal to 1",
    f"{QUALITY}.max_weight=-0.1": f"{QUALITY}.max_weight … greater than or equal to 0",
    f"{QUALITY}.max_weight=.nan": f"{QUALITY}.max_weight … finite",
    f"{QUALITY}.entropy_high_threshold=0": "_threshold=0 is not acceptable … auto … greater than 0",
    f"{QUALITY}.strategy=quadratic": f"{QUALITY}.strategy … 'linear' … 'schedule'",
    f"{QUALITY}.scoring.model_path=null": "scoring.model_path … enable=false",
    f"{ROLLOUT}.max_model_len=100": "max_model_len=100 … 188 … Raise it, or shorten the lengths",
    f"{ROLLOUT}.top_p=0.9": "top_p … Set top_p=1.0",
    f"{ROLLOUT}.top_k=50": "top_k … top_k=-1",
    f"{ROLLOUT}.n=1": "adv_estimator=grpo … rollout.n to 2",
    f"{ROLLOUT}.name=sglang": "rollout.name … 'vllm'",
    "actor_rollout_ref.actor.ppo_mini_batch_size=64": "train_batch_size=8 … Lower it",
    "actor_rollout_ref.actor.use_dynamic_bsz=false": "ppo_micro_batch_size_per_gpu",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4": (
        "ppo_micro_batch_size_per_gpu=4 has no effect … use_dynamic_bsz is true"
    ),
    f"{REWARD}.name=mine": "name has no effect without path … Set path to the function's file",
    f"{REWARD}.path=a.py; {REWARD}.reward_kwargs={{bonus: .inf}}": "kwargs: it is not finite",
    f"{REWARD}.reward_kwargs={{bonus: 0.1}}": "reward_kwargs has no effect without path",
    "ray.address=foo": "ray.address: foo is not … HOST:PORT … or auto",
    "trainer.default_local_dir=~/runs/x": "_dir: ~/runs/x would be … Write your home directory out",
    "data.train_files=[~/a.parquet]": "data.train_files: ~/a.parquet",
    "actor_rollout_ref.actor.optim.betas=[0.9]": "betas has too few values … Give all of them",
    "actor_rollout_ref.model.path=null": "actor_rollout_ref.model.path is null. Give it",
    "trainer.seed=null": "trainer.seed is null. Give it a value … its default is 1.",
    "data.train_batch_size=0": "data.train_batch_size=0",
    "data.train_files=a.parquet": "='a.parquet' … Write a list: data.train_files=[a.parquet].",
    "trainer.seed=one": "trainer.seed='one' … integer",
    "trainer=3": "trainer=3 … It is a section; set one of its keys, e.g. trainer.seed=1.",
    "critic.optim=": "critic.optim is null. It is a section … critic.optim.lr=1e-06",
    "algorithm.adv_estimator=gae; critic.enable=false": "critic.enable",
    f"algorithm.adv_estimator=reinforce_plus_plus; {ROLLOUT}.n=1; {QUALITY}.groups=mixed": (
        "groups=mixed compares the responses of a prompt … rollout.n to 2 or more"
    ),
    "critic.fsdp_config={world_size: 2, num_gpus_per_worker: 0.4}": "several of the 2 ranks on one",
    f"{JUDGE}.sleep=true; {JUDGE}.overlap=true": "a judge that sleeps takes turns",
    f"{ROLLOUT}.lora=adapter": "rank from 1 to 512",
    f"{ADAPTER}; {ROLLOUT}.name=hf": "rollout.name is hf",
    f"{ROLLOUT}.name=hf; {ROLLOUT}.engine_kwargs.x=2": f"{ROLLOUT}.engine_kwargs is for vLLM",
    f"{JUDGE}.kind=hf; {JUDGE}.engine_kwargs.x=2": f"{JUDGE}.engine_kwargs … engine is hf",
    f"{JUDGE}.kind=reward_model; {JUDGE}.tensor_model_parallel_size=2": "Set tensor_model_parallel",
    f"{ROLLOUT}.enable_chunked_prefill=true": f"set {ROLLOUT}.num_gpus.",
    f"{JUDGE}.enable_chunked_prefill=true": f"{JUDGE}.enable_chunked_prefill=true without a GPU",
    "trainer.critic_warmup=5": "critic_warmup=5 keeps the actor as it is",
    "trainer.resume_from_path=runs/x": "resume_mode is auto and resume_from_path runs/x",
    "trainer.resume_mode=resume_path": "Set resume_mode=resume_path and a path",
    "trainer.resume_mode=resume_path; trainer.default_local_dir=r; "
    "trainer.resume_from_path=./q/../r/checkpoints/global_step_1": "lies in default_local_dir",
    "trainer.drift_guard.stop=true; data.sanity_files=[]": "watches the sanity set",
    f"{REFERENCE}; {QUALITY}.scoring.model_path=models/judge": "Leave model_path out",
    f"{ADAPTER}; {REFERENCE}; {QUALITY}.scoring.model_path=null": "max_model_len has no effect",
}
"""What is set, and the parts of the message."""


@pytest.mark.parametrize(("overrides", "parts"), WRONG_VALUES.items())
def test_wrong_values_name_key_and_remedy(overrides: str, parts: str) -> None:
    message = refusal(*overrides.split("; "))
    for part in parts.split(" … "):
        assert part in message


def test_a_required_key_that_the_defaults_leave_to_the_scale() -> None:
    message = refusal(files=FILES[:1])
    named = "actor_rollout_ref.model.path is null in " + str(FILES[0])
    assert f"{named}. Give it a value, or add a file that sets it" in message
    assert "--config params/scale/smoke.yaml" in message


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        (
            "trainer.seed: 3",
            "In a file write it nested (trainer: {seed: 3}), or give trainer.seed=3 on the command "
            "line.",
        ),
        ("critic: {optim.lr: 1.0e-4}", "nested (critic: {optim: {lr: 0.0001}})"),
        ("trainer.sede: 3", "Did you mean trainer.seed?"),
        ("trainr.seed: 3", "Did you mean trainer?"),
        ("trainer.seed.x: 3", "Remove it."),
    ],
)
def test_a_key_with_dots_in_a_file(tmp_path: Path, text: str, remedy: str) -> None:
    path = tmp_path / "dotted.yaml"
    path.write_text(text)
    message = refusal(files=[*FILES, path])
    assert message.startswith("unknown key ")
    assert f" in {path}. " in message
    assert remedy in message


@pytest.mark.parametrize("address", ["10.0.0.1:6379", "ray://head:10001", "[::1]:6379", "auto"])
def test_addresses_of_a_cluster(address: str) -> None:
    assert load_config(FILES, [f"ray.address='{address}'"]).ray.address == address


@pytest.mark.parametrize("key", ["clip_ratio", "clip_ratio_low"])
def test_a_clipped_ratio_has_no_bound_below_zero(key: str) -> None:
    actor = "actor_rollout_ref.actor"
    message = refusal(f"{actor}.{key}=10")
    assert f"{key}=10.0 is above 1" in message
    assert "clip_ratio_low=1" in message
    load_config(FILES, [f"{actor}.clip_ratio=10", f"{actor}.clip_ratio_low=1"])


@pytest.mark.parametrize("low", [1.0, 1.2])
def test_piecewise_thresholds_must_be_ordered(low: float) -> None:
    high = f"{QUALITY}.entropy_high_threshold=1.0"
    lows = f"{QUALITY}.entropy_low_threshold={low}"
    message = refusal(f"{QUALITY}.strategy=piecewise", high, lows)
    assert "entropy_low_threshold" in message
    assert "entropy_high_threshold" in message
    load_config(FILES, [f"{QUALITY}.entropy_low_threshold={low}"])  # linear does not use it


def test_all_problems_are_listed_unknown_keys_first() -> None:
    message = refusal("trainer.seed=-1", "trainer.sede=1", "data.truncation=up")
    assert message.startswith(
        "3 problems: (1) unknown key trainer.sede. Did you mean trainer.seed?"
    )
    assert "(2) data.truncation='up' is not acceptable" in message
    assert "(3) trainer.seed=-1 is not acceptable" in message


def test_a_long_list_of_problems_is_cut() -> None:
    message = refusal(*(f"trainer.zz{number}=1" for number in range(30)))
    assert "30 problems" in message
    assert "(20) unknown key" in message
    assert "(21)" not in message
    assert "and 10 more" in message


@pytest.mark.parametrize("text", ["trainer.seed", "=3", "a..b=1", ".a=1", ""])
def test_malformed_override(text: str) -> None:
    assert "key=value" in refusal(text)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("data:\n  train_files: [a\nx: 1\n", 3),
        ("a: 1\n b: 2\n", 2),
        ("a: '\n", 2),
        ("a:\n\t- 1", 2),
    ],
)
def test_bad_yaml_names_the_line(tmp_path: Path, text: str, line: int) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    message = refusal(files=[path])
    assert str(path) in message
    assert f"line {line}" in message


def test_a_directory_instead_of_a_file(tmp_path: Path) -> None:
    assert "cannot be read" in refusal(files=[tmp_path])


def test_no_configuration_at_all() -> None:
    assert "data is missing" in refusal(files=[])


# --- properties ------------------------------------------------------------------------------

SCALARS = st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["x", "y z", ""])
TREES = st.recursive(
    SCALARS | st.lists(SCALARS, max_size=2),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
MAPPINGS = st.dictionaries(st.sampled_from("abc"), TREES, max_size=3)


def paths_of(tree: Any) -> dict[tuple[str, ...], Any]:
    """Every scalar or list by its path; an empty mapping counts as a leaf."""
    if not isinstance(tree, dict) or not tree:
        return {(): tree}
    return {(k, *rest): v for k, sub in tree.items() for rest, v in paths_of(sub).items()}


@given(MAPPINGS, MAPPINGS)
def test_merge_keeps_all_of_the_overlay_and_changes_neither(base: dict, overlay: dict) -> None:
    before = json.dumps([base, overlay], sort_keys=True)
    merged = merge(base, overlay)
    assert json.dumps([base, overlay], sort_keys=True) == before
    assert merge(base, {}) == base
    for path, value in paths_of(overlay).items():
        at = merged
        for key in path:
            at = at[key]
        if value != {}:
            assert at == value
