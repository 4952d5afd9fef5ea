"""The http judge before a real ``vllm serve``: the same scores as from the engine in process."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from refblend.config.algorithm import RefQualityScoreConfig
from refblend.embedded.problems import iterate_problems
from refblend.errors import RefblendError
from refblend.scoring.judge import check_judge, start_judge
from refblend.scoring.result import JudgeResult

pytestmark = [pytest.mark.engine, pytest.mark.slow]

PATIENCE = 300.0
"""Seconds that the server may take to start."""
OURS = ("VLLM_", "OMP_", "MKL_", "OPENBLAS_")


@pytest.fixture(scope="module")
def served(tiny_model_dir, tiny_tokenizer_dir, tmp_path_factory) -> Iterator[str]:
    """Base address of a server as a user starts one: its own defaults, engine in another process.

    The tokenizer is named: beside a config.json, transformers takes the class of the model's type
    (Qwen2Tokenizer), which cuts the same text into other tokens than the judge learned.

    This process's settings for engines do not reach it: with VLLM_ENABLE_V1_MULTIPROCESSING=0, as
    our workers have it, the server would not start.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path_factory.mktemp("server") / "log.txt"
    environment = {k: v for k, v in os.environ.items() if not k.startswith(OURS)}
    quiet = {"VLLM_NO_USAGE_STATS": "1", "VLLM_DO_NOT_TRACK": "1", "OMP_NUM_THREADS": "1"}
    command = [
        # The module behind `vllm serve`, which needs a distribution named vllm; CPU builds differ.
        *(sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model"),
        *(str(tiny_model_dir), "--host", "127.0.0.1", "--port", str(port)),
        *("--served-model-name", "judge", "--tokenizer", str(tiny_tokenizer_dir)),
        *("--dtype", "float32", "--kv-cache-memory-bytes", str(2**26)),
    ]
    with open(log, "wb") as stream:
        server = subprocess.Popen(
            command, stdout=stream, stderr=subprocess.STDOUT, env=environment | quiet
        )
    try:
        url = f"http://127.0.0.1:{port}/v1"
        started = time.monotonic()
        while True:
            assert server.poll() is None, log.read_text()[-3000:]
            assert time.monotonic() - started < PATIENCE, log.read_text()[-3000:]
            try:
                check_judge(judge_config(tiny_model_dir, url))
            except RefblendError:
                time.sleep(1)
            else:
                break
        yield url
    finally:
        server.terminate()
        server.wait(30)


def judge_config(model: Path, url: str | None = None, **scoring: Any) -> RefQualityScoreConfig:
    """A judge in process, or the same one behind ``url``."""
    common = {"templates": "embedded", "max_new_tokens": 32, "fallback_max_length": 2048}
    http = {"base_url": url, "model": "judge", "max_retries": 0, "max_prompt_chars": 10**6}
    where = (
        {"kind": "http", "http": http}
        if url
        else {"kind": "vllm", "model_path": str(model), "kv_cache_memory_mb": 64}
    )
    return RefQualityScoreConfig.model_validate({"scoring": common | where | scoring})


WAYS = [
    {"decoding": decoding, "score_mode": mode}
    for decoding in ("free", "guided")
    for mode in ("text", "expected")
]


@pytest.fixture(scope="module")
def both(served: str, tiny_model_dir: Path) -> list[tuple[list[JudgeResult], list[JudgeResult]]]:
    """For each of ``WAYS``: results behind HTTP and in process, of the same samples."""
    problems = [p for p, _ in zip(iterate_problems("train", 1), range(24), strict=False)]
    # A server encodes the message as a whole: a sign at the end of the question would merge with
    # the quote's, which in process is encoded apart.
    samples = [p.question.rstrip("?.") for p in problems], [p.solution for p in problems]
    with start_judge(judge_config(tiny_model_dir)) as judge:
        results = []
        for way in WAYS:
            remote = start_judge(judge_config(tiny_model_dir, served, **way)).score(*samples)
            results.append((remote, judge.asked(**way).score(*samples)))
    return results


def test_prompts_have_the_same_tokens(both) -> None:
    for remote, local in both:
        assert [r.prompt_tokens for r in remote] == [r.prompt_tokens for r in local]


def test_texts_and_scores_are_equal(both) -> None:
    for remote, local in both:
        assert [(r.valid, r.path) for r in remote] == [(r.valid, r.path) for r in local]
        assert [r.score for r in remote] == pytest.approx([r.score for r in local], abs=1e-4)
        # Bytes that are no text are shown in another way when they are decoded one by one.
        texts = [(r.raw, here.raw) for r, here in zip(remote, local, strict=True)]
        assert all(a == b for a, b in texts if "�" not in a + b)


def test_a_guided_judge_gives_scores_worth_comparing(both) -> None:
    """The model is random: without a guide it writes no score, with one it always does."""
    _, _, text, expected = (remote for remote, _ in both)
    assert all(r.valid for r in (*text, *expected))
    assert len({r.score for r in text}) > 1
    between = [e.score for t, e in zip(text, expected, strict=True) if e.score != t.score]
    assert len(set(between)) > 10, "the log-probabilities of the server count"
