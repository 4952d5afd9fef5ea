"""The scoring stage compared with bare ``vllm.LLM.generate`` on the same judge prompts.

`python benchmarks/bench_scoring.py` judges 256 responses with a random judge of the embedded
shape: :meth:`GenerativeJudge.score` (prompts, engine call, parsing) against the engine alone,
few-shot and compact prompts; and again without prefix caching, in another process. As in a run,
before each call the prefix cache holds the prompt's shared prefix and no responses.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import common

from refblend.embedded.problems import iterate_problems
from refblend.embedded.recipe import load_recipe
from refblend.rollout.base import EngineOptions
from refblend.rollout.vllm_engine import VllmEngine
from refblend.scoring.clipping import ScoringLimits
from refblend.scoring.generative import GenerativeJudge, JudgeOptions
from refblend.scoring.templates import load_templates

RESPONSES = 256
NEW_TOKENS = 28
"""What a trained judge writes on average (a random one never stops by itself)."""
MODEL_LENGTH = 768
REPEATS = 4


def measure(caching: bool) -> dict[str, list[float]]:
    """Seconds of each variant, in turn."""
    from vllm.inputs import TokensPrompt

    recipe = load_recipe(common.ROOT / "params/embedded/cpu.yaml")
    problems = iterate_problems("train", 7, recipe.data.difficulty, 0.0)
    chosen = [p for _, p in zip(range(RESPONSES + 1), problems, strict=False)]
    other = chosen.pop()
    questions, responses = [p.question for p in chosen], [p.solution for p in chosen]
    tokenizer = common.embedded_tokenizer()
    cases: dict[str, Any] = {}
    judges: list[GenerativeJudge] = []
    with tempfile.TemporaryDirectory() as folder:
        path = common.make_model(Path(folder) / "judge", tokenizer)
        options = EngineOptions(
            str(path), MODEL_LENGTH, kv_cache_memory_mb=256, enable_prefix_caching=caching
        )
        engine = VllmEngine(options)
        params = common.judge_sampling(engine, NEW_TOKENS)
        for form in ("few-shot", "compact"):
            limits = ScoringLimits(
                MODEL_LENGTH, tokenizer.model_max_length, max_new_tokens=NEW_TOKENS
            )
            judge = GenerativeJudge(
                engine,
                tokenizer,
                load_templates("embedded"),
                JudgeOptions(
                    limits,
                    score_mode="expected",
                    form="full" if form == "few-shot" else "compact",
                ),
            )
            judges.append(judge)
            prompts = [
                TokensPrompt(prompt_token_ids=list(judge.plan(q, r).token_ids))
                for q, r in zip(questions, responses, strict=True)
            ]
            cases[f"{form}, stage"] = lambda j=judge: j.score(questions, responses)
            cases[f"{form}, bare"] = lambda p=prompts: engine._llm.generate(
                p, params, use_tqdm=False
            )

        def warm_the_prefix() -> None:
            engine.reset_prefix_cache()
            for judge in judges:
                judge.score([other.question], [other.solution])

        times = common.alternate(cases, REPEATS, before=warm_the_prefix)
        engine.shutdown()
    return times


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--without-caching", action="store_true")
    if parser.parse_args().without_caching:
        print("\n" + json.dumps(measure(caching=False)))
        return
    times = measure(caching=True)
    command = [sys.executable, __file__, "--without-caching"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    uncached = json.loads(done.stdout.splitlines()[-1])
    ratios = {
        "few-shot: stage / bare": common.ratio(times["few-shot, stage"], times["few-shot, bare"]),
        "compact: stage / bare": common.ratio(times["compact, stage"], times["compact, bare"]),
        "stage: few-shot / compact": common.ratio(
            times["few-shot, stage"], times["compact, stage"]
        ),
        "few-shot stage: caching off / on": common.ratio(
            uncached["few-shot, stage"], times["few-shot, stage"]
        ),
        "compact stage: caching off / on": common.ratio(
            uncached["compact, stage"], times["compact, stage"]
        ),
    }
    common.show("scoring 256 responses", ["what", "ratio"], [list(r) for r in ratios.items()])
    common.record(
        "scoring",
        "scoring stage with few-shot prompts, as a ratio to bare generation",
        ratios["few-shot: stage / bare"],
        1.15,
        {"ratios": ratios, "seconds": times, "seconds_without_caching": uncached},
    )


if __name__ == "__main__":
    main()
