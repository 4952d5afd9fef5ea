"""Whole runs in processes of their own, as a user starts them."""

import json
import os
import subprocess
import sys
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from chaos.runs import Ended, finish, recorded

from refblend.config.loading import merge

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TIMEOUT_S = 900


@dataclass
class Run:
    """A run directory and the calls that train in it."""

    directory: Path
    config_file: Path
    overrides: list[str] = field(default_factory=list)
    prefix: list[str] = field(default_factory=list)
    """What the command is called by, in the directory's parent and with a relative path."""

    def start(self, *overrides: str, **environment: str) -> "subprocess.Popen[str]":
        """Launch the command; ``environment`` reaches :mod:`saboteur`."""
        where = self.directory.name if self.prefix else self.directory
        paths = [str(HERE), os.environ.get("PYTHONPATH", "")]
        self.directory.parent.mkdir(parents=True, exist_ok=True)
        return subprocess.Popen(
            [
                *self.prefix,
                Path(sys.executable).with_name("refblend"),
                "train",
                "--config",
                self.config_file,
                f"trainer.default_local_dir={where}",
                *self.overrides,
                *overrides,
            ],
            cwd=self.directory.parent if self.prefix else None,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ
            | {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1"}
            | {"SABOTEUR_RUN": str(self.directory)}
            | environment,
        )

    def train(self, *overrides: str, **environment: str) -> Ended:
        """Call the command and wait for its end."""
        return self.finish(self.start(*overrides, **environment))

    def complete(self, *overrides: str, **environment: str) -> str:
        """The same for a call that must succeed; what it said."""
        ended = self.train(*overrides, **environment)
        assert ended.status == 0, ended.output
        return ended.output

    def finish(self, process: "subprocess.Popen[str]") -> Ended:
        """Wait for a call's end; nothing of its cluster may be left when it ends itself."""
        return finish(process, TIMEOUT_S, patience_s=30.0)

    def metrics(self) -> list[dict[str, Any]]:
        """The recorded steps without what depends on the clock."""
        return [json.loads(line) for line in self.canonical_lines()]

    def canonical_lines(self) -> list[str]:
        """The same as text, so that equality means equal digits and equal order."""
        return recorded(self.directory)

    def assert_same(self, other: "Run", ignore: Collection[str] = ()) -> None:
        """Metrics (timings and ``ignore`` aside), responses and weights are another run's."""
        ours, theirs = (
            [json.dumps({k: v for k, v in m.items() if k not in ignore}) for m in run.metrics()]
            for run in (self, other)
        )
        assert ours == theirs
        last = len(ours) - 1
        for step in range(1, last + 1):
            assert self.rollouts(step) == other.rollouts(step)
        assert self.weights(last) == other.weights(last)

    def rollouts(self, step: int) -> list[dict[str, Any]]:
        lines = (self.directory / "rollouts" / f"{step}.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def weights(self, step: int, role: str = "actor") -> bytes:
        checkpoint = self.directory / "checkpoints" / f"global_step_{step}"
        return (checkpoint / role / "model.safetensors").read_bytes()

    def summary(self) -> dict[str, Any]:
        return json.loads((self.directory / "summary.json").read_text())


@pytest.fixture(scope="session")
def tiny_judge_dir(make_tiny_model):
    r"""A judge that writes ``\box{0.xx}`` for any prompt; its digits are a guess."""
    import torch
    from transformers import AutoTokenizer, Qwen2ForCausalLM

    path = make_tiny_model(5)
    tokenizer = AutoTokenizer.from_pretrained(path)
    model = Qwen2ForCausalLM.from_pretrained(path, dtype=torch.float32)
    generator = torch.Generator().manual_seed(0)
    opening = tokenizer("<|im_end|>\n<|im_start|>assistant\n")["input_ids"]
    answers = [
        [*tokenizer(f"\\box{{0.{k:02d}}}")["input_ids"], tokenizer.eos_token_id] for k in range(100)
    ]
    assert len({len(answer) for answer in answers}) == 1
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for _ in range(120):
        noise = torch.randint(3, len(tokenizer), (16, 24), generator=generator)
        picks = torch.randint(0, 100, (16,), generator=generator).tolist()
        rows = [[*noise[i].tolist(), *opening, *answers[k]] for i, k in enumerate(picks)]
        ids = torch.tensor(rows)
        labels = ids.clone()
        labels[:, : -len(answers[0])] = -100
        loss = model(input_ids=ids, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.set_num_threads(threads)
    model.save_pretrained(path)
    return path


@pytest.fixture(scope="session")
def make_run(tmp_path_factory, tiny_tree, tiny_judge_dir):
    """``make_run(*overrides)`` → a fresh run: 4 steps of GRPO, blending and KL, saved every 2.

    The rule reward is :func:`saboteur.reward`: the random model would never earn the real one.
    """
    tree: dict[str, Any] = yaml.safe_load((ROOT / "params" / "ppo.yaml").read_text())
    judge = {"entropy_high_threshold": 8.0, "scoring": {"model_path": str(tiny_judge_dir)}}
    overlay = {
        "data": {"max_val_samples": 4},
        "actor_rollout_ref": {"rollout": {"n": 4}},
        "algorithm": {
            "use_kl_in_reward": True,
            "kl_ctrl": {"type": "adaptive", "kl_coef": 0.01},
            "ref_quality_score": judge,
        },
        "reward": {"custom_reward_function": "saboteur:reward"},
        "trainer": {"total_training_steps": 4, "save_freq": 2, "test_freq": 2},
        "ray": {"start_timeout_s": 300.0},
    }
    folder = tmp_path_factory.mktemp("runs")
    config_file = folder / "config.yaml"
    config_file.write_text(yaml.safe_dump(merge(merge(tree, tiny_tree), overlay)))
    count = 0

    def make(*overrides: str) -> Run:
        nonlocal count
        count += 1
        return Run(folder / "tiny" / f"seed_{count}", config_file, list(overrides))

    return make


@pytest.fixture(scope="session")
def undisturbed(make_run):
    """A finished run of 4 steps that the others are compared with."""
    run = make_run()
    run.complete()
    return run
