"""``refblend show`` on the console."""

import copy
import json
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner
from viewed_run import CONFIG, RESPONSES, response, write_run

from refblend.cli.main import app
from refblend.errors import DataError
from refblend.viewer.console import show_end
from refblend.viewer.run import Run, best_and_worst, outcome


def show(*arguments: object, width: int = 100) -> str:
    """What the command prints on a console of this width."""
    environment = {"COLUMNS": str(width), "TERM": "dumb"}
    result = CliRunner().invoke(app, ["show", *map(str, arguments)], env=environment)
    if result.exception is not None:
        raise result.exception
    return result.output


def test_header_metrics_and_responses(run_dir: Path) -> None:
    lines = show(run_dir, "--best", 1).splitlines()
    assert lines[0] == f"{run_dir}: finished, step 2, 1.5 min, commit 01234567 with changes"
    assert "actor      models/actor, grpo, seed 7" in lines
    told = "strategy linear, max_weight 0.3, entropy_high_threshold 1.0, placement terminal"
    assert f"blend      {told}" in lines
    assert "incidents  judge_invalid 3" in lines
    rows = {line.split("  ")[1].strip(): line.split()[-4:] for line in lines if line[:2] == "  "}
    assert rows["val refblend/arithmetic"] == ["0.25", "0.25", "0.5", "0.5"]
    assert rows["weight w"] == ["0.1", "0.1", "0.2", "0.2"]
    assert "gradient norm" not in rows, "a metric without any finite value is left out"
    text = "\n".join(lines)
    best, worst = text.split("lowest blended reward")
    assert "answer 2" in best
    assert "R 1   q 1 (as written)   w 0.2   ΣR′ 1   5 tokens" in best
    assert "answer 3" in worst
    assert "truth     7" in worst
    assert not any(f"answer {n}" in text for n in (0, 1))
    assert "\x1b[31m" not in text, "a model's text does not steer the terminal"


def test_a_run_that_has_just_ended_says_where_its_model_is(tmp_path: Path, capsys) -> None:
    path = write_run(tmp_path / "r")
    (path / "checkpoints" / "global_step_2").mkdir(parents=True)
    show_end(Run.open(path), Console())
    said = capsys.readouterr().out.splitlines()
    assert f"model      {path}/checkpoints/global_step_2/actor" in said
    assert said[0] == f"{path}: finished, step 2, 1.5 min, commit 01234567 with changes"


@pytest.mark.parametrize(
    ("scoring", "judge"),
    [({"kind": "http", "http": {"model": "theirs"}}, "theirs"), ({"kind": "mine:Own"}, "mine:Own")],
)
def test_the_judge_is_the_one_of_its_kind(tmp_path: Path, scoring: dict, judge: str) -> None:
    config = copy.deepcopy(CONFIG)
    config["algorithm"]["ref_quality_score"]["scoring"] |= scoring | {"score_mode": "expected"}
    text = show(write_run(tmp_path / "r", config))
    assert f"judge      {judge}\n" in text
    assert ("expected score" in text) == (scoring["kind"] == "http")


def test_a_run_that_never_trained_says_why(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text('{"status": "failed", "reason": "no GPU"}')
    with pytest.raises(DataError, match="no GPU"):
        show(tmp_path)


def test_a_step_is_chosen_or_refused(tmp_path: Path) -> None:
    first = [response(0, step=1, response="early")]
    path = write_run(tmp_path / "r", responses={1: first, 2: RESPONSES, 10: [response(9)]})
    assert "early" in show(path, "--step", 1)
    assert "answer 9" in show(path), "the last recorded step, by number"
    with pytest.raises(DataError, match="recorded steps: 1, 2, 10"):
        show(path, "--step", 3)


@pytest.mark.parametrize("line", ["[]", "{}", "{torn", '{"reward": "x"}'])
def test_a_damaged_record_names_its_line(run_dir: Path, line: str) -> None:
    path = run_dir / "rollouts" / "2.jsonl"
    path.write_text(json.dumps(RESPONSES[0]) + "\n" + line + "\n")
    with pytest.raises(DataError, match=r"2\.jsonl, line 2: "):
        show(run_dir)
    path.write_text(json.dumps(RESPONSES[0]) + "\n" + line)  # a run in progress writes its end
    assert "1 of 1 responses" in show(run_dir)


def test_comparison(run_dir: Path, tmp_path: Path) -> None:
    config = copy.deepcopy(CONFIG)
    config["algorithm"]["ref_quality_score"]["max_weight"] = 0.6
    config["trainer"]["default_local_dir"] = "runs/b"
    other = write_run(tmp_path / "b", config)
    lines = (other / "metrics.jsonl").read_text().replace("0.75", "0.5")
    (other / "metrics.jsonl").write_text(lines)
    text = show(run_dir, "--compare", other)
    assert "algorithm.ref_quality_score.max_weight   0.3   0.6" in text
    assert "default_local_dir" not in text
    row = next(line for line in text.splitlines() if "training reward" in line)
    assert row.split()[-1] == "-0.25"
    narrow = show(run_dir, "--compare", other, width=30)
    assert "".join(line[:25].strip() for line in narrow.splitlines()).count("max_weight") == 1
    assert "are the same" in show(run_dir, "--compare", run_dir)


def test_best_and_worst_share_no_response() -> None:
    found = best_and_worst(RESPONSES, 3)
    assert [[r["sample"] for r in part] for part in found] == [[2, 0, 1], [3]]
    assert best_and_worst(RESPONSES, 0) == ([], [])
    equal = [response(n, blended=0.5) for n in range(4)]
    best, worst = best_and_worst(equal, 1)
    assert (best[0]["sample"], worst[0]["sample"]) == (0, 3)
    assert outcome({"reward": 1, "blended": None}) == 1.0
