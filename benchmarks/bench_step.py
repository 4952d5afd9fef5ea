"""A training step compared with the sum of its bare parts on the same inputs.

`python benchmarks/bench_step.py` runs `refblend train` at scale cpu with the actor of the committed
runs, a random judge and a learning rate of 0, so that weights and samples can be reproduced, and
then the bare parts:
``vllm.LLM.generate`` with the same prompts and seeds, log-probs with entropy, forward,
backward and AdamW on the same tokens, and ``generate`` with the same judge prompts. Each round
takes another step's inputs: asked for one step again and again, the engines would reuse kernels
that they have just compiled for its sizes, as no run can. The engines return what the run needs,
the log-probs of the sampled tokens and the judge's alternatives; the cost of tokens alone is
measured too. The networks have a process of their own, as in the run
(:class:`common.Apart`). Both sides are CPU seconds (all processes of the run, Ray's included); the
networks are measured in the shared layout, so that the layout's gain does not hide overhead, and in
the plain one. The run's judge works before the log-prob passes
(``scoring.overlap=false``): running it concurrently saves wall time, but two
busy cores slow each other down, which the bare parts, one after another, do not show.
"""

import itertools
import statistics
import tempfile
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

import common
import runs
import torch

from refblend.config import RefblendConfig, load_config
from refblend.rollout.factory import start_rollout
from refblend.rollout.vllm_engine import VllmEngine
from refblend.scoring.generative import GenerativeJudge
from refblend.scoring.judge import start_judge
from refblend.seeding import derive_seed
from refblend.trainer.datasets import RunData, load_run_data
from refblend.workers import batching, distributed
from refblend.workers.layout import pad_batch
from refblend.workers.networks import PolicyNetwork, load_policy
from refblend.workers.types import Sequences

STEPS = 10
Inputs = TypeVar("Inputs")


def in_turn(work: Callable[[Inputs], object], inputs: Iterable[Inputs]) -> Callable[[], object]:
    """``work`` on the next of the inputs at each call, and on the first again after the last."""
    turns = itertools.cycle(inputs)
    return lambda: work(next(turns))


def adamw(policy: PolicyNetwork) -> torch.optim.Optimizer:
    """The optimiser, which keeps its moments between steps as the run's does."""
    return torch.optim.AdamW(policy.parameters(), lr=0.0, fused=True)


def optimise(
    policy: PolicyNetwork,
    optimiser: torch.optim.Optimizer,
    sequences: Sequences,
    config: RefblendConfig,
) -> None:
    """Forward, backward and AdamW of every mini-batch."""
    actor = config.actor_rollout_ref.actor
    size = (actor.ppo_mini_batch_size or 0) * config.actor_rollout_ref.rollout.n
    for rows in batching.split_mini_batches(len(sequences), size or None):
        for part in plan(policy, sequences, rows, actor.ppo_max_token_len_per_gpu):
            with distributed.precision(actor.fsdp_config):
                found, _ = policy(pad_batch(sequences, part, torch.device("cpu")))
            (-found.mean()).backward()
        optimiser.step()
        optimiser.zero_grad()


@torch.no_grad()
def log_probs(policy: PolicyNetwork, sequences: Sequences, config: RefblendConfig) -> None:
    """Log-probs and entropy of every response."""
    actor = config.actor_rollout_ref.actor
    rows = range(len(sequences))
    for part in plan(policy, sequences, rows, actor.ppo_max_token_len_per_gpu):
        with distributed.precision(actor.fsdp_config):
            policy(pad_batch(sequences, part, torch.device("cpu")))


def plan(policy: PolicyNetwork, sequences: Sequences, rows: Any, budget: int) -> list[list[int]]:
    """Micro-batches for the layout that the policy was loaded for."""
    shared = policy.lm.config._attn_implementation != "sdpa"
    prompts = sequences.prompt_ids if shared else None
    return batching.plan_micro_batches(sequences.lengths, rows, 1, budget, prompts=prompts)[0]


def bare_networks(
    config: RefblendConfig, batches: Sequence[Sequences], plain: bool
) -> common.Cases:
    """The networks' parts in the shared layout; in the plain one too, with another name."""
    model = str(config.actor_rollout_ref.model.path)
    cases: dict[str, Callable[[], object]] = {}
    for shared, suffix in ((True, ""), (False, "_plain")) if plain else ((True, ""),):
        policy = load_policy(model, 1.0, shared_prefix=shared)
        optimiser = adamw(policy)
        passes = partial(log_probs, policy, config=config)
        update = partial(optimise, policy, optimiser, config=config)
        cases[f"log_probs{suffix}"] = in_turn(passes, batches)
        cases[f"update{suffix}"] = in_turn(update, batches)
    return cases


class StepInputs:
    """What the run asked its engines in one step."""

    def __init__(
        self, config: RefblendConfig, data: RunData, judge: GenerativeJudge, step: int
    ) -> None:
        from vllm.inputs import TokensPrompt

        seed = config.trainer.seed
        lines = runs.rollouts(Path(config.trainer.default_local_dir), step)
        self.prompts = [data.train.prompt_ids[line["uid"]] for line in lines]
        self.inputs = [TokensPrompt(prompt_token_ids=list(p)) for p in self.prompts]
        self.seeds = [
            derive_seed(seed, "rollout", step, line["uid"], line["sample"]) for line in lines
        ]
        self.lengths = [line["length"] for line in lines]
        plans = [judge.plan(line["question"], line["response"]) for line in lines]
        self.judged = [TokensPrompt(prompt_token_ids=list(p.token_ids)) for p in plans]


