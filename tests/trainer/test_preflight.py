"""What training would refuse later is refused before a process starts, all at once."""

import json
import re
import shutil
import time
from pathlib import Path

import pandas as pd
import pytest

from refblend.config import RefblendConfig
from refblend.errors import (
    CheckpointError,
    ConfigError,
    DataError,
    ModelError,
    ProblemsError,
    RefblendError,
)
from refblend.trainer.preflight import gold_counts, notices, preflight

BLEND = "algorithm.ref_quality_score"
JUDGE = f"{BLEND}.scoring"


def refusal(config: RefblendConfig) -> RefblendError:
    begin = time.monotonic()
    with pytest.raises(RefblendError) as caught:
        preflight(config)
    assert time.monotonic() - begin < 5
    return caught.value


@pytest.mark.parametrize("where", ["/proc/refblend", "file", "file/below"])
def test_a_directory_that_cannot_be_written(tiny_config, tmp_path, where):
    (tmp_path / "file").touch()
    error = refusal(tiny_config(f"trainer.default_local_dir={tmp_path / where}"))
    assert isinstance(error, CheckpointError)
    assert f"trainer.default_local_dir={tmp_path / where}" in str(error)
    assert "cannot be written" in str(error)


def test_the_directory_is_not_made(tiny_config, tmp_path):
    preflight(tiny_config(f"trainer.default_local_dir={tmp_path / 'runs' / 'new'}"))
    assert not (tmp_path / "runs").exists()
    assert not list(tmp_path.glob(".refblend-*"))


def test_a_model_that_is_not_there_is_one_problem(tiny_config):
    path, longest = "actor_rollout_ref.model.path=/none", "actor_rollout_ref.rollout.max_model_len"
    error = refusal(tiny_config(path, f"{longest}=null"))
    assert isinstance(error, ModelError)
    assert "actor_rollout_ref.model.path: /none is not a directory" in str(error)


@pytest.mark.parametrize("key", ["actor_rollout_ref.model.path", f"{JUDGE}.model_path"])
@pytest.mark.parametrize("kept", [0, 4, 0.5, 0.999])
def test_truncated_weights(tiny_config, tiny_model_dir, tmp_path, key, kept):
    """Whether the header or only the data is cut; the data is not read for it."""
    model = tmp_path / "model"
    shutil.copytree(tiny_model_dir, model)
    weights = model / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[: kept if kept >= 1 else int(kept * len(content))])
    error = refusal(tiny_config(f"{key}={model}"))
    assert isinstance(error, ModelError)
    assert f"{key}: {weights} cannot be read" in str(error)


REWARDS = """
def two(a, b): return 0.0
def raises(data_source, solution_str, ground_truth, extra_info): return {}["answer"]
"""


@pytest.fixture
def reward_file(tmp_path: Path) -> Path:
    path = tmp_path / "rewards.py"
    path.write_text(REWARDS)
    return path


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("two", "does not take verl's arguments"),
        ("raises", "failed on the row with index 0 of refblend/arithmetic: KeyError: 'answer'"),
    ],
)
def test_a_reward_that_cannot_be_called(tiny_config, reward_file, name, message):
    function = f"reward.custom_reward_function={{path: {reward_file}, name: {name}}}"
    assert message in str(refusal(tiny_config(function)))


@pytest.mark.parametrize("key", ["train_files", "val_files", "sanity_files"])
def test_a_data_source_without_a_rule(tiny_config, tiny_data_dir, tmp_path, key):
    """Even where only the last row is of it."""
    frame = pd.read_parquet(tiny_data_dir / "train.parquet")
    frame.loc[len(frame) - 1, "data_source"] = "mine/riddles"
    path = tmp_path / "rows.parquet"
    frame.to_parquet(path)
    error = refusal(tiny_config(f"data.{key}=[{path}]"))
    assert isinstance(error, ConfigError)
    assert "there is no rule reward for data_source 'mine/riddles'" in str(error)


