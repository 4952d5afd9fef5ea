"""``refblend score`` as a user calls it, on a tiny random model."""

import itertools
import json
import math
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

from refblend.cli.main import app
from refblend.cli.scoring import JudgeSetup
from refblend.config.algorithm import RefQualityScoreConfig
from refblend.config.scoring import ScoringConfig
from refblend.data.tokenizer import load_tokenizer
from refblend.errors import ConfigError, DataError, DiskError, ModelError, ScoringError
from refblend.scoring.generative import GenerativeJudge
from refblend.scoring.judge import check_judge
from refblend.scoring.result import JudgeResult

ROWS = [{"question": "3+4?", "response": f"3+4={n}.\n#### {n}", "id": n} for n in range(5)]


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, ROWS)))
    return path


@pytest.fixture
def write(monkeypatch: pytest.MonkeyPatch, tiny_model_dir: Path, scripted):
    """``write("text", …)``: what the judge's engine answers, in turn; gives the engine."""

    def set_texts(*texts: str) -> Any:
        turn = itertools.cycle(texts)
        engine = scripted(load_tokenizer(tiny_model_dir), lambda _: next(turn), max_model_len=768)
        monkeypatch.setattr("refblend.scoring.generative.start_engine", lambda *_: engine)
        return engine

    return set_texts


@pytest.fixture
def run(rows: Path, tiny_model_dir: Path):
    def call(output: Path, *more: str) -> Any:
        judge = ("--judge", str(tiny_model_dir), "--kind", "hf", "--templates", "embedded")
        files = ("--input", str(rows), "--output", str(output))
        arguments = ["score", *files, *judge, *more]
        return CliRunner().invoke(app, arguments, catch_exceptions=False)

    return call


def read(path: Path) -> pd.DataFrame:
    if path.suffix == ".csv":
        return pd.read_csv(path)
    return pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_json(path, lines=True)


def test_no_valid_score_ends_with_status_3(run, write, tmp_path: Path) -> None:
    write("I cannot say.\n" * 3)
    result = run(tmp_path / "scores.parquet")
    assert result.exit_code == 3
    assert "valid 0.0% (default 5)" in result.stdout
    assert "warning: 5 of 5 responses have no valid score; row 0 (default)" in result.stderr
    assert "I cannot say." in result.stderr
    assert len(read(tmp_path / "scores.parquet")) == 5, "the file says what each judgement was"


def test_some_invalid_scores_are_told_with_an_example(run, write, tmp_path: Path) -> None:
    write("\\box{0.50}", "\\box{7}")
    result = run(tmp_path / "scores.parquet")
    assert result.exit_code == 0
    assert "valid 60.0% (text 3, default 2)" in result.stdout
    assert re.search(r"2 of 5 .* row 1 \(default\): the judge wrote .*box\{7\}", result.stderr)


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_the_ending_chooses_the_format(ending: str, run, write, tmp_path: Path) -> None:
    write("\\box{0.25}")
    path = tmp_path / "new" / f"scores.{ending}"
    assert run(path).exit_code == 0
    frame = read(path)
    assert frame["id"].tolist() == list(range(5))
    assert frame["score"].tolist() == [0.25] * 5
    assert frame["response"].tolist() == [row["response"] for row in ROWS]


def test_every_setting_that_is_not_given_is_the_configurations(tiny_model_dir: Path) -> None:
    """All but the model, its texts, and the GPU that a command has for itself."""
    setup = JudgeSetup(judge=tiny_model_dir, kind="hf", templates="embedded")
    spelled = setup.config().model_dump()
    default = RefQualityScoreConfig.model_validate(
        {
            "scoring": {
                "kind": "hf",
                "model_path": str(tiny_model_dir),
                "templates": "embedded",
                "gpu_memory_utilization": 0.65,
            }
        }
    )
    assert spelled == default.model_dump()


NO_FORMAT, OVERWRITTEN = (
    r"no format.*\.csv, \.jsonl, \.parquet",
    "is read, and would be overwritten",
)


@pytest.mark.parametrize(
    ("output", "told"),
    [
        *((name, NO_FORMAT) for name in ("a.txt", "a", "a.xlsx", "a.CSV.gz")),
        *((path, path) for path in ("file/a.csv", "folder.csv", "/proc/a.csv")),
        *((path, OVERWRITTEN) for path in ("rows.jsonl", "folder.csv/../rows.jsonl", "link.jsonl")),
    ],
)
def test_an_output_is_refused_before_scoring(output, told, run, write, rows, tmp_path) -> None:
    engine = write("\\box{0.25}")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "link.jsonl").symlink_to(rows)
    before = rows.read_bytes()
    with pytest.raises((DataError, DiskError), match=told):
        run(tmp_path / output)
    assert engine.calls == []
    assert (rows.read_bytes(), (tmp_path / "file").read_text()) == (before, "mine")


