"""The judge stage at 135M parameters against bare vLLM, and guided against free decoding.

`python benchmarks/bench_real_scoring.py` judges 32 worked answers with the general few-shot prompt:
:meth:`GenerativeJudge.score` (prompts, engine call, parsing) against ``vllm.LLM.generate`` with the
same prompts, free and guided, in turn on one engine. As in a run, before each call the prefix cache
holds the prompt's shared prefix and no answers. Guided answers have other lengths than free ones,
so these two are compared per token.
"""

import tempfile
from pathlib import Path
from typing import Any

import common
import real_size

from refblend.data.tokenizer import load_tokenizer
from refblend.embedded.problems import generate_problems
from refblend.rollout.base import EngineOptions
from refblend.rollout.vllm_engine import VllmEngine
from refblend.scoring.generative import GenerativeJudge
from refblend.scoring.judge import judge_config

RESPONSES = 32
NEW_TOKENS = 32
REPEATS = 2
GOAL, GUIDED_GOAL = 1.10, 1.05


def measure(path: Path) -> dict[str, Any]:
    """Seconds of each way in turn, and tokens per answer."""
    from vllm.inputs import TokensPrompt

    engine = VllmEngine(EngineOptions(str(path), dtype="bfloat16", kv_cache_memory_mb=512))
    *chosen, other = generate_problems("train", RESPONSES + 1, 7)
    questions, responses = [p.question for p in chosen], [p.solution for p in chosen]
    judges: dict[str, GenerativeJudge] = {}
    cases: dict[str, Any] = {}
    made: dict[str, float] = {}

    def stage(way: str) -> None:
        judges[way].score(questions, responses)
        made[way] = judges[way].last_call.new_tokens / RESPONSES

    for way in ("free", "guided"):
        asked = {"max_new_tokens": NEW_TOKENS, "decoding": way}
        config = judge_config(path, "vllm", "default", asked)
        judge = GenerativeJudge(engine, load_tokenizer(path), config)
        judges[way] = judge
        prompts = [
            TokensPrompt(prompt_token_ids=list(judge.plan(q, r).token_ids))
            for q, r in zip(questions, responses, strict=True)
        ]
        params = common.judge_sampling(engine, NEW_TOKENS, judge.regex)
        cases[f"{way}, stage"] = lambda way=way: stage(way)
        cases[f"{way}, bare"] = lambda given=(prompts, params): engine._llm.generate(
            *given, use_tqdm=False
        )

    def warm_the_prefix() -> None:
        engine.reset_prefix_cache()
        judges["free"].score([other.question], [other.solution])

    times = common.alternate(cases, REPEATS, before=warm_the_prefix)
    engine.shutdown()
    per_token = {w: [t / made[w] for t in times[f"{w}, stage"]] for w in made}
    return {
        "seconds": times,
        "tokens_per_answer": made,
        "stage_to_bare": {
            way: common.ratio(times[f"{way}, stage"], times[f"{way}, bare"]) for way in made
        },
        "guided_to_free_per_token": common.ratio(per_token["guided"], per_token["free"]),
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        path = real_size.model(Path(name))
        found = measure(path)
    rows = [[f"{way}: stage / bare", ratio] for way, ratio in found["stage_to_bare"].items()]
    rows += [["guided / free, per token", found["guided_to_free_per_token"]]]
    common.show(f"{RESPONSES} judgements, {real_size.described(path)}", ["what", "ratio"], rows)
    common.record(
        "real_scoring",
        "judge stage of 135M parameters, as a ratio to bare generation (the larger way)",
        max(found["stage_to_bare"].values()),
        GOAL,
        found | {"model": real_size.described(path), "goal_guided": GUIDED_GOAL},
    )


if __name__ == "__main__":
    main()