def test_all_problems_are_told_at_once(tiny_config, reward_file):
    error = refusal(
        tiny_config(
            "trainer.default_local_dir=/proc/refblend",
            f"{JUDGE}.model_path=/none",
            "data.val_files=[/nothing.parquet]",
            f"reward.custom_reward_function={{path: {reward_file}, name: two}}",
        )
    )
    assert isinstance(error, ProblemsError)
    assert len(error.problems) == 4
    for part in ("4 problems", "/proc/refblend", "/none", "/nothing.parquet", "verl's arguments"):
        assert part in str(error)


def numbered_rows(path: Path, answers: list[str]) -> Path:
    """A prompt file of arithmetic; the question of row i has i words more."""
    rows = [
        {
            "data_source": "refblend/arithmetic",
            "prompt": [{"role": "user", "content": "What is 2 + 3?" + " please" * i}],
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": answer},
            "extra_info": {"split": "train", "index": i},
        }
        for i, answer in enumerate(answers)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_every_gold_answer_is_tried(tiny_config, tmp_path):
    """A run could not go on from a row that must be corrected first."""
    path = numbered_rows(tmp_path / "rows.jsonl", ["5"] * 6 + ["1/2", "5"])
    error = refusal(tiny_config(f"data.train_files=[{path}]"))
    assert isinstance(error, DataError)
    assert "data.train_files: the row with index 6 of refblend/arithmetic" in str(error)
    assert "'1/2' is not a number" in str(error)


@pytest.mark.parametrize("setting", [f"{JUDGE}.control=oracle", "algorithm.repr_align.enable=true"])
def test_what_needs_gold_solutions_is_refused_without(
    tiny_config, tiny_data_dir, tmp_path, setting
):
    frame = pd.read_parquet(tiny_data_dir / "train.parquet")
    last = frame.extra_info.iloc[-1]
    frame.at[len(frame) - 1, "extra_info"] = {**last, "answer": ""}
    path = tmp_path / "rows.parquet"
    frame.to_parquet(path)
    preflight(tiny_config(setting))
    key = setting.removeprefix("algorithm.ref_quality_score.").partition(".enable")[0]
    with pytest.raises(DataError, match=f"row .* has no gold solution, which {key} "):
        preflight(tiny_config(setting, f"data.train_files=[{path}]"))


def test_an_estimator_that_needs_values_needs_a_critic(tiny_config, tmp_path, monkeypatch):
    """The decorator alone starts no critic."""
    (tmp_path / "valued.py").write_text(
        "from refblend.ppo.estimators import register_advantage\n"
        "@register_advantage('valued', needs_values=True)\n"
        "def estimate(inputs): return inputs.values, inputs.values\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    mine = "algorithm.adv_estimator=valued:estimate"
    with pytest.raises(ConfigError, match=r"valued:estimate needs a critic's values") as caught:
        preflight(tiny_config(mine))
    assert "critic.enable=true" in str(caught.value)
    preflight(tiny_config(mine, "critic.enable=true"))


def test_gold_answers_are_counted_by_both_rules_and_source(tiny_config, tmp_path):
    path = numbered_rows(tmp_path / "rows.jsonl", ["5", "6", "7", "8"])
    records = [json.loads(line) for line in path.read_text().splitlines()]
    records[1]["extra_info"] = {"answer": "so #### 7"}
    records[2]["extra_info"] = {"answer": "it is 7"}
    records[3]["extra_info"] = {"answer": "#### 8, not 9"}
    path.write_text("\n".join(map(json.dumps, records)))
    files = [f"data.train_files=[{path}]", f"data.val_files=[{path}]", "data.sanity_files=[]"]
    config = tiny_config(*files, "algorithm.ref_quality_score.enable=false")
    data = preflight(config)
    source = records[0]["data_source"]
    assert gold_counts(config, data) == [
        f"gold answers of {source} that score 1: 2 of 8 by the strict rule, 4 by the flexible one; "
        "not that of the row with index 1"
    ]
    for record in records:
        record["extra_info"] = {"answer": "nothing"}
    path.write_text("\n".join(map(json.dumps, records)))
    with pytest.raises(DataError, match="0 of 8 by the strict rule, 0 by the flexible"):
        gold_counts(config, preflight(config))


def test_a_reward_of_the_users_has_one_count_and_should_vary_from_0_to_1(
    tiny_config, tmp_path, monkeypatch
):
    (tmp_path / "mine.py").write_text(
        "def score(data_source, solution_str, ground_truth, extra_info, high): return high\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    for high, right in ((1, "64 of 64"), (3, "0 of 64; not")):
        config = tiny_config(
            "reward.custom_reward_function.path=pkg://mine",
            "reward.custom_reward_function.name=score",
            f"reward.custom_reward_function.reward_kwargs.high={high}",
        )
        count, notice = gold_counts(config, preflight(config))[:2]
        assert f"score 1: {right}" in count
        assert f"from {high} to {high} on gold" in notice


def test_special_tokens_in_gold_answers_are_told_unless_rewards_see_them(
    tiny_config, tiny_model_dir, tmp_path
):
    from refblend.data.tokenizer import load_tokenizer

    model = tmp_path / "model"
    shutil.copytree(tiny_model_dir, model)
    tokenizer = load_tokenizer(model)
    tokenizer.add_special_tokens({"additional_special_tokens": ["####"]})
    tokenizer.save_pretrained(model)
    config = tiny_config(f"actor_rollout_ref.model.path={model}")
    data = preflight(config)
    assert any("'####' is a special token" in told for told in notices(config, data))
    assert "of" in gold_counts(config, data)[0]
    ids = [*data.encode("so #### 5"), data.tokenizer.eos_token_id]
    assert data.decode(ids) == "so  5"
    kept = tiny_config(f"actor_rollout_ref.model.path={model}", "reward.keep_special_tokens=true")
    data = preflight(kept)
    assert data.decode(ids) == "so #### 5"
    assert not any("####" in told for told in notices(kept, data))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ([], True),
        (["placement=terminal"], False),
        (["placement=per_token_mean"], False),
        (["weight_per_length=true"], False),
        (["max_weight=0"], False),
        (["enable=false"], False),
    ],
)
def test_a_blend_that_pays_for_length_is_told(tiny_config, changes, told):
    config = tiny_config(*(f"algorithm.ref_quality_score.{change}" for change in changes))
    found = notices(config, preflight(config))
    assert any("pays for length" in sentence for sentence in found) == told


ROLLOUT = "actor_rollout_ref.rollout"
REFUSED = [
    (f"{ROLLOUT}.num_gpus=100", f"asks for 100 GPUs.*Lower {ROLLOUT}.num_gpus"),
    (f"{ROLLOUT}.kv_cache_memory_mb=9000000", f"the machine has.*Change {ROLLOUT}.kv_cache_memory"),
    ("ray.object_store_memory_mb=9000000", "the machine has.*Change ray.object_store_memory"),
    ("trainer.country_iso_code=XX trainer.energy=true", "'XX'"),
    (
        f"{ROLLOUT}.max_model_len=null data.max_response_length=100000",
        r"max_response_length=\d+ is beyond the \d+ positions",
    ),
    ("trainer.default_local_dir=runs/a.20261001T120000Z", "prune` deletes"),
    (f"algorithm.adv_estimator=remax {BLEND}.entropy_level=response", "blends greedy responses"),
]


@pytest.mark.parametrize(("settings", "told"), REFUSED)
def test_settings_that_could_not_work_are_refused(tiny_config, settings, told):
    assert re.search(told, str(refusal(tiny_config(*settings.split()))))


@pytest.mark.parametrize("row", [0, 2])
def test_a_cluster_elsewhere_may_have_more_than_this_machine(tiny_config, row):
    preflight(tiny_config(REFUSED[row][0], "ray.address=1.2.3.4:5"))
