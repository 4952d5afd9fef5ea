"""The scoring path on real vLLM: a tiny random judge, long and hostile samples, no error."""

import json
from dataclasses import replace

import pandas as pd
import pytest

from refblend.config.algorithm import RefQualityScoreConfig
from refblend.data.schema import PromptRow, write_rows
from refblend.scoring.generative import GenerativeJudge
from refblend.scoring.judge import judge_config
from refblend.scoring.measure.attacks import ATTACKS
from refblend.scoring.result import score_metrics

pytestmark = pytest.mark.engine

QUESTION = "Eva finds 12 pens. Then 5 get lost. How many are left?"
WRONG = "12-5=8.\n#### 8"
CAP = 384


@pytest.fixture(scope="module")
def judge_dir(tmp_path_factory, chat_tokenizer, make_tiny_model):
    path = tmp_path_factory.mktemp("tokenizer")
    chat_tokenizer.save_pretrained(path)
    return make_tiny_model(0, path, max_position_embeddings=CAP)


@pytest.fixture(scope="module")
def engine(judge_dir):
    from refblend.rollout.base import EngineOptions
    from refblend.rollout.factory import start_engine

    engine = start_engine("vllm", EngineOptions(str(judge_dir), kv_cache_memory_mb=64))
    yield engine
    engine.shutdown()


def settings(**scoring) -> RefQualityScoreConfig:
    return judge_config("m", "vllm", "embedded", {"score_mode": "text"} | scoring)


def test_every_attack_and_length_goes_through(engine, chat_tokenizer) -> None:
    pairs = [a.apply(QUESTION, WRONG) for a in ATTACKS]
    judge = GenerativeJudge(engine, chat_tokenizer, settings(score_mode="expected"))
    assert engine.max_model_len == CAP
    results = judge.score([q for q, _ in pairs], [r for _, r in pairs])
    metrics = score_metrics(results)
    assert metrics["incidents/judge_error"] == metrics["incidents/overlength"] == 0
    assert metrics["actor/ref_quality/clipped_rate"] > 0
    assert all(r.new_tokens <= 64 and r.prompt_tokens + 64 <= CAP for r in results)


def test_a_request_that_vllm_rejects_does_not_stop_the_run(engine, chat_tokenizer):
    """vLLM's own errors are no RuntimeErrors; they too become results, and the engine lives."""

    class Spoiled:
        max_model_len = CAP

        def generate(self, requests):
            return engine.generate([replace(r, prompt_ids=[10**7]) for r in requests])

    results = GenerativeJudge(Spoiled(), chat_tokenizer, settings()).score([QUESTION], [WRONG])
    assert (results[0].score, results[0].path) == (0.5, "error")
    assert "VLLM" in results[0].raw
    judge = GenerativeJudge(engine, chat_tokenizer, settings())
    assert judge.score([QUESTION], [WRONG])[0].path != "error"


def test_shared_prefix_is_served_by_the_cache(engine, chat_tokenizer, monkeypatch) -> None:
    judge = GenerativeJudge(engine, chat_tokenizer, settings())
    generate, seen = engine._llm.generate, []

    def watched(*arguments, **options):
        seen.extend(outputs := generate(*arguments, **options))
        return outputs

    monkeypatch.setattr(engine._llm, "generate", watched)
    judge.score([QUESTION] * 32, [f"12-5={i}.\n#### {i}" for i in range(32)])
    cached = sum(output.num_cached_tokens for output in seen)
    assert cached > 0.3 * sum(len(output.prompt_token_ids) for output in seen)


@pytest.fixture
def run_command(engine, monkeypatch):
    """Runs a command of ours on the engine that is up already."""
    from typer.testing import CliRunner

    from refblend.cli.main import app

    monkeypatch.setattr("refblend.scoring.generative.start_engine", lambda name, options: engine)
    monkeypatch.setattr(engine, "shutdown", lambda: None)

    def run(*arguments: str, status: int = 0):
        result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
        assert result.exit_code == status, result.output
        return result.output

    return run


TEMPLATES = ("--templates", "embedded")


def test_measuring_commands(run_command, judge_dir, tmp_path) -> None:
    rows = [
        PromptRow(i, "s", [{"role": "user", "content": QUESTION}], QUESTION, "7", "12-5=7.\n#### 7")
        for i in range(4)
    ]
    data, labelled = tmp_path / "test.parquet", tmp_path / "mine.jsonl"
    write_rows(data, rows)
    mine = [{"question": QUESTION, "response": WRONG, "label": i % 2} for i in range(6)]
    labelled.write_text("\n".join(map(json.dumps, mine)))
    reports = {}
    for name, command, source in (
        ("robustness", "robustness", ("--data", data)),
        ("quality", "quality", ("--corpus", labelled)),
        ("attacks", "attacks", ("--data", data)),
        ("own_attacks", "attacks", ("--corpus", labelled)),
    ):
        report, samples = tmp_path / f"{name}.json", tmp_path / f"{name}.parquet"
        files = ("--judge", judge_dir, *source, "--report", report, "--samples", samples)
        run_command("judge", command, *map(str, files), "--rows", "2", *TEMPLATES)
        reports[name] = json.loads(report.read_text())
        assert samples.is_file()
        assert reports[name]["judge"] == judge_dir.name
        beside = json.loads((tmp_path / f"{name}.provenance.json").read_text())
        assert beside["git"]
        assert not {"git", "hardware", "provenance"} & set(reports[name])
    arms = pd.DataFrame(reports["robustness"]["arms"]).set_index("arm")
    assert "seconds_per_response" not in arms
    assert json.loads((tmp_path / "robustness.provenance.json").read_text())["seconds_per_response"]
    assert arms.loc["clip_on", "overlength"] == 0
    assert arms.loc["clip_off", "overlength"] > 0
    assert arms["judge_error"].eq(0).all()
    assert reports["robustness"]["corpus"]["length"] == {"plain": 4, "long": 4, "very_long": 4}
    assert set(reports["quality"]["forms"]) == {"few_shot", "compact"}
    assert reports["quality"]["forms"]["compact"]["count"] == 2
    table = pd.DataFrame(reports["attacks"]["attacks"])
    assert sorted(table["attack"]) == sorted(attack.name for attack in ATTACKS)
    assert table["lift"].is_monotonic_decreasing
    assert reports["own_attacks"]["attacks"][0]["n"] == 1, "wrong answers only"
