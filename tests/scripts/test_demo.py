"""What `make demo` calls."""

import re
from pathlib import Path

from refblend.config import load_config

ROOT = Path(__file__).resolve().parents[2]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def test_its_configuration_is_valid_and_fits_what_make_writes() -> None:
    config = load_config([ROOT / "params" / "ppo.yaml", ROOT / "params" / "demo.yaml"], [])
    recipe = MAKEFILE.split("\ndemo: ")[1].split("\n\n")[0]
    assert "--config params/ppo.yaml --config params/demo.yaml" in recipe
    (folder,) = re.findall(r"--out (data/\S+)", recipe)
    assert config.data.train_files == [f"{folder}/train.parquet"]
    assert config.data.val_files == [f"{folder}/validation.parquet"]
    assert f"refblend show {config.trainer.default_local_dir} --html " in recipe
    scoring = config.algorithm.ref_quality_score.scoring
    assert (scoring.decoding, scoring.model_path) == ("guided", config.actor_rollout_ref.model.path)
    assert f"{scoring.model_path}/model.safetensors" in MAKEFILE, "`make pretrained` makes it"
    (path,) = [config.reward.custom_reward_function.path]
    assert path is not None
    assert (ROOT / path).is_file()
