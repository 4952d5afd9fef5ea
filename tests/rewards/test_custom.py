import math
import re
import sys
import types

import numpy as np
import pytest
from pydantic import ValidationError

from refblend.config.root import RefblendConfig, RewardConfig
from refblend.data.schema import PromptRow, read_rows, write_rows
from refblend.errors import ConfigError, DataError, RewardError
from refblend.rewards.result import RewardResult
from refblend.rewards.rule import RuleReward


def reward_of(custom_reward_function):
    return RuleReward.from_config(RewardConfig(custom_reward_function=custom_reward_function))


@pytest.fixture
def module(monkeypatch):
    made = types.ModuleType("users_rewards")
    monkeypatch.setitem(sys.modules, "users_rewards", made)
    return made


def test_a_custom_function_is_called_as_verl_calls_it(module):
    calls = []

    def compute_score(data_source, solution_str, ground_truth, extra_info=None):
        calls.append((data_source, solution_str, ground_truth, extra_info))
        return 1

    module.compute_score = compute_score
    reward = reward_of("users_rewards:compute_score")
    assert reward("any/source", "text", "gold", {"index": 3}) == RewardResult(1.0, 1.0, 1.0)
    assert reward("any/source", "text", "gold").score == 1.0
    assert calls == [
        ("any/source", "text", "gold", {"index": 3}),
        ("any/source", "text", "gold", {}),
    ]


def test_whatever_fails_names_the_row(module):
    """The preflight tries gold solutions only: a reward may choke on the model's own text."""

    def compute_score(data_source, solution_str, ground_truth, extra_info):
        return {"score": float(solution_str)}

    module.f = compute_score
    row = PromptRow(4711, "mine/sums", [], "1 + 1", "2", "")
    assert reward_of("users_rewards:f").of_row(row, "2").score == 2.0
    with pytest.raises(RewardError) as caught:
        reward_of("users_rewards:f").of_row(row, "no idea")
    for part in ("users_rewards:f", "index 4711 of mine/sums", "ValueError", "'no idea'"):
        assert part in caught.value.reason
    with pytest.raises(
        ConfigError, match=r"index 4711 of mine/sums: there is no rule reward"
    ) as told:
        RuleReward().of_row(row, "2")
    assert "custom_reward_function" in told.value.remedy
    gold = PromptRow(12, "openai/gsm8k", [], "1 + 1", "two", "")
    with pytest.raises(DataError, match=r"index 12 of openai/gsm8k: .*two"):
        RuleReward().of_row(gold, "#### 2")


def test_a_response_that_breaks_the_reward_scores_0_and_is_counted(module, caplog):
    module.f = lambda data_source, solution_str, ground_truth, extra_info: float(solution_str)
    row = PromptRow(7, "mine/sums", [], "1 + 1", "2", "")
    reward = reward_of("users_rewards:f")
    for _ in range(2):
        results = reward.of_rows([row] * 4, ["2", "no idea", "nan", "1"])
        assert [result.score for result in results] == [2.0, 0.0, 0.0, 1.0]
        assert [bool(result.error) for result in results] == [False, True, True, False]
    (shown,) = caplog.messages
    assert "index 7 of mine/sums" in shown
    assert "'no idea'" in shown
    assert (reward.take_errors(), reward.take_errors()) == (4, 0)


def test_a_reward_that_fails_on_every_response_ends_the_run(module):
    module.f = lambda data_source, solution_str, ground_truth, extra_info: 1 / 0
    row = PromptRow(7, "mine/sums", [], "1 + 1", "2", "")
    with pytest.raises(RewardError, match=r"every response of the step \(2\).*ZeroDivisionError"):
        reward_of("users_rewards:f").of_rows([row] * 2, ["2", "3"])
    assert reward_of("users_rewards:f").of_rows([], []) == []


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.25, (0.25, 0.25, 0.25)),
        (True, (1.0, 1.0, 1.0)),
        ({"score": 0.5}, (0.5, 0.5, 0.5)),
        ({"score": 0.5, "acc": True, "other": "x"}, (0.5, 1.0, 1.0)),
        ({"score": 0.5, "acc_strict": 0, "acc_flexible": 1}, (0.5, 0.0, 1.0)),
        (RewardResult(0.1, 0.2, 0.3), (0.1, 0.2, 0.3)),
        (RewardResult(math.nan, 1.0, 1.0, "timeout"), (0.0, 0.0, 0.0, "timeout")),
        (np.float32(0.5), (0.5, 0.5, 0.5)),
        (np.array(2), (2.0, 2.0, 2.0)),
        ({"score": np.int64(1), "acc": np.bool_(False)}, (1.0, 0.0, 0.0)),
    ],
)
def test_what_a_custom_function_may_give(module, value, expected):
    module.f = lambda **_: value
    assert reward_of("users_rewards:f")("s", "t", "g") == RewardResult(*expected)


@pytest.mark.parametrize("value", [None, "good", {}, {"score": None}, math.nan, math.inf, [1]])
def test_what_it_may_not_give(module, value):
    module.f = lambda **_: value
    with pytest.raises(RewardError, match="custom_reward_function='users_rewards:f'"):
        reward_of("users_rewards:f")("s", "t", "g")


