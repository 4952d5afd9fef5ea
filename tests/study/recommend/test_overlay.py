import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
import yaml
from made_runs import collected, equal_seeds, flat
from typer.testing import CliRunner

from refblend.cli.study import app
from refblend.config.loading import load_config
from refblend.errors import StudyError
from refblend.study.design.grid import config_files
from refblend.study.recommend.choose import recommend
from refblend.study.recommend.overlay import write_recommendation
from refblend.study.runs.collect import Collected, write_collected

PARAMS = equal_seeds()


@pytest.mark.parametrize("better", ["off", "linear", "schedule_terminal"])
def test_the_file_is_a_complete_overlay(tmp_path: Path, better: str) -> None:
    levels = {arm: flat(0.4, 0.42, 0.41) for arm in ("off", "linear", "schedule_terminal")}
    runs = collected(levels | {better: flat(0.7, 0.71, 0.72)})
    table = pd.DataFrame(
        {"attack": ["flood"], "lift": 0.4, "low": 0.3, "valid_rate": 0.0, "neutral_mean": 0.1}
    )
    chosen = recommend(runs, "cpu", PARAMS, table)
    path = tmp_path / "recommended.yaml"
    write_recommendation(chosen, path)

    loaded = load_config([*config_files("cpu", PARAMS), path])
    assert loaded == chosen.config
    blend = loaded.algorithm.ref_quality_score
    assert blend.enable == (better != "off")
    assert blend.scoring.on_failure == ("invalid_score" if better == "off" else "rule_reward")
    written = yaml.safe_load(path.read_text())["algorithm"]["ref_quality_score"]
    assert set(written) == set(type(blend).model_fields)
    head = [line for line in path.read_text().splitlines() if line.startswith("#")]
    text = " ".join(line.removeprefix("# ") for line in head)
    for part in (f"arm {better}", "seeds 1 to 3", "standard error", "on_failure."):
        assert part in text
    assert all(len(line) <= 100 for line in head)
    stored = json.loads(path.with_suffix(".json").read_text())
    assert stored["arm"] == better
    assert len(stored["candidates"]) == 3  # no blend is one of them
    again = tmp_path / "again" / "recommended.yaml"
    write_recommendation(recommend(runs, "cpu", PARAMS, table), again)
    for suffix in (".yaml", ".json", ".challenger.yaml"):
        assert again.with_suffix(suffix).read_bytes() == path.with_suffix(suffix).read_bytes()


def test_command_line(tmp_path: Path, make_run: Callable[..., Path]) -> None:
    runs = collected({"off": flat(0.4, 0.4, 0.41), "linear": flat(0.5, 0.5, 0.52)})
    frames = (runs.runs, runs.metrics, runs.responses)
    planned = Collected(*(frame.assign(seed=frame.seed + 10) for frame in frames))
    write_collected(planned, tmp_path / "m2")
    out = tmp_path / "m3" / "recommended.yaml"
    arguments = ["recommend", "--collected", tmp_path / "m2", "--scale", "cpu", "--out", out]
    result = CliRunner().invoke(app, [*map(str, arguments), "--params", str(PARAMS)])
    assert result.exit_code == 0, result.output or result.exception
    assert "linear − off: +0.1033" in result.output
    first = out.read_bytes()
    CliRunner().invoke(app, [*map(str, arguments), "--params", str(PARAMS)])
    assert out.read_bytes() == first
    write_collected(runs, tmp_path / "m2")
    result = CliRunner().invoke(app, [*map(str, arguments), "--params", str(PARAMS)])
    assert isinstance(result.exception, StudyError)
    assert "(seeds 1 to 3) is one that M2 plans at scale cpu" in str(result.exception)
    assert out.read_bytes() == first
