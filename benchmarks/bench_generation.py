"""Generation in a run, against bare vLLM at both sizes and against a loop in torch.

`python benchmarks/bench_generation.py` samples the batches of scale cpu and of scale smollm by
:meth:`VllmEngine.generate` and by ``vllm.LLM.generate`` with the same prompts, seeds and lengths,
in turn on one engine, and at the embedded size by the transformers engine too, in a process of its
own: one padded batch with a key-value cache, which is what can be had without vLLM. All answers
have a given length, so that every way makes as many tokens.
"""

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import common
import real_size

from refblend.rollout.base import EngineOptions, GenerationRequest
from refblend.rollout.factory import start_engine
from refblend.rollout.vllm_engine import VllmEngine
from refblend.workers.types import Sequences

GOAL = 0.97
REPEATS = {"embedded": 4, "real": 2}


def torch_loop(options: EngineOptions, requests: list[GenerationRequest]) -> common.Cases:
    """The transformers engine."""
    loop = start_engine("hf", options)
    return {"torch loop": lambda: loop.generate(requests)}


def measure(path: Path, dtype: Any, sequences: Sequences, size: str) -> dict[str, Any]:
    """Seconds of each way, and response tokens."""
    from vllm import SamplingParams
    from vllm.inputs import TokensPrompt
    from vllm.sampling_params import RequestOutputKind

    options = EngineOptions(str(path), 256, dtype=dtype, kv_cache_memory_mb=256)
    engine = VllmEngine(options)
    lengths = sequences.response_lengths
    requests = [
        GenerationRequest(prompt, length, seed=i, ignore_eos=True)
        for i, (prompt, length) in enumerate(zip(sequences.prompt_ids, lengths, strict=True))
    ]
    prompts = [TokensPrompt(prompt_token_ids=list(r.prompt_ids)) for r in requests]
    params = [
        SamplingParams(
            temperature=1.0,
            max_tokens=r.max_new_tokens,
            seed=r.seed,
            ignore_eos=True,
            logprobs=0,
            flat_logprobs=True,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        for r in requests
    ]
    cases: dict[str, Any] = {
        "refblend": lambda: engine.generate(requests),
        "vllm": lambda: engine._llm.generate(prompts, params, use_tqdm=False),
    }
    with ExitStack() as stack:
        loop = None
        if size == "embedded":
            loop = stack.enter_context(common.Apart(torch_loop, options, requests))
        times = common.alternate(cases, REPEATS[size], 1, engine.reset_prefix_cache, loop)
    engine.shutdown()
    return {
        "response_tokens": sum(lengths),
        "seconds": times,
        # Tokens are the same, so a ratio of times is the inverse ratio of speeds.
        "speed_to_vllm": {way: common.ratio(times["vllm"], times[way]) for way in times},
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder, tokenizer = Path(name), common.embedded_tokenizer()
        embedded = common.make_model(folder / "embedded", tokenizer)
        real = real_size.prepare_inputs(folder)
        found = {
            "embedded": measure(
                embedded, "float32", common.make_sequences(len(tokenizer)), "embedded"
            ),
            "real": measure(real, "bfloat16", real_size.batch(folder, real), "real"),
        }
    rows = [
        [size, way, speed]
        for size, of in found.items()
        for way, speed in of["speed_to_vllm"].items()
    ]
    common.show("response tokens a CPU second, as a ratio to vLLM", ["size", "by", "ratio"], rows)
    common.record(
        "generation",
        "response tokens a CPU second, as a ratio to bare vLLM (the smaller of both sizes)",
        min(of["speed_to_vllm"]["refblend"] for of in found.values()),
        GOAL,
        found | {"model": real_size.described(real)},
    )


if __name__ == "__main__":
    main()