@pytest.mark.parametrize(
    "function",
    [
        "users_rewards:g",
        "no_such_module_x:f",
        {"path": "no_such_file.py"},
        {"path": "pkg://users_rewards", "name": "g"},
        {"path": "pkg://not a module"},
    ],
)
def test_a_function_that_does_not_exist_fails_before_the_run(module, function):
    with pytest.raises(ConfigError, match="custom_reward_function"):
        reward_of(function)


def test_a_name_without_a_colon_is_refused_by_the_configuration():
    with pytest.raises(ValidationError, match="not of the form module:function"):
        reward_of("f")


@pytest.mark.parametrize(
    ("function", "kwargs"),
    [
        (lambda solution, truth: 0.0, {}),
        (lambda data_source, solution_str, ground_truth, extra_info: 0.0, {"bonus": 1}),
        (lambda data_source, solution_str, ground_truth, extra_info, bonus: 0.0, {}),
        (lambda **_: 0.0, {"extra_info": 1}),
    ],
)
def test_other_arguments_are_refused_before_the_run(module, function, kwargs):
    module.f = function
    with pytest.raises(ConfigError, match="does not take verl's arguments"):
        reward_of({"path": "pkg://users_rewards", "name": "f", "reward_kwargs": kwargs})


RECORD = {
    "data_source": "mine",
    "prompt": [{"role": "user", "content": "1+1?"}],
    "reward_model": {"style": "rule", "ground_truth": "2"},
    "extra_info": {
        "index": 7,
        "split": "train",
        "question": "1+1?",
        "answer": "1+1=2 #### 2",
        "level": 3,
    },
}


@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
def test_extra_info_is_the_rows_whole_column(module, tmp_path, suffix):
    import json

    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / f"rows.{suffix}"
    if suffix == "parquet":
        pq.write_table(pa.Table.from_pylist([RECORD]), path)
    else:
        path.write_text(json.dumps(RECORD))
    given = []

    def compute_score(data_source, solution_str, ground_truth, extra_info, scale):
        given.append(dict(extra_info))
        extra_info.clear()  # what a function does with its copy is its own affair
        return scale * (solution_str == given[-1]["answer"])

    module.compute_score = compute_score
    function = {"path": "pkg://users_rewards", "reward_kwargs": {"scale": np.float64(0.5).item()}}
    reward = reward_of(function)
    (row,) = read_rows(path)
    for _ in range(2):
        text = "1+1=2 #### 2"
        assert reward(row.data_source, text, row.ground_truth, row.extra_info).score == 0.5
    assert given == [RECORD["extra_info"]] * 2
    write_rows(tmp_path / "again.parquet", [row])
    assert read_rows(tmp_path / "again.parquet") == [row]


def test_a_file_is_loaded_once_and_gives_its_function(tmp_path):
    file = tmp_path / "my rewards.py"
    file.write_text(
        "calls = []\n"
        "def compute_score(data_source, solution_str, ground_truth, extra_info, bonus=0):\n"
        "    calls.append(solution_str)\n"
        "    return len(calls) + bonus\n"
    )
    function = {"path": str(file), "reward_kwargs": {"bonus": 10}}
    assert reward_of(function)("s", "t", "g").score == 11.0
    assert reward_of({"path": str(file)})("s", "t", "g").score == 2.0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("x = 1\nimport no_such_package\n", "ModuleNotFoundError: .*no_such_package.*line 2"),
        ("def f(:\n", "SyntaxError: .*line 1"),
        ("x = 1\n\nraise RuntimeError('not today')\n", r"RuntimeError: not today \(.*line 3\)"),
    ],
)
def test_a_module_that_cannot_be_imported_is_named(tmp_path, monkeypatch, text, reason):
    file = tmp_path / "users_broken_rewards.py"
    file.write_text(text)
    where = re.escape(str(file))
    pattern = f"custom_reward_function.path={where}: {where} cannot be imported: {reason}"
    for _ in range(2):  # nothing of the first attempt is left
        with pytest.raises(ConfigError, match=pattern):
            reward_of({"path": str(file)})
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=r"users_broken_rewards|no_such_package"):
        reward_of("users_broken_rewards:f")


MODEL = {"path": "m"}
TREE = {"data": {"train_files": ["a"], "val_files": ["b"]}, "actor_rollout_ref": {"model": MODEL}}


def test_verls_spelling_at_the_top_level():
    function = {"path": "my.py", "name": "f", "reward_kwargs": {"a": 1}}
    config = RefblendConfig.model_validate(TREE | {"custom_reward_function": function})
    assert config.reward.custom_reward_function.model_dump() == function
    assert config == RefblendConfig.model_validate(
        TREE | {"reward": {"custom_reward_function": function}}
    )
    assert config == RefblendConfig.model_validate(config.resolved())
    short = RefblendConfig.model_validate(TREE | {"reward": {"custom_reward_function": "a.b:f"}})
    assert short.reward.custom_reward_function.path == "pkg://a.b"
    with pytest.raises(ValidationError, match="both set"):
        RefblendConfig.model_validate(
            TREE | {"custom_reward_function": function, "reward": {"custom_reward_function": "a:b"}}
        )
