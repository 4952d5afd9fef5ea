"""Data and models that are not there yet: the message names the command that makes them."""

import subprocess
import sys
from pathlib import Path

import pytest

from refblend.cli.absent import told
from refblend.errors import DataError, ModelError

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("reason", "command"),
    [
        ("actor_rollout_ref.model.path: models/smoke/actor is not a directory", "make prepare"),
        ("--judge: models/cpu/judge_weak is not a directory", "make prepare SCALE=cpu"),
        ("data file data/smollm/test.parquet does not exist", "make prepare SCALE=smollm"),
        ("data file data/gpu/train.parquet does not exist", "make prepare SCALE=gpu"),
        ("--model: models/smollm/base is not a directory", "make pretrained"),
        ("models/gpu/judge_weak is not a directory", ""),  # the user's own
        ("models/mine/actor is not a directory", ""),
        ("data file data/smoke/mine.parquet does not exist", ""),
        ("data file elsewhere/data/smoke/train.parquet does not exist", ""),
        ("data file data/smoke/train.parquet is a directory", ""),
    ],
)
def test_the_command(monkeypatch: pytest.MonkeyPatch, reason: str, command: str) -> None:
    monkeypatch.chdir(ROOT)
    problem = ModelError(reason, "Give a local one.")
    wanted = f"{reason}. Make it with `{command}`, or give a local one." if command else problem
    assert told(problem) == str(wanted)


def test_outside_of_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    problem = DataError("data file data/smoke/train.parquet does not exist", "Check the path.")
    assert told(problem) == str(problem)


def test_check_names_it_and_finds_modules_in_the_current_directory(tmp_path: Path) -> None:
    (tmp_path / "params").symlink_to(ROOT / "params")
    (tmp_path / "my_rewards.py").write_text(
        "def right(data_source, solution_str, ground_truth, extra_info):\n    return 1.0\n"
    )
    files = [f"--config=params/{name}.yaml" for name in ("ppo", "scale/smoke")]
    reward = "reward.custom_reward_function=my_rewards:right"
    call = f"import sys; sys.path.remove(''); sys.argv = {['refblend', 'check', *files, reward]}"
    done = subprocess.run(
        [sys.executable, "-c", f"{call}; from refblend.cli import main; main()"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == 5, lines
    assert all(
        line.startswith("error: ") and "Make it with `make prepare`" in line for line in lines
    )
