"""The offline modes of wandb and mlflow for real, read back from what they write.

Runs in ``.tools/trackers`` (``make .tools/trackers``), or in the environment that
REFBLEND_TRACKERS_ENV names.
"""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from environments import run_in

pytestmark = pytest.mark.slow

STEPS = 4
ROW = {
    "question": "3+4?",
    "response": "3+4=7. #### 7",
    "ground_truth": "7",
    "reward": 1.0,
    "judge_score": 0.9,
    "judge_raw": "\\box{0.9}",
    "weight": 0.25,
    "blended": 0.975,
}


ODD = [f"val-core/{source}/acc/mean@1" for source in ("a(b", "a,b", "5%", "a//b", "x" * 250, "..")]
"""Names that a service may refuse, with data sources that somebody has."""


@pytest.fixture
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "a" / "b"
    (folder / "rollouts").mkdir(parents=True)
    lines = [
        {"step": n, "critic/score/mean": n / 8, "val-core/x/acc/mean@1": 0.5, "timing_s/step": 1.0}
        | dict.fromkeys(ODD, 0.9)
        for n in range(1, STEPS + 1)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "rollouts" / "4.jsonl").write_text(json.dumps(ROW | {"uid": 0}) + "\n")
    return folder


def show(name: str, run_dir: Path) -> dict[str, Any]:
    run_in("trackers", "trackers_probe.py", name, str(run_dir))
    known: dict[str, Any] = json.loads((run_dir / "trackers.json").read_text())
    assert list(known) == [name], "one identity, for the resumed run too"
    return known


def test_wandb_offline(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    known = show("wandb", run_dir)
    folders = sorted((run_dir / "wandb").glob("offline-run-*"))
    assert len(folders) == 2
    assert {folder.name.split("-")[-1] for folder in folders} == {known["wandb"]}
    written = b"".join(file.read_bytes() for f in folders for file in f.glob("*.wandb"))
    for expected in (b"blends", b"critic/score/mean", b"strategy"):
        assert expected in written
    assert b"broken" not in written, "what is not finite is left out"
    media = [path for folder in folders for path in (folder / "files" / "media").rglob("*.*")]
    (table,) = [path for path in media if path.name.endswith(".table.json")]
    content = json.loads(table.read_text())
    assert dict(zip(content["columns"], content["data"][0], strict=True)) == ROW


def test_mlflow_in_a_local_database(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = run_dir / "mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{database}")
    known = show("mlflow", run_dir)
    with sqlite3.connect(database) as store:

        def rows(query: str) -> list[tuple[Any, ...]]:
            return store.execute(query).fetchall()

        (run,) = rows("select run_uuid, name, status, artifact_uri from runs")
        assert run[:3] == (known["mlflow"], f"{run_dir.parent.name}/{run_dir.name}", "FINISHED")
        assert ("blends",) in rows("select name from experiments")
        curve = "select step, value from metrics where key = 'critic/score/mean' order by step"
        assert rows(curve) == [(n, n / 8) for n in range(1, STEPS + 1)]
        assert len(rows("select 1 from metrics where key = 'val-core/x/acc/mean_at_1'")) == STEPS
        assert not rows("select 1 from metrics where key = 'broken'")
        odd = rows("select count(*) from metrics where value = 0.9 group by key")
        assert odd == [(STEPS,)] * len(ODD)
        params = dict(rows("select key, value from params"))
        assert params["algorithm.ref_quality_score.strategy"] == "linear"
        assert params["trainer.seed"] == "7"
    artifacts = Path(run[3].removeprefix("file://"))
    table = json.loads((artifacts / "rollouts" / "4.json").read_text())
    assert dict(zip(table["columns"], table["data"][0], strict=True)) == ROW
