"""Commands with something wrong in them end with status 2 and one line that names it."""

import shlex
import sys
from pathlib import Path

import pytest

from refblend.cli.main import run

ROOT = Path(__file__).resolve().parents[2]
SMOKE = "--config params/ppo.yaml --config params/scale/smoke.yaml"
CASES = [
    (f"check {SMOKE} trainer.total_training_steps=many", "trainer.total_training_steps='many'"),
    (f"check {SMOKE} algorithm.gamma=.nan", "algorithm.gamma"),
    (f"check {SMOKE} algorithm.ref_quality_score.strategy=quadratic", "'linear'"),
    (f"check {SMOKE} trainer.seed", "trainer.seed"),
    (f"check {SMOKE} trainer.seed=[1", "trainer.seed"),
    ("check --config params/ppo.yaml params/scale/smoke.yaml", "--config params/scale/smoke.yaml"),
    (f"check {SMOKE} +trainer.seed=2", "Write trainer.seed=2."),
    (f"check {SMOKE} ~trainer.seed", "Write trainer.seed=VALUE."),
    (f"check {SMOKE} --trainer.seed=2", "Write trainer.seed=VALUE without dashes."),
    ("check --config nowhere.yaml", "nowhere.yaml"),
    ("check --config made/broken.yaml", "broken.yaml"),
    ("check --config made/list.yaml", "list.yaml"),
    ("check", "Missing option '--config'. See `refblend check --help`"),
    ("chek", "Did you mean 'check'? See `refblend --help`"),
    (f"train {SMOKE} --sede 1", "No such option: --sede"),
    ("runs list runs elsewhere", "unexpected extra argument"),
    (f"train {SMOKE} --seeds 1,1", "list of distinct seeds"),
    (f"train {SMOKE} --seeds 1,2", "Put {seed} where the seed belongs"),
    ("score --input made/answers.jsonl --output o.csv", "--judge is missing"),
    ("score --kind http --input made/answers.jsonl --output o.csv", "http.base_url"),
    ("show runs/none", "runs/none"),
    ("data prepare --recipe nowhere.yaml --out out", "nowhere.yaml"),
    ("data gsm8k --source made --out out", "made"),
    ("data gsm8k --source made/answers.jsonl --out out", "`refblend data convert`"),
    ("data math --source nowhere --out out", "nowhere"),
    ("models tokenizer --recipe made/list.yaml --out out", "list.yaml"),
    ("models tokenizer --recipe params/embedded/smoke.yaml --out made/list.yaml", "made/list.yaml"),
    ("models evaluate-actor --model no --data x --report r --recipe made/list.yaml", "--model: no"),
    ("evaluate off/seed_1 linear/seed_1 --data x --out o", "several runs are called 1"),
    ("models pretrained --gguf nowhere.gguf --out out", "nowhere.gguf"),
    ("plan M9 --scale cpu --slots 2", "M9"),
    ("plan M1 --scale huge --slots 2", "huge"),
    ("study grid M9 --scale cpu --out g.tsv", "M9"),
    ("study collect --grid made/broken.tsv --scale cpu --out out", "broken.tsv"),
    ("study check --collected nowhere --out c.json", "nowhere"),
    ("runs list nowhere", "nowhere"),
    ("runs prune nowhere", "nowhere"),
]
"""What is called after ``refblend``, and what the message must say."""
FILES = {
    "broken.yaml": "trainer: {seed: 1\n",
    "list.yaml": "- 1\n- 2\n",
    "answers.jsonl": '{"question": "2+3?", "response": "5"}\n',
    "broken.tsv": "arm\tsead\noff\t1\n",
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the parameters and the damaged files."""
    folder = tmp_path_factory.mktemp("wrong")
    for name in ("params", "results"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "made").mkdir()
    for name, text in FILES.items():
        (folder / "made" / name).write_text(text)
    return folder


@pytest.mark.parametrize(("command", "says"), CASES)
def test_it_is_refused_in_one_line(command, says, project, monkeypatch, capsys) -> None:
    monkeypatch.chdir(project)
    monkeypatch.setattr(sys, "argv", ["refblend", *shlex.split(command)])
    before = sorted(project.rglob("*"))
    with pytest.raises(SystemExit) as stop:
        run()
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert stop.value.code == 2
    assert line.startswith("error: ")
    assert says in line
    assert sorted(project.rglob("*")) == before, "nothing is written"
