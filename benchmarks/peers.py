"""One job for our trainer and for TRL's GRPOTrainer: what both are given, run and compared by."""

import json
import os
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import common
import runs

Figures = dict[str, list[float]]
"""Of a trainer's measured batches: CPU and wall seconds, response tokens; and its whole curve."""


def trl_python() -> Path:
    """The interpreter of TRL's environment; SystemExit where there is none."""
    python = Path(os.environ.get("TRL_ENV", "")) / "bin" / "python"
    if "TRL_ENV" not in os.environ or not python.exists():
        raise SystemExit("Not run: TRL_ENV names no environment with TRL (make .tools/trl).")
    return python


@dataclass(frozen=True)
class Job:
    """A GRPO job without KL and judge, on the actor and the data below ``folder``."""

    folder: Path
    prompts: int
    group: int
    new_tokens: int
    learning_rate: float
    updates: int = 1
    """Optimiser steps of a batch."""
    warm: int = common.UPDATES_TO_WARM_UP
    """First batches of either trainer that are not measured: caches, lazy imports, allocator."""
    dtype: str = "float32"
    """Of the products; weights, gradients and optimiser are float32."""
    configs: Sequence[Path] = field(default_factory=lambda: common.CONFIGS)
    settings: Sequence[str] = ()
    """Overrides of ``configs`` for our trainer."""

    def our_settings(self, name: str, batches: int) -> list[str]:
        """Overrides of the configuration; the run's directory is ``folder/name``."""
        return [
            *runs.overrides(self.folder, batches, name),
            *self.settings,
            f"actor_rollout_ref.actor.optim.lr={self.learning_rate}",
            "algorithm.ref_quality_score.enable=false",
        ]

    def ours(self, name: str, batches: int) -> Figures:
        """Train with refblend."""
        run, settings = self.folder / name, self.our_settings(name, batches)
        steps, lines = runs.run_training(run, settings, batches, self.configs)
        dumps = [runs.rollouts(run, number) for number in range(1, batches + 1)]
        tokens = [float(sum(row["length"] for row in dump)) for dump in dumps]
        return {
            "cpu_seconds": [sum(spent.values()) for spent in steps][self.warm - runs.WARM :],
            "wall_seconds": [line["timing_s/step"] for line in lines][self.warm - runs.WARM :],
            "response_tokens": tokens[self.warm : batches - 1],
            "curve_tokens": tokens,
            "curve_reward": [statistics.fmean(row["reward"] for row in dump) for dump in dumps],
        }

    def start_trl(self, python: Path, micro_batch: int, batches: int) -> "subprocess.Popen[str]":
        """TRL's trainer, started; its last line is its figures."""
        job = {
            "model": f"{self.folder}/actor",
            "threads": common.THREADS,
            "dtype": self.dtype,
            "updates_per_batch": self.updates,
            "prompts": self.prompts,
            "group": self.group,
            "questions": common.train_prompts(self.folder, 256),
            "output": f"{self.folder}/trl",
            "batches": batches,
            "warm": self.warm,
            "micro_batch": micro_batch,
            "max_new_tokens": self.new_tokens,
            "lr": self.learning_rate,
        }
        file = self.folder / "job.json"
        file.write_text(json.dumps(job))
        script = common.ROOT / "benchmarks" / "peer_trl.py"
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        return subprocess.Popen(
            [python, script, file], stdout=subprocess.PIPE, text=True, env=environment
        )

    def trl(self, python: Path, micro_batch: int, batches: int) -> Figures:
        """Train with TRL."""
        process = self.start_trl(python, micro_batch, batches)
        output, _ = process.communicate()
        if process.returncode:
            raise SystemExit(f"TRL failed with status {process.returncode}")
        found: Figures = json.loads(output.splitlines()[-1])
        return found


def ratios_to_best(
    measured: Mapping[str, Sequence[Figures]], by_batch: bool = False
) -> tuple[str, dict[str, dict[str, float]]]:
    """The fastest of TRL's ways, and every way's response tokens per second as a ratio to it.

    ``refblend`` names ours; per CPU second and per second of wall time, medians over all batches.
    ``by_batch``: batches instead of tokens, where the trainers' responses differ in length and what
    a batch costs does not follow their tokens.
    """
    clocks = ("cpu_seconds", "wall_seconds")
    rates = {
        way: {
            clock: statistics.median(
                (1.0 if by_batch else tokens) / spent
                for run in of
                for tokens, spent in zip(run["response_tokens"], run[clock], strict=True)
            )
            for clock in clocks
        }
        for way, of in measured.items()
    }
    best = max((way for way in rates if way != "refblend"), key=lambda w: rates[w][clocks[0]])
    return best, {
        way: {clock: rate / rates[best][clock] for clock, rate in of.items()}
        for way, of in rates.items()
    }
