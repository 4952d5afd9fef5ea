"""The stages of the check, each reported."""

import gc
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from refblend.config.scoring import SCORING_KEY
from refblend.gpu_check.chain import TOLERANCE, Chain, under
from refblend.gpu_check.measuring import Report, matmul_peak, seconds
from refblend.rollout.base import GenerationRequest
from refblend.scoring.judge import start_judge
from refblend.workers.gpu_memory import GIB, Model

ROOT = Path(__file__).resolve().parents[3]
SMOLLM = ROOT / "models" / "smollm" / "base"
"""Made by ``make pretrained``."""


def judge_alone(on_gpu: bool) -> list[str]:
    """Settings of a judge on vLLM; on a GPU with CUDA graphs, and able to sleep."""
    dtype = "bfloat16" if on_gpu else "float32"
    return [
        *under(SCORING_KEY, kind="vllm", max_new_tokens=32, gpu_memory_utilization=0.2),
        *under(SCORING_KEY, dtype=dtype, enforce_eager=not on_gpu, sleep=on_gpu, overlap=False),
    ]


def check_judge(chain: Chain, report: Report) -> None:
    """The judge alone on vLLM, timed beside bare ``LLM.generate``; on a GPU its sleep, too."""
    on_gpu = chain.device == "cuda"
    scoring = chain.configured(*judge_alone(on_gpu)).algorithm.ref_quality_score
    judge: Any = start_judge(scoring)
    generate, bare, stage = judge.engine._llm.generate, list[float](), list[float]()

    def timed(*arguments: Any, **options: Any) -> Any:
        begin = time.perf_counter()
        answers = generate(*arguments, **options)
        bare.append(time.perf_counter() - begin)
        return answers

    questions = chain.questions * chain.answers
    with judge:
        judge.engine._llm.generate = timed
        for turn in range(3):  # as in a run, only the prompts' beginning is in the cache
            answers = [f"It is {100 * turn + number}." for number in range(len(questions))]
            begin = time.perf_counter()
            judge.score(questions, answers)
            stage.append(time.perf_counter() - begin)
        judge.engine._llm.generate = generate
        runner_v2 = judge.engine._llm.llm_engine.vllm_config.use_v2_model_runner
        if on_gpu:
            check_sleep(judge, questions, answers, report)
    seconds_bare, seconds_stage = sum(bare[1:]), sum(stage[1:])
    rate, share = 2 * len(questions) / seconds_stage, seconds_bare / seconds_stage
    report.add("judge on vLLM", f"{rate:,.0f} responses/s, {share:.1%} of it bare LLM.generate")
    report.add("vLLM's model runner", "V2" if runner_v2 else "V1")


def check_sleep(judge: Any, questions: list[str], answers: list[str], report: Report) -> None:
    """The device's memory around the judge's sleep, after which it must hold the same weights."""
    prompts = [judge.plan(*texts).token_ids for texts in zip(questions, answers, strict=True)]
    requests = [GenerationRequest(ids, 1, temperature=0.0, top_logprobs=5) for ids in prompts]

    def likely() -> list[dict[int, float]]:
        return [found.top_logprobs[0] for found in judge.engine.generate(requests)]

    total = torch.cuda.mem_get_info()[1] / GIB

    def used() -> float:
        return total - torch.cuda.mem_get_info()[0] / GIB

    before, memory = likely(), [used()]
    judge.engine.sleep(level=1)
    memory.append(used())
    judge.engine.wake_up()
    memory.append(used())
    shown = ", ".join(f"{size:.1f}" for size in memory)
    report.add("GPU memory with the judge awake, asleep, awake", f"{shown} GiB")
    share = judge.config.scoring.gpu_memory_utilization * total
    assert memory[0] - memory[1] > share / 2, "an engine that sleeps keeps its memory"
    pairs = list(zip(before, likely(), strict=True))
    gap = statistics.fmean(
        abs(log_prob - after.get(token, min(after.values())))
        for asked, after in pairs
        for token, log_prob in asked.items()
    )
    # Other random weights have log-probs like these, of other tokens.
    kept = statistics.fmean(len(asked.keys() & after.keys()) / len(asked) for asked, after in pairs)
    report.add("log-probs of the judge, before sleep against after", f"{gap:.2e} nats")
    assert gap < TOLERANCE["cuda"], "an engine that slept gives other log-probs"
    assert kept >= 0.5, "an engine that slept gives other log-probs"


