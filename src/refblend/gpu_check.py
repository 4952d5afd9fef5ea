"""One GPU checked in minutes: ``python -m refblend.gpu_check`` from a checkout.

The plain workers, without Ray, train a model of Qwen2.5-0.5B's shape for two steps: rollout by the
HF engine, log-probs, rule reward, judge, update under FSDP2 (a group of one rank on nccl) and the
weight push, whose log-probs the engine must reproduce. What is timed is given as a share of the
matrix-multiply peak measured in the same call. Needed are torch, transformers, pydantic, pandas and
pyarrow; ``tests/gpu`` and vLLM are run where they are installed, and what is left out is named.
"""

import argparse
import importlib.util
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TOLERANCE = {"cpu": 1e-3, "cuda": 0.15}
"""Largest mean gap of log-probs between trainer and engine, in nats: float32, bfloat16."""


@dataclass
class Report:
    """What was found, in the order in which it was found."""

    device: str
    rows: list[tuple[str, str]] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def add(self, what: str, found: str) -> None:
        """A row, also on the console."""
        self.rows.append((what, found))
        print(f"{what}: {found}", flush=True)

    @contextmanager
    def stage(self, what: str) -> Iterator[None]:
        """A stage whose failure is reported, and does not stop the next one."""
        begin = time.perf_counter()
        try:
            yield
        except Exception as error:  # a defect of any kind is what the check is for
            self.failures.append(f"{what}: {type(error).__name__}: {str(error)[:300]}")
            print(f"FAILED {self.failures[-1]}", flush=True)
        else:
            self.add(what, f"passed in {time.perf_counter() - begin:.1f} s")

    def text(self) -> str:
        """The report as Markdown."""
        lines = ["# GPU check", "", f"{self.device}. Made by `python -m refblend.gpu_check`.", ""]
        lines += ["| what | found |", "|:--|:--|", *(f"| {a} | {b} |" for a, b in self.rows), ""]
        lines += [f"Left out: {'; '.join(self.left_out) or 'nothing'}.", ""]
        lines += [f"**Failed:** {failure}" for failure in self.failures] or ["No stage failed."]
        return "\n".join(lines) + "\n"


def seconds(work: Callable[[], Any], device: str, repeats: int = 3) -> float:
    """Wall time of the fastest of several calls, after one that is not counted."""
    import torch

    def finished() -> float:
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    work()
    taken = []
    for _ in range(repeats):
        begin = finished()
        work()
        taken.append(finished() - begin)
    return min(taken)


def matmul_peak(device: str) -> float:
    """Operations a second of a large matrix product: bfloat16 on a GPU, float32 on the CPU."""
    import torch

    size, dtype = (8192, torch.bfloat16) if device == "cuda" else (1024, torch.float32)
    left, right = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    return 2 * size**3 / seconds(lambda: left @ right, device, repeats=20)


