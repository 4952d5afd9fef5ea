"""A run's directory, written by hand: ``run`` beside this file."""

import json
import shutil
from pathlib import Path

RUN = Path(__file__).with_name("run")
CONFIG = json.loads((RUN / "config.json").read_text(encoding="utf-8"))
RESPONSES = [
    json.loads(line)
    for line in (RUN / "rollouts" / "2.jsonl").read_text(encoding="utf-8").rstrip("\n").split("\n")
]


def response(sample: int, **changes) -> dict:
    """By default right, and scored 0.5 with w = 0.2 on the last token: R' = 0.8 + 0.1."""
    return RESPONSES[0] | {"sample": sample, "response": f"answer {sample}"} | changes


def write_run(path: Path, config: dict = CONFIG, responses: dict | None = None) -> Path:
    """A copy of the run with another configuration, or with other responses by step."""
    shutil.copytree(RUN, path)
    (path / "config.json").write_text(json.dumps(config))
    for step, lines in (responses or {}).items():
        texts = [json.dumps(line, ensure_ascii=False) + "\n" for line in lines]
        (path / "rollouts" / f"{step}.jsonl").write_text("".join(texts))
    return path
