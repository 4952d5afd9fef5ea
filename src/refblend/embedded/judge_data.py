"""The pairs of problem and response on which the judges are trained and measured.

They are sampled from both warm starts (what a judge sees in training), gold solutions, and
corruptions, so that a judge also knows answers that the actor does not write yet.
"""

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from refblend.data.schema import read_records
from refblend.data.tokenizer import encode_chat
from refblend.embedded.demonstrations import corrupt_steps, rambling_solution
from refblend.embedded.generation import generate
from refblend.embedded.judge_format import label_of, stated_answer
from refblend.embedded.prepare import sum_problem, sum_rows
from refblend.embedded.problems import Problem, Split, Step, generate_problems, render_solution
from refblend.embedded.recipe import EmbeddedConfig
from refblend.errors import DataError
from refblend.files import atomic_path
from refblend.progress import step_progress
from refblend.seeding import derive_generator, derive_seed

Source = Literal["actor", "actor_clean", "gold", "corruption"]


@dataclass(frozen=True)
class Pair:
    """A problem with a response; ``label`` is the score of a perfect judge."""

    problem: Problem
    response: str
    source: str

    @property
    def label(self) -> float:
        """In [0.05, 1], see :func:`refblend.embedded.judge_format.label_of`."""
        return label_of(self.problem, self.response)

    @property
    def right(self) -> bool:
        """Whether the stated answer is the problem's."""
        answer = stated_answer(self.response)
        return answer is not None and int(answer) == self.problem.answer


def build_pairs(
    recipe: EmbeddedConfig, split: Split, tokenizer: Any, actors: dict[str, Any]
) -> list[Pair]:
    """Training pairs (``train``) or held-out sampled pairs (``test``) of a recipe.

    ``actors`` maps ``actor_clean`` and ``actor``, which alone answers in the test split, to models.
    """
    settings = recipe.judge_data
    rng = derive_generator(settings.seed, "pairs", split)
    count = settings.problems if split == "train" else settings.test_problems
    if recipe.pretrained is not None:
        problems = [sum_problem(row) for row in sum_rows(recipe)[split][:count]]
    else:
        problems = generate_problems(
            split,
            count,
            derive_seed(settings.seed, "pairs", split),
            recipe.data.difficulty,
            recipe.data.long_share,
        )

    def sampled(source: Source, each: int) -> list[Pair]:
        asked = [problem for problem in problems for _ in range(each)]
        prompts = [encode_chat(tokenizer, [{"role": "user", "content": p.prompt}]) for p in asked]
        outputs = generate(
            actors[source],
            prompts,
            tokenizer.eos_token_id,
            settings.max_response_tokens,
            temperature=1.0,
            seed=derive_seed(settings.seed, "responses", source, len(prompts)),
            progress=step_progress(f"responses of {source}", len(prompts)),
        )
        texts = [tokenizer.decode(o.token_ids, skip_special_tokens=True) for o in outputs]
        return [Pair(p, text, source) for p, text in zip(asked, texts, strict=True)]

    if split != "train":
        return sampled("actor", recipe.evaluation.judge_samples)
    half = settings.samples_per_problem // 2
    pairs = sampled("actor", settings.samples_per_problem - half)
    if half:
        pairs += sampled("actor_clean", half)
    for problem in problems:
        if rng.random() < settings.gold_per_problem:
            pairs.append(Pair(problem, problem.solution, "gold"))
        for _ in range(settings.corruptions_per_problem):
            pairs.append(Pair(problem, corrupt_response(rng, problem), "corruption"))
    return pairs


def corrupt_response(rng: np.random.Generator, problem: Problem) -> str:
    """A response that differs from the gold solution in one of eight ways."""
    kind = int(rng.integers(8))
    equations = [step.equation for step in problem.steps]
    wrong = problem.answer + (1 if rng.random() < 0.5 else -1) * int(rng.integers(1, 6))
    wrong = wrong if wrong >= 0 else problem.answer + 1
    if kind == 0:  # right steps, wrong final answer
        return render_solution(equations, wrong)
    if kind in (1, 4):  # no steps; a wrong or the right answer
        return render_solution([], wrong if kind == 1 else problem.answer)
    if kind in (2, 3):  # wrong steps; their own or the right answer
        chain = corrupt_steps(rng, problem.steps, 0.6)
        answer = chain[-1].result if kind == 2 else problem.answer
        return render_solution([step.equation for step in chain], answer)
    if kind == 5:  # the gold solution among filler
        return rambling_solution(rng, problem, 0.0, 0.5)
    if kind == 6:  # a step left out
        del equations[int(rng.integers(len(equations)))]
        return render_solution(equations, problem.answer if rng.random() < 0.5 else wrong)
    # no final answer: empty, cut off, the question, or a repetition
    solution = problem.solution.split("####")[0].rstrip()
    repeated = " ".join([solution] * int(rng.integers(2, 5)))
    return ["", solution, problem.question, repeated][int(rng.integers(4))]


def write_pairs(path: str | os.PathLike[str], pairs: Sequence[Pair]) -> None:
    """Write pairs as parquet, atomically; label and correctness are included for readers."""
    records = [
        {
            "question": pair.problem.question,
            "steps": [asdict(step) for step in pair.problem.steps],
            "template": pair.problem.key,
            "long": pair.problem.long,
            "response": pair.response,
            "source": pair.source,
            "label": pair.label,
            "right": pair.right,
        }
        for pair in pairs
    ]
    with atomic_path(path) as temporary:
        pq.write_table(pa.Table.from_pylist(records), temporary)


def read_pairs(path: str | os.PathLike[str]) -> list[Pair]:
    """Read a file of :func:`write_pairs`; DataError if it is no such file."""
    pairs = []
    for number, record in enumerate(read_records(path)):
        try:
            steps = tuple(Step(**step) for step in record["steps"])
            problem = Problem(record["question"], steps, record["template"], record["long"])
            pairs.append(Pair(problem, record["response"], record["source"]))
        except (KeyError, TypeError) as error:
            raise DataError(
                f"{path} row {number} is not a judge pair ({error})",
                "Write the file again with `refblend models judge-data`.",
            ) from error
    return pairs
