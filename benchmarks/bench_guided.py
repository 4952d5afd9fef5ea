"""Guided against free decoding of one judge: seconds, tokens and valid scores.

`python benchmarks/bench_guided.py` judges 64 worked answers with the embedded judge of scale cpu
(`models/cpu/judge_medium`) on the transformers engine; `--judge`, `--templates` and `--engine` name
others. The two ways are timed in turn on one engine, with the shared prefix in the cache where it
has one. `bench_real_scoring.py` compares them at 135M parameters on vLLM.
"""

import argparse
from pathlib import Path

import common

from refblend.data.tokenizer import load_tokenizer
from refblend.embedded.problems import iterate_problems
from refblend.rollout.base import EngineOptions
from refblend.rollout.factory import start_engine
from refblend.scoring.clipping import ScoringLimits
from refblend.scoring.generative import GenerativeJudge, JudgeOptions, guided_regex
from refblend.scoring.result import score_metrics
from refblend.scoring.templates import load_templates

NEW_TOKENS = 32
REPEATS = 3


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--judge", type=Path, default=common.ROOT / "models/cpu/judge_medium")
    parser.add_argument("--templates", default="embedded")
    parser.add_argument("--engine", choices=("vllm", "hf"), default="hf")
    parser.add_argument("--responses", type=int, default=64)
    given = parser.parse_args()
    if not (given.judge / "config.json").is_file():
        raise SystemExit(f"Not run: {given.judge} is not there; `make bench` unpacks the default")
    options = EngineOptions(str(given.judge), kv_cache_memory_mb=512)
    engine = start_engine(given.engine, options)
    tokenizer = load_tokenizer(given.judge)
    limits = ScoringLimits(engine.max_model_len, max_new_tokens=NEW_TOKENS)
    ways = {"free": None, "guided": guided_regex(NEW_TOKENS)}
    judges = {
        way: GenerativeJudge(
            engine,
            tokenizer,
            load_templates(given.templates),
            JudgeOptions(limits, score_mode="expected", regex=regex),
        )
        for way, regex in ways.items()
    }
    found = iterate_problems("train", 7)
    problems = [p for _, p in zip(range(given.responses + 1), found, strict=False)]
    other = problems.pop()
    questions, responses = [p.question for p in problems], [p.solution for p in problems]
    facts = {}

    def score(way: str) -> None:
        results = judges[way].score(questions, responses)
        call, valid_rate = (
            judges[way].last_call,
            score_metrics(results)["actor/ref_quality/valid_rate"],
        )
        facts[way] = {"new_tokens": call.new_tokens / call.requests, "valid_rate": valid_rate}

    def warm_the_prefix() -> None:
        engine.reset_prefix_cache()
        judges["guided"].score([other.question], [other.solution])

    cases = {way: lambda way=way: score(way) for way in ways}
    times = common.alternate(cases, REPEATS, before=warm_the_prefix)
    engine.shutdown()
    rows = [[way, min(times[way]), *facts[way].values()] for way in ways]
    common.show(
        f"{given.responses} judgements by {given.judge.name} on {given.engine}",
        ["decoding", "seconds", "tokens per answer", "valid"],
        rows,
    )
    per_token = [[t / facts[way]["new_tokens"] for t in times[way]] for way in ("guided", "free")]
    common.record(
        "guided",
        "seconds per token of guided decoding, as a ratio to free",
        common.ratio(*per_token),
        1.15,
        {"seconds": times, "answers": facts, "judge": given.judge.name, "engine": given.engine},
    )


if __name__ == "__main__":
    main()