def check_speed(chain: Chain, report: Report, peak: float, tiny: bool) -> None:
    """Log-prob pass and update as shares of the peak; memory (CUDA)."""
    tokens = 512 if tiny or chain.device == "cpu" else 16384
    on_gpu = chain.device == "cuda"
    ways = ({", softmax not compiled": "force_eager"} if on_gpu else {}) | {"": "default"}
    for name, update, operations in (("log-prob pass", False, 2), ("update", True, 6)):
        work, count = chain.pass_of(tokens, 512 if tokens > 512 else 128, update)
        for way, stance in ways.items():
            if on_gpu:  # what the last way, the update as it is trained, holds is reported below
                torch.cuda.reset_peak_memory_stats()
            with torch.compiler.set_stance(stance):
                taken = seconds(work, chain.device)
            share = operations * chain.parameters * count / taken / peak
            report.add(f"{name}{way}", f"{count / taken:,.0f} tokens/s, {share:.1%} of the peak")
    if on_gpu:
        model, found = Model.of(str(chain.model), "model"), torch.cuda.max_memory_allocated() / GIB
        formula = 16 * chain.parameters + model.activations(tokens, "bfloat16", model.layers)
        report.add("memory", f"{found:.1f} GiB at the update, {formula / GIB:.1f} by the formula")
    else:
        report.left_out.append("memory (no GPU)")


def report_training(run: Path, report: Report) -> None:
    """How the last step of a run went: its times, and how far vLLM is from the trainer."""
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    first, step = map(json.loads, lines[-2:])
    kl = step["training/rollout_kl"]
    report.add("KL divergence of vLLM from the trainer", f"{kl:.2e} nats a token in step 2")
    parts = {"rollout": "gen", "judge": "ref_quality_score", "log-probs": "old_log_prob"}
    parts |= {"actor update": "update_actor", "weight push": "update_weights"}
    times = ", ".join(f"{name} {step[f'timing_s/{key}']:.2f}" for name, key in parts.items())
    report.add("seconds of step 2", f"{step['timing_s/step']:.2f}: {times}")
    if (used := step.get("perf/gpu_memory_used_gb")) is not None:
        report.add("GPU memory of all processes", f"{used:.1f} GiB")
    assert first["actor/grad_norm"] > 0, "step 1 has moved no weight, so that a push shows nothing"
    # Log-probs that are d apart give d² / 2.
    assert kl < TOLERANCE["cuda"] ** 2 / 2, "vLLM and the trainer do not hold the same weights"


def trainings(devices: int) -> dict[str, list[str] | None]:
    """Two steps through Ray with vLLM as rollout and judge: name → settings, or None if left out.

    ``devices``: GPUs of the machine.
    """
    policy, name = "actor_rollout_ref", "training through Ray, rollouts by vLLM"
    rollout, ranks = f"{policy}.rollout", f"{policy}.actor.fsdp_config"
    alone = [
        *under("trainer", total_training_steps=2, energy=False),
        # A step that changes what SmolLM2 says ten times as much as the check of log-probs allows.
        *under(f"{policy}.actor", entropy_coeff=0.01, **{"optim.lr": 3e-5}),
        *under(rollout, name="vllm", num_gpus=0.3, gpu_memory_utilization=0.3),
        f"{ranks}.num_gpus_per_worker=0.4",
    ]
    judge = {"num_gpus": 0.2, "gpu_memory_utilization": 0.2, "dtype": "bfloat16"}
    common = [*alone, *under(SCORING_KEY, **judge)]
    # Random weights sample nearly any token alike, which hides what went wrong.
    models = (f"{policy}.model.path", f"{SCORING_KEY}.model_path")
    peaked = [f"{model}={SMOLLM}" for model in models if SMOLLM.is_dir()]
    with_kl = ["algorithm.use_kl_in_reward=true", f"{policy}.ref.colocated=true"]
    return {
        name: common,
        f"{name}, CUDA graphs and sleep": [
            *(*common, *peaked, *under(rollout, sleep=True, enforce_eager=False)),
            *under(SCORING_KEY, sleep=True, overlap=False, enforce_eager=False),
        ],
        f"{name}, KL and checkpointing": [
            *(*common, *with_kl, f"{policy}.model.enable_gradient_checkpointing=true"),
        ],
        f"{name}, LoRA and KL, one engine for actor and judge": [
            *(*alone, *peaked, *with_kl, f"{policy}.model.lora_rank=16"),
            *under(rollout, lora="adapter", enforce_eager=False),
            f"{policy}.actor.optim.lr=3e-3",  # an adapter starts at 0
            *under(SCORING_KEY, kind="reference", model_path="null", overlap=False),
        ],
        f"{name}, two ranks and KL (two GPUs)": [
            *(*common, *with_kl),
            *under(ranks, world_size=2, num_gpus_per_worker=0.6),
        ]
        if devices > 1
        else None,
    }