def test_the_judge_is_checked_before_an_engine_starts(run, tmp_path, monkeypatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("an engine was started")

    monkeypatch.setattr("refblend.scoring.generative.start_engine", refuse)
    output = tmp_path / "scores.csv"
    with pytest.raises(ModelError, match="max_model_len=99999 is beyond"):
        run(output, "--set", "max_model_len=99999")
    with pytest.raises(ConfigError, match=r"judge options: scoring\.safety_margin"):
        run(output, "--set", "safety_margin=-1")
    with pytest.raises(ConfigError, match=r"judge options: unknown key scoring\.no_such_key"):
        run(output, "--set", "no_such_key=1")
    with pytest.raises(ModelError, match=r"--judge: .* is not a directory"):
        run(output, "--judge", str(tmp_path / "none"))


def test_a_measuring_command_refuses_a_judge_without_tokens(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--kind reward_model: .*vllm or hf"):
        JudgeSetup(judge=tmp_path, kind="reward_model").open_generative()


TOY = """
from refblend.errors import ConfigError
from refblend.scoring.judge import Judge
from refblend.scoring.result import JudgeResult

class LengthJudge(Judge):
    @classmethod
    def check(cls, config):
        if config.invalid_score == 0:
            raise ConfigError("invalid_score is 0", "Raise it.")

    @classmethod
    def start(cls, config, seed):
        return cls()

    def score(self, questions, responses, seeds=None):
        return [JudgeResult(min(1.0, len(r) / 100), True, "text") for r in responses]
"""


def test_a_kind_of_judge_is_one_class_and_a_configuration_value(rows, tmp_path, monkeypatch):
    """Training's configuration, preflight, worker and identity, and ``refblend score``."""
    from refblend.config.root import RefblendConfig
    from refblend.trainer.preflight import inputs_of
    from refblend.workers.engine_workers import JudgeWorker

    (tmp_path / "my_judges.py").write_text(TOY)
    monkeypatch.syspath_prepend(tmp_path)
    output = tmp_path / "scores.csv"
    files = ["--input", str(rows), "--output", str(output)]
    arguments = ["score", *files, "--kind", "my_judges:LengthJudge"]
    assert CliRunner().invoke(app, arguments, catch_exceptions=False).exit_code == 0
    assert read(output)["score"].tolist() == [len(row["response"]) / 100 for row in ROWS]

    quality = {"enable": True, "scoring": {"kind": "my_judges:LengthJudge"}}
    config = RefblendConfig.model_validate(
        {
            "algorithm": {"ref_quality_score": quality},
            "actor_rollout_ref": {"model": {"path": "m"}},
            "data": {"train_files": ["a.parquet"], "val_files": ["b.parquet"]},
        }
    )
    results = JudgeWorker(config).generate_quality_score(["q"], ["a" * 50], [1])
    assert [r.score for r in results] == [0.5]
    assert tmp_path / "my_judges.py" in inputs_of(config)[0], "its code determines the run"


def test_a_judge_without_room_for_a_sample_gives_its_engine_back(
    write, tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a notebook the corrected second call would find no memory."""
    engine, ended = write("\\box{0.5}"), []
    monkeypatch.setattr(engine, "max_model_len", 20)
    monkeypatch.setattr(engine, "shutdown", lambda: ended.append("shutdown"))
    scoring = ScoringConfig(model_path=str(tiny_model_dir), max_model_len=20)
    with pytest.raises(ScoringError, match="max_model_len"):
        GenerativeJudge.start(RefQualityScoreConfig(enable=True, scoring=scoring), 0)
    assert ended == ["shutdown"]


@pytest.mark.parametrize(
    ("results", "words"),
    [
        ([7.0, 0.5], r"gave the score 7\.0"),
        ([0.5, -0.1], r"gave the score -0\.1"),
        ([0.5, math.nan], r"gave the score nan"),
        ([0.5], "gave 1 results for 2 responses"),
    ],
)
def test_results_that_no_judge_may_give_are_refused(results, words, tiny_config, monkeypatch):
    """A scale of 0 to 10 would be blended as it is."""
    from refblend.workers import engine_workers

    class Mine:
        def score(self, *_: object) -> list[JudgeResult]:
            return [JudgeResult(score, True, "text") for score in results]

    monkeypatch.setattr(engine_workers, "start_judge", lambda *_: Mine())
    kind = "algorithm.ref_quality_score.scoring.kind=mine:Judge"
    worker = engine_workers.JudgeWorker(tiny_config(kind))
    with pytest.raises(ScoringError, match=f"kind=mine:Judge {words}.*in \\[0, 1\\]"):
        worker.generate_quality_score(["q", "q"], ["a", "b"], [1, 2])


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("no_such_module:Judge", "no_such_module"),
        ("refblend.errors:NoJudge", "defines no NoJudge"),
        ("refblend.errors:ConfigError", "is not a kind of judge"),
    ],
)
def test_a_class_that_is_not_there_or_no_judge_is_refused(kind: str, words: str) -> None:
    config = RefQualityScoreConfig.model_validate({"scoring": {"kind": kind}})
    with pytest.raises(ConfigError, match=rf"scoring\.kind.*{words}"):
        check_judge(config)
