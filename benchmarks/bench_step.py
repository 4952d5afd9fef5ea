"""A training step compared with the sum of its bare parts on the same inputs.

`python benchmarks/bench_step.py` runs `refblend train` at scale cpu with random models and a
learning rate of 0, so that weights and samples can be reproduced, and then the bare parts in this
process: ``vllm.LLM.generate`` with the same prompts and seeds, log-probs with entropy, forward,
backward and AdamW on the same tokens, and ``generate`` with the same judge prompts. The engines
return what the run needs, the log-probs of the sampled tokens and the judge's alternatives; the
cost of tokens alone is measured too. Both sides are CPU seconds (all processes of the run, Ray's
included); the networks are measured in the shared layout, so that the layout's gain does not hide
overhead, and in the plain one. The run's judge works before the log-prob passes
(``scoring.overlap=false``): running it concurrently saves wall time, but two busy cores slow each
other down, which the bare parts, one after another, do not show.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import common
import psutil
import torch

from refblend.config import RefblendConfig, load_config
from refblend.rollout.base import EngineOptions
from refblend.rollout.vllm_engine import VllmEngine
from refblend.scoring.clipping import ScoringLimits
from refblend.scoring.generative import TOP_LOGPROBS, GenerativeJudge, JudgeOptions
from refblend.scoring.templates import load_templates
from refblend.seeding import derive_seed
from refblend.trainer.datasets import load_run_data
from refblend.workers import batching
from refblend.workers.layout import pad_batch
from refblend.workers.networks import PolicyNetwork, load_policy
from refblend.workers.types import Sequences

STEPS = 6
WARM = 2
"""First steps that are left out: caches and lazy imports."""
REPEATS = 3


def overrides(folder: Path, steps: int = STEPS) -> list[str]:
    """The run's settings."""
    return [
        *common.run_overrides(folder, folder / "run", steps),
        "actor_rollout_ref.actor.optim.lr=0",
        "trainer.save_freq=0",
        "trainer.rollout_dump_freq=1",
        "trainer.energy=false",
        "trainer.logger=[]",
        "algorithm.ref_quality_score.scoring.overlap=false",
    ]


def cpu_seconds(root: psutil.Process) -> dict[tuple[int, str], float]:
    """CPU time of a process and its living descendants, by process id and name."""
    found: dict[tuple[int, str], float] = {}
    for process in [root, *root.children(recursive=True)]:
        try:
            title, times = process.cmdline()[0], process.cpu_times()
            parent = process.ppid()
        except (psutil.NoSuchProcess, IndexError):
            continue
        name = title.split(".")[0] if title.startswith("ray::") else process.name()
        # The command and its child, which trains.
        name = "driver" if root.pid in (process.pid, parent) else name
        found[process.pid, name] = times.user + times.system
    return found


def run_training(
    folder: Path, settings: list[str], total: int = STEPS, name: str = "run"
) -> tuple[list[dict[str, float]], list[dict[str, Any]]]:
    """CPU seconds of each measured step by process, and their lines of ``metrics.jsonl``.

    Args:
        folder: holds the run's directory ``name``.
        settings: overrides of scale cpu.
        total: training steps.
        name: as in ``trainer.default_local_dir``.
    """
    configs = [argument for path in common.CONFIGS for argument in ("--config", str(path))]
    paths = [str(common.ROOT / "benchmarks"), os.environ.get("PYTHONPATH", "")]
    process = subprocess.Popen(
        [Path(sys.executable).with_name("refblend"), "train", *configs, *settings],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
        stdout=subprocess.DEVNULL,
    )
    metrics, marks = folder / name / "metrics.jsonl", []
    while process.poll() is None:
        lines = metrics.read_text().splitlines() if metrics.exists() else []
        if len(lines) > len(marks):
            marks += [cpu_seconds(psutil.Process(process.pid))] * (len(lines) - len(marks))
        time.sleep(0.05)
    if process.returncode:
        raise SystemExit(f"the training run failed with status {process.returncode}")
    # The last step is left out too, because validation follows it.
    spent = [_difference(a, b) for a, b in pairwise(marks[: total - 1])]
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    return spent[WARM - 1 :], lines[WARM : total - 1]


