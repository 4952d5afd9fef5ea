"""Peak memory of the log-prob and entropy pass by batch × length × vocabulary.

`python benchmarks/bench_memory.py` runs each point in a separate process and measures by how much
its resident memory peaks above what it held before the pass, forward only and forward with
backward. The model has one small layer, so the head dominates: a naive implementation holds tokens
× vocabulary.
"""

import argparse
import math
import subprocess
import sys
from itertools import product
from pathlib import Path

import common
import numpy as np
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from refblend.workers.layout import SHARED_ATTENTION, pad_batch
from refblend.workers.networks import PolicyNetwork
from refblend.workers.types import Sequences

VOCABULARIES = (581, 151_936)
TOKENS = (1024, 2048, 4096)
"""Response tokens of one micro-batch, in rows of 128."""
ROW = 128
HIDDEN = 32


def measure(vocabulary: int, tokens: int, backward: bool) -> None:
    """Print the growth of this process's peak resident memory, in MiB."""
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=vocabulary,
        hidden_size=HIDDEN,
        intermediate_size=2 * HIDDEN,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        tie_word_embeddings=True,
        attn_implementation=SHARED_ATTENTION,
    )
    policy = PolicyNetwork(Qwen2ForCausalLM(config).eval(), 1.0)
    rng = np.random.default_rng(0)

    def work(rows: int, width: int) -> None:
        draw = [rng.integers(0, vocabulary, width).tolist() for _ in range(rows)]
        sequences = Sequences([[1]] * rows, draw)
        with torch.set_grad_enabled(backward):
            log_probs, entropy = policy(pad_batch(sequences, range(rows), torch.device("cpu")))
            if backward:
                (log_probs.sum() + entropy.sum()).backward()

    for parameter in policy.parameters():  # allocate the gradients before the pass is measured
        parameter.grad = torch.zeros_like(parameter) if backward else None
    work(1, 8)  # libraries allocate on first use
    Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten
    before = status_kib("VmRSS")
    work(tokens // ROW, ROW)
    print((status_kib("VmHWM") - before) / 1024)


def status_kib(name: str) -> int:
    """A size of this process, as the kernel tells it: VmRSS now, VmHWM at its peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(f"{name}:")).split()[1])


def point(vocabulary: int, tokens: int, backward: bool) -> float:
    """Peak growth in MiB of one point, measured in a separate process."""
    command = [sys.executable, __file__, "--point", str(vocabulary), str(tokens)]
    done = subprocess.run(
        command + ["--backward"] * backward, capture_output=True, text=True, check=True
    )
    return float(done.stdout.split()[-1])


def exponent(sizes: list[int], peaks: list[float]) -> float:
    """Slope of log peak over log size."""
    logs = [math.log(max(p, 1.0)) for p in peaks]
    return float(np.polyfit([math.log(s) for s in sizes], logs, 1)[0])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--point", nargs=2, type=int)
    parser.add_argument("--backward", action="store_true")
    arguments = parser.parse_args()
    if arguments.point:
        vocabulary, tokens = arguments.point
        measure(vocabulary, tokens, arguments.backward)
        return
    peaks = {
        backward: {(v, t): point(v, t, backward) for v, t in product(VOCABULARIES, TOKENS)}
        for backward in (False, True)
    }
    rows = []
    for backward, found in peaks.items():
        for v in VOCABULARIES:
            of_tokens = [found[v, t] for t in TOKENS]
            naive = TOKENS[-1] * v * 4 / 2**20
            slope = exponent(list(TOKENS), of_tokens)
            kind = "with backward" if backward else "forward"
            rows.append([kind, v, *(f"{p:.0f}" for p in of_tokens), f"{slope:.2f}", f"{naive:.0f}"])
    names = [f"{t} tokens" for t in TOKENS]
    common.show(
        "growth of peak memory, MiB",
        ["pass", "vocabulary", *names, "exponent in tokens", "full logits of the last"],
        rows,
    )
    largest = (VOCABULARIES[-1], TOKENS[-1])
    common.record(
        "memory",
        f"peak growth at {largest[1]} tokens × vocabulary {largest[0]}, without or with backward, "
        "as a share of one float32 copy of the logits",
        max(found[largest] for found in peaks.values()) / (math.prod(largest) * 4 / 2**20),
        0.25,
        {
            ("backward" if backward else "forward"): [
                {"vocabulary": v, "tokens": t, "peak_growth_mib": p} for (v, t), p in found.items()
            ]
            for backward, found in peaks.items()
        },
    )


if __name__ == "__main__":
    main()