def check_rest(chain: Chain, report: Report) -> None:
    """What needs more than the bare libraries: the tests on a GPU, and training on vLLM and Ray."""
    missing = [name for name in ("ray", "vllm", "psutil") if not importlib.util.find_spec(name)]
    if missing:
        report.left_out.append(f"training through Ray with vLLM ({', '.join(missing)} missing)")
    elif chain.device == "cpu":
        report.left_out.append("training through Ray with vLLM (make smoke does it on a CPU)")
    else:
        with report.stage("judge alone on vLLM"):
            check_judge(chain, report)
        for name, more in trainings(torch.cuda.device_count()).items():
            if more is None:
                report.left_out.append(name)
                continue
            # Each run leaves a checkpoint of gigabytes.
            with report.stage(name), tempfile.TemporaryDirectory(dir=chain.folder) as run:
                from refblend.trainer.launch import train

                train(chain.configured(*more, f"trainer.default_local_dir={run}"))
                report_training(Path(run), report)
    if not importlib.util.find_spec("pytest"):
        report.left_out.append("tests/gpu (pytest missing)")
    elif chain.device == "cpu":
        report.left_out.append("tests/gpu (REFBLEND_GPU_TEST_DEVICE=cpu runs them, slowly)")
    else:
        with report.stage("tests/gpu"):
            table = chain.folder / "tests.md"
            command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "tests/gpu"]
            environment = os.environ | {"REFBLEND_GPU_TEST_TABLE": str(table)}
            subprocess.run(command, check=True, cwd=ROOT, timeout=600, env=environment)
            for row in table.read_text(encoding="utf-8").splitlines()[4:]:
                what, found = row.strip("| ").split(" | ")
                report.add(f"tests/gpu: {what}", found)


def check(device: str, tiny: bool, report: Report) -> None:
    """All stages, each reported."""
    peak = matmul_peak(device)
    kind = "bfloat16" if device == "cuda" else "float32"
    report.add(f"matrix-multiply peak, {kind}", f"{peak / 1e12:.2f} TFLOP/s")
    with tempfile.TemporaryDirectory() as folder:
        chain = Chain(Path(folder), device, tiny)
        with report.stage("model, FSDP2 and engine start"):
            chain.start()
            report.add("parameters", f"{chain.parameters / 1e6:,.1f} million")
        if report.failures:
            report.left_out.append("the stages of the plain workers, which follow the start")
        else:
            for step, what in (1, "rollout to weight push"), (2, "the same with pushed weights"):
                with report.stage(f"step {step}: {what}"):
                    gap = chain.train_step(step)
                    report.add("log-probs, engine against trainer", f"{gap:.2e} nats")
            with report.stage("speed"):
                check_speed(chain, report, peak, tiny)
            del chain.actor, chain.engine
            gc.collect()  # before vLLM excludes what is left from collection
        check_rest(chain, report)