def _difference(
    before: dict[tuple[int, str], float], after: dict[tuple[int, str], float]
) -> dict[str, float]:
    start = {pid: spent for (pid, _), spent in before.items()}
    found: dict[str, float] = {}
    for (pid, name), spent in after.items():
        found[name] = found.get(name, 0.0) + spent - start.get(pid, 0.0)
    return found


def optimise(policy: PolicyNetwork, sequences: Sequences, config: RefblendConfig) -> None:
    """Forward, backward and AdamW of every mini-batch."""
    actor = config.actor_rollout_ref.actor
    optimiser = torch.optim.AdamW(policy.parameters(), lr=0.0, fused=True)
    size = (actor.ppo_mini_batch_size or 0) * config.actor_rollout_ref.rollout.n
    for rows in batching.split_mini_batches(len(sequences), size or None):
        for part in plan(policy, sequences, rows, actor.ppo_max_token_len_per_gpu):
            log_probs, _ = policy(pad_batch(sequences, part, torch.device("cpu")))
            (-log_probs.mean()).backward()
        optimiser.step()
        optimiser.zero_grad()


@torch.no_grad()
def log_probs(policy: PolicyNetwork, sequences: Sequences, config: RefblendConfig) -> None:
    """Log-probs and entropy of every response."""
    budget = config.actor_rollout_ref.actor.ppo_max_token_len_per_gpu
    for part in plan(policy, sequences, range(len(sequences)), budget):
        policy(pad_batch(sequences, part, torch.device("cpu")))


def plan(policy: PolicyNetwork, sequences: Sequences, rows: Any, budget: int) -> list[list[int]]:
    """Micro-batches for the layout that the policy was loaded for."""
    shared = policy.lm.config._attn_implementation != "sdpa"
    prompts = sequences.prompt_ids if shared else None
    return batching.plan_micro_batches(sequences.lengths, rows, 1, budget, prompts=prompts)[0]


