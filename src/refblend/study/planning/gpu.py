"""GPU-hours of a study on GPUs, from the stage costs that ``refblend.gpu_check`` measured.

``python -m refblend.study.planning.gpu SCALE`` prints them; ``make study SCALE=gpu`` does so before
it starts. In the record one model is both actor and judge, and generates without CUDA graphs, the
judge in float32. Costs grow in proportion to a model's size, that of its weights or else of its
name (``1.5B``)::

    generation   waves of max_num_seqs × response length × seconds per token of a wave
    judge        the same with its own answers, and its prompts' share of the recorded batch
    log-probs    tokens / tokens per second; the update alike
    push         as recorded

Responses count at their full length: a run takes less.
"""

import math
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tabulate import tabulate

from refblend.config import RefblendConfig
from refblend.errors import RefblendError, StudyError
from refblend.rollout.model_dir import count_parameters
from refblend.study.design.grid import build_grid, configurations, unique_runs
from refblend.study.design.names import MILESTONES
from refblend.study.design.spec import experiments_of
from refblend.study.design.workflow import gpus_to_train

RECORD = Path("results/gpu/check.md")
START_S = 75.0
"""Start of all processes and two steps, as recorded by the row `training through Ray`."""
VALIDATION_ROWS = 576
"""Validation and sanity set of GSM8K, as `refblend data gsm8k` splits it."""
RECORDED_LENGTH = JUDGE_TOKENS = 64
"""Tokens of a response and of an answer in the record."""


def stage_costs(record: Path = RECORD) -> dict[str, float]:
    """Seconds and tokens per second of the recorded stages, and millions of parameters.

    StudyError if there is no record, or it lacks a row.
    """
    text = record.read_text(encoding="utf-8") if record.is_file() else ""
    patterns = {
        "parameters": r"\| parameters \| ([\d.]+) million",
        "log_prob": r"\| log-prob pass \| ([\d,]+) tokens/s",
        "update": r"\| update \| ([\d,]+) tokens/s",
        "rollout": r"seconds of step 2 \|.*rollout ([\d.]+)",
        "judge": r"seconds of step 2 \|.*judge ([\d.]+)",
        "push": r"seconds of step 2 \|.*weight push ([\d.]+)",
    }
    found = {name: re.search(pattern, text) for name, pattern in patterns.items()}
    if missing := [name for name, match in found.items() if match is None]:
        raise StudyError(f"{record} has no row for {', '.join(missing)}", "Run `make gpu-check`.")
    return {name: float(m[1].replace(",", "")) for name, m in found.items() if m is not None}


def run_hours(config: RefblendConfig, costs: Mapping[str, float]) -> float:
    """GPU-hours of one run: its steps, its validations, its start."""
    rollout, data = config.actor_rollout_ref.rollout, config.data
    rows = data.train_batch_size * rollout.n
    scoring, own = config.algorithm.ref_quality_score.scoring, config.actor_rollout_ref.model.path

    def times(path: str) -> float:
        if Path(path).is_dir():
            return count_parameters(Path(path), "model") / 1e6 / costs["parameters"]
        size = re.search(r"(\d+(?:\.\d+)?)B\b", path)
        return 1000 * float(size[1]) / costs["parameters"] if size else 1.0

    decode = times(own) * costs["rollout"] / RECORDED_LENGTH
    judged = times(scoring.model_path or own) * costs["judge"] / JUDGE_TOKENS

    def sampling(count: int) -> float:
        return math.ceil(count / rollout.max_num_seqs) * data.max_response_length * decode

    waves = math.ceil(rows / scoring.max_num_seqs) if config.use_judge else 0
    # With a shared prefix a prompt's tokens are computed once for its responses.
    tokens = data.train_batch_size * (data.max_prompt_length + rollout.n * data.max_response_length)
    passes = 1 / costs["log_prob"] + config.actor_rollout_ref.actor.ppo_epochs / costs["update"]
    trained = times(own) * (tokens * passes + costs["push"])
    step = sampling(rows) + waves * scoring.max_new_tokens * judged + trained
    steps = config.trainer.total_training_steps or 0
    tests = 1 + steps // config.trainer.test_freq if config.trainer.test_freq > 0 else 1
    per_test = sampling(min(data.max_val_samples or VALIDATION_ROWS, VALIDATION_ROWS))
    return (START_S + steps * step + tests * per_test) / 3600


def plan(
    experiments: Sequence[str],
    params: str | Path = "params",
    record: Path = RECORD,
    scale: str = "gpu",
) -> dict[str, tuple[int, float]]:
    """Every arm's number of runs, and the GPU-hours of one."""
    costs, found = stage_costs(record), {}
    grid = build_grid(experiments, scale, params)
    runs = unique_runs(grid).groupby("arm").size()
    for arm, config in configurations(grid, scale, params).items():
        found[arm] = int(runs[arm]), max(1, gpus_to_train(config)) * run_hours(config, costs)
    return found


def main(scale: str = "gpu") -> None:
    """Print the plan of all milestones at a scale."""
    experiments = [name for m in MILESTONES for name in experiments_of(m, "params", scale)]
    arms = plan(experiments, scale=scale)
    rows = [(arm, runs, f"{hours:.2f}") for arm, (runs, hours) in arms.items()]
    print(tabulate(rows, headers=("arm", "trainings", "GPU-hours each")))
    total = sum(runs * hours for runs, hours in arms.values())
    trainings = sum(runs for runs, _ in arms.values())
    card = RECORD.read_text(encoding="utf-8").split("\n\n")[1].split(",")[0]
    size = stage_costs()["parameters"] / 1000
    print(
        f"{trainings} trainings, about {total:.0f} GPU-hours of one {card}, by the "
        f"costs of {RECORD} with a model of {size:.1f}B, in proportion to the models' sizes "
        "(of their weights; of the name where there are none; else the same)."
    )


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except RefblendError as error:
        sys.exit(f"error: {error}")
