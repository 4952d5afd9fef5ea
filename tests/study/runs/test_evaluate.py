import shutil
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
import torch
from transformers import AutoModelForCausalLM

from refblend.data.schema import read_rows
from refblend.data.tokenizer import encode_chat, load_tokenizer
from refblend.errors import StudyError
from refblend.files import read_object, write_json
from refblend.study.runs.evaluate import evaluate_runs
from refblend.trainer.checkpoint import CheckpointManager, write_state


def test_a_failed_run_has_no_numbers(tmp_path) -> None:
    write_json(tmp_path / "summary.json", {"status": "failed"})
    assert list(evaluate_runs([tmp_path], "absent")) == [(tmp_path, {"status": "failed"})]
    for unfinished in ({"status": "stopped"}, {"steps": 20}):
        write_json(tmp_path / "summary.json", unfinished)
        with pytest.raises(StudyError, match="has not finished"):
            list(evaluate_runs([tmp_path], "absent"))


@pytest.fixture
def make_run(tmp_path, tiny_config) -> Callable[..., Path]:
    """``make_run(name, model, *overrides)`` → the directory of a finished run of that model."""

    def make(name: str, model: Path, *overrides: str) -> Path:
        run = tmp_path / name
        config = tiny_config("actor_rollout_ref.rollout.name=hf", *overrides)
        write_json(run / "config.json", config.resolved())
        write_json(run / "summary.json", {"status": "finished"})
        with CheckpointManager(run / "checkpoints").staging(4) as staged:
            shutil.copytree(model, staged / "actor")
            write_state(staged, {})
        return run

    return make


def test_every_seed_is_tested_with_its_own_weights(make_run, make_tiny_model, tiny_data_dir):
    runs = [make_run(f"seed_{seed}", make_tiny_model(seed)) for seed in (1, 2)]
    data = tiny_data_dir / "test.parquet"
    together = dict(evaluate_runs(runs, data))
    for run in runs:
        (alone,) = evaluate_runs([run], data)
        assert together[run] == alone[1]
        assert {"status", "of", "problems", "greedy", "sampled"} <= set(alone[1])
        assert (alone[1]["problems"], alone[1]["of"]["step"]) == (16, 4)
    numbers = [{**report, "of": None} for report in together.values()]
    assert numbers[0] != numbers[1]


def test_a_tested_run_is_only_read(make_run, make_tiny_model, tiny_data_dir, tmp_path) -> None:
    """By run, data and numerics; its checkpoint may be gone, as on another machine."""
    run, data = make_run("seed_1", make_tiny_model(1)), tiny_data_dir / "test.parquet"
    ((_, report),) = evaluate_runs([run], data)
    marked = report | {"greedy": 0.123}
    write_json(run / "test.json", marked)
    assert list(evaluate_runs([run], data)) == [(run, marked)]

    write_json(run / "test.json", marked | {"of": marked["of"] | {"numerics": {"test": 0}}})
    assert list(evaluate_runs([run], data)) == [(run, report)]

    other = tmp_path / "other.parquet"
    pd.read_parquet(data).iloc[1:].to_parquet(other)
    write_json(run / "test.json", marked)
    assert dict(evaluate_runs([run], other))[run]["problems"] == 15

    (run / "metrics.jsonl").write_text('{"step": 4}\n')
    shutil.rmtree(run / "checkpoints")
    assert list(evaluate_runs([run], data)) == [(run, marked)]
    (run / "metrics.jsonl").write_text('{"step": 5}\n')
    with pytest.raises(StudyError, match="no checkpoint"):
        list(evaluate_runs([run], data))


def test_accuracy_is_that_of_the_runs_reward(tmp_path, make_run, tiny_model_dir, tiny_data_dir):
    """A reward that depends on every letter, against greedy answers of transformers."""
    reward = tmp_path / "parity.py"
    reward.write_text(
        "def compute_score(data_source, solution_str, ground_truth, extra_info):\n"
        "    return float(sum(map(ord, solution_str + ground_truth)) % 2)\n"
    )
    run = make_run(
        "seed_1",
        tiny_model_dir,
        f"reward.custom_reward_function.path={reward}",
        "actor_rollout_ref.rollout.val_kwargs.do_sample=false",
    )
    model = AutoModelForCausalLM.from_pretrained(tiny_model_dir).eval()
    tokenizer = load_tokenizer(tiny_model_dir)
    expected = []
    for row in read_rows(tiny_data_dir / "test.parquet"):
        ids = torch.tensor([encode_chat(tokenizer, row.messages)])
        with torch.no_grad():
            answer = model.generate(ids, do_sample=False, max_new_tokens=12)[0, ids.shape[1] :]
        text = tokenizer.decode(answer, skip_special_tokens=True)
        expected.append(sum(map(ord, text + row.ground_truth)) % 2)
    report = dict(evaluate_runs([run], tiny_data_dir / "test.parquet"))[run]
    assert 0 < sum(expected) < 16
    assert report["greedy"] == sum(expected) / 16
    assert report["samples"] == 1, "do_sample is about validation"
    right: dict[int, list[int]] = {}
    for row, hit in zip(read_rows(tiny_data_dir / "test.parquet"), expected, strict=True):
        right.setdefault(row.extra.get("n_steps", 0), []).append(hit)
    for steps, hits in right.items():
        if steps:
            assert report[f"greedy_steps_{steps}"] == sum(hits) / len(hits)
    assert sum(name.startswith("greedy_steps_") for name in report) == len(right.keys() - {0})
    assert 0 <= report["truncated"] <= 1
    reward.write_text(f"{reward.read_text()}# edited\n")
    write_json(run / "test.json", report | {"greedy": 0.123})
    again = dict(evaluate_runs([run], tiny_data_dir / "test.parquet"))[run]
    assert again["greedy"] == report["greedy"], "it is tested again"
    write_json(run / "test.json", report)
    reward.unlink()
    assert dict(evaluate_runs([run], tiny_data_dir / "test.parquet"))[run] == report, (
        "it may have been moved"
    )


def test_runs_of_different_models_are_refused(make_run, tiny_model_dir, tiny_data_dir) -> None:
    first = make_run("seed_1", tiny_model_dir)
    other = make_run("seed_2", tiny_model_dir, "actor_rollout_ref.rollout.max_model_len=200")
    with pytest.raises(StudyError, match="seed_2 has another model or engine"):
        list(evaluate_runs([first, other], tiny_data_dir / "test.parquet"))


def test_prompts_longer_than_those_of_training_count(make_run, tiny_model_dir, tiny_data_dir):
    data, run = tiny_data_dir / "test.parquet", make_run("seed_1", tiny_model_dir)
    ((_, expected),) = evaluate_runs([run], data)
    config = read_object(run / "config.json")
    config["actor_rollout_ref"]["rollout"]["max_model_len"] = 20
    config["data"]["max_prompt_length"] = 8
    write_json(run / "config.json", config)
    ((_, report),) = evaluate_runs([run], data)
    assert {**report, "of": None} == {**expected, "of": None}
    assert report["problems"] == 16