class BareEngines:
    """The run's engines, asked for its samples and scores by vLLM's own calls."""

    def __init__(self, config: RefblendConfig, steps: Sequence[int]) -> None:
        seed, path = config.trainer.seed, str(config.actor_rollout_ref.model.path)
        self.actor = cast("VllmEngine", start_rollout(config, path))
        self.judge = cast("GenerativeJudge", start_judge(config.algorithm.ref_quality_score, seed))
        self.asked = cast("VllmEngine", self.judge.engine)
        data = load_run_data(config)
        self.steps = [StepInputs(config, data, self.judge, step) for step in steps]
        self.new_tokens = config.data.max_response_length
        self.ignore_eos = config.actor_rollout_ref.rollout.ignore_eos

    def forget(self) -> None:
        """A step's weights and responses are new: the judge has cached only its shared prefix."""
        self.actor.reset_prefix_cache()
        self.asked.reset_prefix_cache()
        self._score(self.steps[0].judged[:1], log_probs=False)

    def generate(self, step: StepInputs, log_probs: bool = True) -> list[list[int]]:
        """The step's responses, with the log-probs of their tokens."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        params = [
            SamplingParams(
                temperature=1.0,
                max_tokens=self.new_tokens,
                seed=seed,
                stop_token_ids=[] if self.ignore_eos else self.actor._stop_ids,
                ignore_eos=self.ignore_eos,
                logprobs=0 if log_probs else None,
                flat_logprobs=True,
                detokenize=False,
                output_kind=RequestOutputKind.FINAL_ONLY,
            )
            for seed in step.seeds
        ]
        outputs = self.actor._llm.generate(step.inputs, params, use_tqdm=False)
        return [list(o.outputs[0].token_ids) for o in outputs]

    def score(self, step: StepInputs, log_probs: bool = True) -> None:
        """The judge's answers, with the alternatives of each token."""
        self._score(step.judged, log_probs)

    def _score(self, judged: Sequence[Any], log_probs: bool) -> None:
        tokens = self.judge.config.scoring.max_new_tokens
        params = common.judge_sampling(self.asked, tokens, self.judge.regex, log_probs)
        self.asked._llm.generate(judged, params, use_tqdm=False)

    def sequences(self, step: StepInputs) -> Sequences:
        """The step's responses, made again."""
        found = Sequences(step.prompts, self.generate(step))
        if found.response_lengths != step.lengths:
            raise SystemExit("the bare engine did not repeat the run's samples")
        return found


def measure_parts(
    config: RefblendConfig, total: int, other_ways: bool = True
) -> dict[str, list[float]]:
    """CPU seconds of every bare part on the inputs of each measured step of the run.

    Those of its other steps warm up. ``other_ways``: also engines that return tokens only, and
    networks in the plain layout.
    """
    measured = runs.measured_steps(total)
    others = [step for step in range(1, total + 1) if step not in measured]
    engines = BareEngines(config, [*others, *measured])
    batches = [engines.sequences(step) for step in engines.steps]
    asked: dict[str, Callable[[], object]] = {
        "generate": in_turn(engines.generate, engines.steps),
        "judge": in_turn(engines.score, engines.steps),
    }
    if other_ways:
        generate = partial(engines.generate, log_probs=False)
        score = partial(engines.score, log_probs=False)
        asked["generate_tokens_only"] = in_turn(generate, engines.steps)
        asked["judge_tokens_only"] = in_turn(score, engines.steps)
    with common.Apart(bare_networks, config, batches, other_ways) as networks:
        times = common.alternate(asked, len(measured), len(others), engines.forget, networks)
    tokens = [float(sum(batch.lengths)) for batch in batches[len(others) :]]
    return times | {"tokens": tokens}


BARE = ("generate", "judge", "log_probs", "update")
OTHER_WAYS = {
    "plain_parts": ("generate", "judge", "log_probs_plain", "update_plain"),
    "engines_without_log_probs": (
        "generate_tokens_only",
        "judge_tokens_only",
        "log_probs",
        "update",
    ),
}


def compare(
    name: str,
    goal: float,
    steps: Sequence[dict[str, float]],
    lines: Sequence[dict[str, Any]],
    parts: dict[str, list[float]],
    **more: Any,
) -> None:
    """Show and record the steps beside their parts; ``more`` goes to the record."""
    medians = {k: statistics.median(v) for k, v in parts.items()}
    bare = sum(medians[part] for part in BARE)
    step = statistics.median(sum(spent.values()) for spent in steps)
    other_ways = {
        f"ratio_to_{way}": step / sum(medians[part] for part in own)
        for way, own in OTHER_WAYS.items()
        if medians.keys() >= set(own)
    }
    rows = [[part, value / bare] for part, value in medians.items() if part != "tokens"]
    for process in sorted({process for spent in steps for process in spent}):
        spent = statistics.median(s.get(process, 0.0) for s in steps)
        if spent > 0.005 * bare:
            rows += [[f"of the step: {process}", spent / bare]]
    rows += [["training step", step / bare]]
    rows += [[f"the step's {what}", value] for what, value in other_ways.items()]
    common.show("CPU time as a ratio to the sum of the bare parts", ["what", "ratio"], rows)
    timings = {
        key: statistics.median(line[key] for line in lines)
        for key in lines[0]
        if key.startswith("timing_s/")
    }
    common.record(
        name,
        "CPU time of a training step as a ratio to its bare parts",
        step / bare,
        goal,
        {
            "step_cpu_seconds": steps,
            "parts_cpu_seconds": parts,
            "step_wall_seconds": timings,
            **other_ways,
            **more,
        },
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        common.prepare_inputs(folder)
        settings = runs.overrides(folder, STEPS)
        steps, lines = runs.run_training(folder / "run", settings, STEPS)
        parts = measure_parts(load_config(common.CONFIGS, settings), STEPS)
    compare("step", 1.10, steps, lines, parts)


if __name__ == "__main__":
    main()
