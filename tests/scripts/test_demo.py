"""What `make demo` calls: its configuration, its reward, and its page from a recorded run."""

import re
import shutil
import sys
from pathlib import Path

import demo_page
import pytest
from viewed_run import write_run

from refblend.config import load_config
from refblend.data.schema import PromptRow, write_rows

ROOT = Path(__file__).resolve().parents[2]
ROW = r"<tr><td>(.*?) \((\d+)\)<td>([✓✗]) (.*?)<td>([✓✗]) (.*?)(?=<tr>|</table>)"
"""Problem, answer, then mark and text before and after."""
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def test_its_configuration_is_valid_and_fits_what_make_writes() -> None:
    config = load_config([ROOT / "params" / "ppo.yaml", ROOT / "params" / "demo.yaml"], [])
    recipe = MAKEFILE.split("\ndemo: ")[1].split("\n\n")[0]
    assert "--config params/ppo.yaml --config params/demo.yaml" in recipe
    (folder,) = re.findall(r"--out (data/\S+)", recipe)
    assert config.data.train_files == [f"{folder}/train.parquet"]
    assert config.data.val_files == [f"{folder}/validation.parquet"]
    assert f"scripts/demo_page.py {config.trainer.default_local_dir} " in recipe
    scoring = config.algorithm.ref_quality_score.scoring
    assert (scoring.decoding, scoring.model_path) == ("guided", config.actor_rollout_ref.model.path)
    assert f"{scoring.model_path}/model.safetensors" in MAKEFILE, "`make pretrained` makes it"
    (path,) = [config.reward.custom_reward_function.path]
    assert path is not None
    assert (ROOT / path).is_file()


@pytest.fixture
def demo_run(tmp_path: Path, tiny_model_dir: Path) -> Path:
    """A recorded run of ten problems that starts and ends with the tiny model."""
    rows = [
        PromptRow(k, "sums", [{"role": "user", "content": q}], q, str(k + 2), "")
        for k, q in ((k, f"{k} + 2 < 1{k}?") for k in range(10))
    ]
    for split in ("train", "validation"):
        write_rows(tmp_path / f"{split}.parquet", rows)
    config = {
        "data": {
            "train_files": [str(tmp_path / "train.parquet")],
            "val_files": [str(tmp_path / "validation.parquet")],
            "max_response_length": 6,
            "train_batch_size": 4,
        },
        "actor_rollout_ref": {"model": {"path": str(tiny_model_dir)}, "rollout": {"n": 3}},
    }
    run = write_run(tmp_path / "run", config)
    shutil.copytree(tiny_model_dir, run / "checkpoints" / "global_step_2" / "actor")
    return run


def test_its_page_shows_curves_and_eight_answers(demo_run, tmp_path, monkeypatch) -> None:
    from refblend.trainer.checkpoint import CheckpointRef

    end = CheckpointRef(2, demo_run / "checkpoints" / "global_step_2")
    monkeypatch.setattr(demo_page, "final_checkpoint", lambda run: end)
    page = tmp_path / "demo.html"
    monkeypatch.setattr(sys, "argv", ["demo_page.py", str(demo_run), "--out", str(page)])
    demo_page.main()
    text = page.read_text(encoding="utf-8")
    assert "after 2 PPO steps" in text
    assert "10 training problems, 12 responses a\nstep" in text
    rows = re.findall(ROW, text, re.S)
    assert [row[1] for row in rows] == [str(k + 2) for k in range(8)]
    assert rows[0][0] == "0 + 2 &lt; 10?"
    assert all(row[2:4] == row[4:6] for row in rows), "both are the same model"
    right = sum(row[2] == "✓" for row in rows)
    assert f"right before: {right}, after: {right}." in text
    assert text.count("<svg") == 1
    assert "training reward" in text
    assert "weight w" in text