def measure_parts(folder: Path, config: RefblendConfig) -> dict[str, list[float]]:
    """CPU seconds of every bare part on the inputs of the run's last step."""
    from vllm import SamplingParams
    from vllm.inputs import TokensPrompt
    from vllm.sampling_params import RequestOutputKind

    bare_output: dict[str, Any] = {
        "flat_logprobs": True,
        "detokenize": False,
        "output_kind": RequestOutputKind.FINAL_ONLY,
    }
    scoring = config.algorithm.ref_quality_score.scoring
    data = load_run_data(config)
    text = (folder / "run" / "rollouts" / f"{STEPS}.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    prompts = [data.train.prompt_ids[line["uid"]] for line in lines]
    actor = VllmEngine(EngineOptions(f"{folder}/actor", 256, kv_cache_memory_mb=128))
    judge = VllmEngine(
        EngineOptions(scoring.model_path, scoring.max_model_len, kv_cache_memory_mb=256)
    )
    limits = ScoringLimits(judge.max_model_len, max_new_tokens=common.JUDGE_TOKENS)
    templates = load_templates("embedded")
    asked = GenerativeJudge(judge, data.tokenizer, templates, JudgeOptions(limits))
    judged = [
        TokensPrompt(prompt_token_ids=list(asked.plan(x["question"], x["response"]).token_ids))
        for x in lines
    ]
    seed = config.trainer.seed

    def sampling(log_probs: bool) -> list[SamplingParams]:
        return [
            SamplingParams(
                temperature=1.0,
                max_tokens=config.data.max_response_length,
                seed=derive_seed(seed, "rollout", STEPS, x["uid"], x["sample"]),
                stop_token_ids=actor._stop_ids,
                logprobs=0 if log_probs else None,
                **bare_output,
            )
            for x in lines
        ]

    def greedy(log_probs: bool) -> SamplingParams:
        return SamplingParams(
            temperature=0.0,
            max_tokens=common.JUDGE_TOKENS,
            logprobs=TOP_LOGPROBS if log_probs else None,
            **bare_output,
        )

    inputs = [TokensPrompt(prompt_token_ids=list(p)) for p in prompts]

    def forget() -> None:
        # A step's weights and responses are new: the judge has cached only its shared prefix.
        actor.reset_prefix_cache()
        judge.reset_prefix_cache()
        judge._llm.generate(judged[:1], greedy(False), use_tqdm=False)

    def generate(log_probs: bool = True) -> list[list[int]]:
        outputs = actor._llm.generate(inputs, sampling(log_probs), use_tqdm=False)
        return [list(o.outputs[0].token_ids) for o in outputs]

    def score(log_probs: bool = True) -> None:
        judge._llm.generate(judged, greedy(log_probs), use_tqdm=False)

    sequences = Sequences(prompts, generate())
    if sequences.response_lengths != [line["length"] for line in lines]:
        raise SystemExit("the bare engine did not repeat the run's samples")
    shared = load_policy(f"{folder}/actor", 1.0)
    plain = load_policy(f"{folder}/actor", 1.0, shared_prefix=False)
    times = common.alternate(
        {
            "generate": generate,
            "judge": score,
            "log_probs": lambda: log_probs(shared, sequences, config),
            "update": lambda: optimise(shared, sequences, config),
            "generate_tokens_only": lambda: generate(False),
            "judge_tokens_only": lambda: score(False),
            "log_probs_plain": lambda: log_probs(plain, sequences, config),
            "update_plain": lambda: optimise(plain, sequences, config),
        },
        REPEATS,
        before=forget,
    )
    return times | {"tokens": [float(sum(sequences.lengths))]}


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tokenizer = common.embedded_tokenizer()
        common.make_model(folder / "actor", tokenizer, seed=0)
        common.make_model(folder / "judge", tokenizer, seed=1)
        common.prepare_data(folder)
        steps, lines = run_training(folder, overrides(folder))
        config = load_config(common.CONFIGS, overrides(folder))
        parts = measure_parts(folder, config)
    medians = {k: statistics.median(v) for k, v in parts.items()}
    bare = sum(medians[k] for k in ("generate", "judge", "log_probs", "update"))
    plain = sum(medians[k] for k in ("generate", "judge", "log_probs_plain", "update_plain"))
    tokens_only = sum(
        medians[k] for k in ("generate_tokens_only", "judge_tokens_only", "log_probs", "update")
    )
    step = statistics.median(sum(spent.values()) for spent in steps)
    rows = [[name, value / bare] for name, value in medians.items() if name != "tokens"]
    rows += [["sum of the bare parts", 1.0], ["sum, plain layout", plain / bare]]
    for process in sorted({name for spent in steps for name in spent}):
        spent = statistics.median(s.get(process, 0.0) for s in steps)
        if spent > 0.005 * bare:
            rows += [[f"of the step: {process}", spent / bare]]
    rows += [["training step", step / bare], ["… to engines without log-probs", step / tokens_only]]
    common.show("CPU time as a ratio to the sum of the bare parts", ["what", "ratio"], rows)
    timings = {
        key: statistics.median(line[key] for line in lines)
        for key in lines[0]
        if key.startswith("timing_s/")
    }
    common.record(
        "step",
        "CPU time of a training step as a ratio to its bare parts",
        step / bare,
        1.10,
        {
            "step_cpu_seconds": steps,
            "parts_cpu_seconds": parts,
            "ratio_to_plain_parts": step / plain,
            "ratio_to_engines_without_log_probs": step / tokens_only,
            "step_wall_seconds": timings,
        },
    )


if __name__ == "__main__":
    main()