def largest_fitting(fits: Callable[[int], bool], start: int, limit: int) -> int:
    """The largest size up to ``limit`` that fits, to an eighth: doubling, then halving the gap.

    Returns:
        0 if not even ``start`` fits.
    """
    good, bad = 0, start
    while bad <= limit and fits(bad):
        good, bad = bad, 2 * bad
    if bad > limit:
        return good
    while good and bad - good > max(1, good // 8):
        middle = (good + bad) // 2
        good, bad = (middle, bad) if fits(middle) else (good, middle)
    return good


class Chain:
    """The workers of a run and one batch, without Ray.

    Args:
        folder: for model and rows.
        device: ``cpu`` or ``cuda``.
        tiny: a model of two million parameters in place of half a billion.
    """

    prompts, answers, length = 8, 4, 64

    def __init__(self, folder: Path, device: str, tiny: bool) -> None:
        from refblend.embedded.stand_in import HALF_BILLION, Shape, qwen_tokenizer, write_stand_in

        self.device, self.folder = device, folder
        self.questions = [f"What is {a} + {a * 7}? Say the number." for a in range(self.prompts)]
        self.model = folder / "model"
        self.tokenizer = qwen_tokenizer(self.questions, 400)
        write_stand_in(self.model, self.tokenizer, Shape() if tiny else HALF_BILLION, seed=0)
        on_gpu = device == "cuda"
        fsdp = {
            "param_dtype": "bfloat16" if on_gpu else "float32",
            "num_gpus_per_worker": float(on_gpu),
            "num_threads": os.cpu_count() or 1,
        }
        self._settings = [
            f"data.train_files=[{self._rows()}]",
            f"data.val_files=[{self._rows()}]",
            f"data.max_response_length={self.length}",
            f"data.train_batch_size={self.prompts}",
            "data.max_val_samples=4",
            f"actor_rollout_ref.model.path={self.model}",
            "actor_rollout_ref.rollout.name=hf",
            f"actor_rollout_ref.rollout.n={self.answers}",
            "actor_rollout_ref.rollout.max_model_len=512",
            f"actor_rollout_ref.rollout.dtype={fsdp['param_dtype']}",
            f"algorithm.ref_quality_score.scoring.model_path={self.model}",
            "algorithm.ref_quality_score.scoring.max_invalid_rate=1.0",
            "actor_rollout_ref.actor.optim.lr=1.0e-5",
            *(f"actor_rollout_ref.actor.fsdp_config.{k}={v}" for k, v in fsdp.items()),
        ]
        self.config = self.configured()

    def configured(self, *overrides: str) -> Any:
        """The chain's configuration with some keys changed."""
        from refblend.config.loading import load_config

        return load_config([], [*self._settings, *overrides])

    def _rows(self) -> Path:
        from refblend.data.schema import PromptRow, write_rows

        path = self.folder / "rows.jsonl"
        rows = [
            PromptRow(i, "openai/gsm8k", [{"role": "user", "content": q}], q, str(8 * i), "")
            for i, q in enumerate(self.questions)
        ]
        write_rows(path, rows)
        return path

    def start(self) -> None:
        """Process group of one rank, actor and rollout engine."""
        import torch.distributed as dist

        from refblend.rollout.factory import start_rollout
        from refblend.workers.fsdp_workers import ActorWorker

        if not dist.is_initialized():
            backend = "nccl" if self.device == "cuda" else "gloo"
            store = f"file://{self.folder / 'rendezvous'}"
            dist.init_process_group(backend, init_method=store, rank=0, world_size=1)
        self.actor = ActorWorker(self.config, 2)
        self.engine = start_rollout(self.config, str(self.model))
        self.parameters = sum(p.numel() for p in self.actor.network.parameters())

    def rollout(self, step: int) -> Any:
        """Responses to every prompt, as sequences, with the engine's log-probs."""
        from refblend.data.tokenizer import encode_chat
        from refblend.rollout.base import GenerationRequest
        from refblend.workers.types import Sequences

        prompts = [
            encode_chat(self.tokenizer, [{"role": "user", "content": question}])
            for question in self.questions
            for _ in range(self.answers)
        ]
        requests = [
            GenerationRequest(ids, self.length, seed=100 * step + number)
            for number, ids in enumerate(prompts)
        ]
        self.generations = self.engine.generate(requests)
        return Sequences(prompts, [list(found.token_ids) for found in self.generations])

    def gap(self, sequences: Any, log_probs: Any) -> float:
        """Mean distance of the trainer's log-probs from the engine's."""
        found = [
            abs(ours - theirs)
            for row, generation in zip(log_probs.tolist(), self.generations, strict=True)
            for ours, theirs in zip(row, generation.log_probs, strict=False)
        ]
        return sum(found) / len(found)

    def train_step(self, step: int) -> float:
        """One step from rollout to weight push; the gap of log-probs before the update.

        Raises:
            AssertionError: engine and trainer do not hold the same weights.
        """
        import torch

        from refblend.rewards.rule import RuleReward
        from refblend.workers.types import MiniBatch, PolicyTargets, response_mask

        sequences = self.rollout(step)
        rows = len(sequences)
        plan = [list(range(i, min(i + 8, rows))) for i in range(0, rows, 8)]
        _, (log_probs, _) = self.actor.compute_log_prob(sequences, plan)
        gap = self.gap(sequences, log_probs)
        assert gap < TOLERANCE[self.device], f"log-probs of engine and trainer differ by {gap:.4f}"
        reward = RuleReward()
        texts = [self.tokenizer.decode(ids) for ids in sequences.response_ids]
        scores = [reward("openai/gsm8k", t, str(8 * (i // 4))).score for i, t in enumerate(texts)]
        mask = response_mask(sequences.response_lengths, sequences.response_width)
        noise = torch.randn(mask.shape, generator=torch.Generator().manual_seed(step))
        targets = PolicyTargets(mask, log_probs, (noise + torch.tensor(scores)[:, None]) * mask)
        mini = MiniBatch(plan, float(mask.sum()), rows)
        metrics = self.actor.update(sequences, targets, [mini], step)
        assert math.isfinite(metrics["grad_norm"]), f"gradient norm {metrics['grad_norm']}"
        self.engine.load_weights(self.actor.full_weights(), step)
        return gap

    def pass_of(self, tokens: int, width: int, update: bool) -> tuple[Callable[[], Any], int]:
        """A log-prob pass or an update over about so many tokens in one micro-batch; and tokens."""
        import torch

        from refblend.workers.types import MiniBatch, PolicyTargets, Sequences, response_mask

        rows = max(1, tokens // width)
        drawn = torch.randint(
            3, len(self.tokenizer), (rows, width), generator=torch.Generator().manual_seed(0)
        )
        half = width // 2
        sequences = Sequences(drawn[:, :half].tolist(), drawn[:, half:].tolist())
        plan = [list(range(rows))]
        if not update:
            return lambda: self.actor.compute_log_prob(sequences, plan), rows * width
        mask = response_mask(sequences.response_lengths, sequences.response_width)
        targets = PolicyTargets(mask, torch.zeros(mask.shape), torch.ones(mask.shape) * mask)
        mini = MiniBatch(plan, float(mask.sum()), rows)
        return lambda: self.actor.update(sequences, targets, [mini], 1), rows * width


def check_scoring(chain: Chain, report: Report, peak: float) -> None:
    """The judge on the HF engine, with its prompts' share of the peak."""
    from refblend.scoring.judge import start_judge

    key, on_gpu = "algorithm.ref_quality_score.scoring", chain.device == "cuda"
    dtype = "bfloat16" if on_gpu else "float32"
    settings = (f"{key}.kind=hf", f"{key}.max_new_tokens=8", f"{key}.dtype={dtype}")
    scoring = chain.configured(*settings).algorithm.ref_quality_score
    with start_judge(scoring) as judge:
        answers = [f"{a}+{a * 7}={a * 8}" for a in range(chain.prompts)]
        seeds = list(range(chain.prompts))
        taken = seconds(lambda: judge.score(chain.questions, answers, seeds), chain.device)
        tokens = judge.last_call.prompt_tokens
    share = 2 * chain.parameters * tokens / taken / peak
    report.add("scoring", f"{tokens / taken:,.0f} prompt tokens/s, {share:.1%} of the peak")


def check_speed(chain: Chain, report: Report, peak: float, tiny: bool) -> None:
    """Log-prob pass and update as shares of the peak; memory; the largest micro-batch (CUDA)."""
    import torch

    tokens = 512 if tiny or chain.device == "cpu" else 16384
    for name, update, operations in (("log-prob pass", False, 2), ("update", True, 6)):
        work, count = chain.pass_of(tokens, 512 if tokens > 512 else 128, update)
        taken = seconds(work, chain.device)
        share = operations * chain.parameters * count / taken / peak
        report.add(name, f"{count / taken:,.0f} tokens/s, {share:.1%} of the peak")
    if chain.device != "cuda":
        report.left_out.append("memory and the largest micro-batch (no GPU)")
        return
    report.add("memory", f"{torch.cuda.max_memory_allocated() / 2**30:.1f} GiB at the update")

    def fits(size: int) -> bool:
        try:
            chain.pass_of(size, 512, True)[0]()
        except torch.cuda.OutOfMemoryError:
            return False
        finally:
            torch.cuda.empty_cache()
        return True

    found = largest_fitting(fits, 4096, 2**20)
    report.add("largest micro-batch", f"{found:,} tokens of an update, by search")


def check_rest(chain: Chain, report: Report) -> None:
    """What needs more than the bare libraries: the tests on a GPU, and training on vLLM and Ray."""
    missing = [name for name in ("ray", "vllm", "psutil") if not importlib.util.find_spec(name)]
    if missing:
        report.left_out.append(f"training through Ray with vLLM ({', '.join(missing)} missing)")
    elif chain.device == "cpu":
        report.left_out.append("training through Ray with vLLM (make smoke does it on a CPU)")
    else:
        with report.stage("training through Ray, rollouts by vLLM"):
            from refblend.trainer.launch import train

            rollout, judge = "actor_rollout_ref.rollout", "algorithm.ref_quality_score.scoring"
            settings = (
                *(f"{rollout}.name=vllm", f"{rollout}.num_gpus=0.3"),
                f"{rollout}.gpu_memory_utilization=0.3",
                "actor_rollout_ref.actor.fsdp_config.num_gpus_per_worker=0.4",
                *(f"{judge}.num_gpus=0.3", f"{judge}.gpu_memory_utilization=0.2"),
                *("trainer.total_training_steps=2", "trainer.energy=false"),
                f"trainer.default_local_dir={chain.folder / 'run'}",
            )
            train(chain.configured(*settings))
    tests = ROOT / "tests" / "gpu"
    if not importlib.util.find_spec("pytest"):
        report.left_out.append("tests/gpu (pytest missing)")
    elif not tests.is_dir():
        report.left_out.append("tests/gpu (not a checkout)")
    elif chain.device == "cpu":
        report.left_out.append("tests/gpu (REFBLEND_GPU_TEST_DEVICE=cpu runs them, slowly)")
    else:
        with report.stage("tests/gpu"):
            command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", str(tests)]
            subprocess.run(command, check=True, cwd=ROOT, timeout=600)


def check(device: str, tiny: bool, report: Report) -> None:
    """All stages, each reported."""
    peak = matmul_peak(device)
    kind = "bfloat16" if device == "cuda" else "float32"
    report.add(f"matrix-multiply peak, {kind}", f"{peak / 1e12:.2f} TFLOP/s")
    with tempfile.TemporaryDirectory() as folder:
        chain = Chain(Path(folder), device, tiny)
        with report.stage("model, FSDP2 and engine start"):
            chain.start()
        if report.failures:
            report.left_out.append("all that follows the start")
            return
        report.add("parameters", f"{chain.parameters / 1e6:,.1f} million")
        for step in (1, 2):
            what = "rollout to weight push" if step == 1 else "the same with pushed weights"
            with report.stage(f"step {step}: {what}"):
                gap = chain.train_step(step)
                report.add("log-probs, engine against trainer", f"{gap:.2e} nats")
        with report.stage("speed"):
            check_speed(chain, report, peak, tiny)
        with report.stage("scoring"):
            check_scoring(chain, report, peak)
        del chain.actor, chain.engine
        check_rest(chain, report)


def main(arguments: Sequence[str] | None = None) -> int:
    """Check, write the report; status 1 if a stage failed, 2 without the device."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="two million parameters")
    parser.add_argument("--out", type=Path, default=Path("results/gpu/check.md"))
    options = parser.parse_args(arguments)
    from refblend import runtime

    runtime.configure_process(os.cpu_count())
    import torch

    if options.device == "cuda" and not torch.cuda.is_available():
        print("error: no CUDA device. Use --device cpu to try the check itself.", file=sys.stderr)
        return 2
    name = torch.cuda.get_device_name() if options.device == "cuda" else "CPU"
    report = Report(f"{name}, torch {torch.__version__}, Python {sys.version.split()[0]}")
    check(options.device, options.tiny, report)
    from refblend.files import atomic_path

    options.out.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(options.out) as temporary:
        temporary.write_text(report.text(), encoding="utf-8")
    print(f"Report: {options.out}")
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
