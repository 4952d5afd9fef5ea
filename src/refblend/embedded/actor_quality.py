"""How good the embedded actor is: accuracies, entropy as the blend averages it, lengths, equations.

pass@k is the share of problems that one of the k samples solves.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from refblend.data.equations import equations_true
from refblend.data.schema import PromptRow
from refblend.data.tokenizer import encode_chat
from refblend.embedded.generation import Output, generate
from refblend.embedded.judge_format import stated_answer
from refblend.errors import DataError
from refblend.progress import step_progress
from refblend.seeding import derive_seed


def measure_actor(
    model: Any,
    tokenizer: Any,
    rows: Sequence[PromptRow],
    samples: int,
    max_new_tokens: int,
) -> dict[str, Any]:
    """Answer each row greedily and ``samples`` times at temperature 1.

    The measurements by name: shares in [0, 1], entropy in nats, lengths in tokens. ``mixed_groups``
    is the share of problems from which a group-relative advantage can learn. Answers are compared
    as text: DataError for a row whose gold answer would not count.
    """
    for row in rows:
        if stated_answer(row.solution or f"#### {row.ground_truth}") != row.ground_truth:
            raise DataError(
                f"the row with index {row.index} of {row.data_source} has no whole number after "
                "#### as its gold answer, and this command reads no other ones",
                "Give data of ours. `refblend evaluate` tests runs on any data, by their reward.",
            )
    prompts = [encode_chat(tokenizer, row.messages) for row in rows]
    many = [prompt for prompt in prompts for _ in range(samples)]
    limits = tokenizer.eos_token_id, max_new_tokens
    show = step_progress("actor answers", len(prompts) + len(many))
    greedy = generate(model, prompts, *limits, progress=lambda done: show(done, "greedy"))
    sampled = generate(
        model,
        many,
        *limits,
        temperature=1.0,
        seed=derive_seed(0, "quality"),
        progress=lambda done: show(len(prompts) + done, "sampled"),
    )
    return _summarize(tokenizer, rows, greedy, sampled)


def _summarize(
    tokenizer: Any, rows: Sequence[PromptRow], greedy: Sequence[Output], sampled: Sequence[Output]
) -> dict[str, Any]:
    samples = len(sampled) // len(rows)
    repeated = [row for row in rows for _ in range(samples)]
    greedy_texts, texts = (
        [tokenizer.decode(output.token_ids, skip_special_tokens=True) for output in outputs]
        for outputs in (greedy, sampled)
    )
    right = np.array([_is_right(*one) for one in zip(greedy, greedy_texts, rows, strict=True)])
    judged = zip(sampled, texts, repeated, strict=True)
    hits = np.array([_is_right(*one) for one in judged]).reshape(len(rows), samples)
    counts = hits.sum(1)
    mixed = (counts > 0) & (counts < samples)
    steps = np.array([str(row.extra.get("n_steps", "?")) for row in rows])
    by_steps = sorted(set(steps.tolist()))
    equations = [holds for text in texts for holds in equations_true(text)]
    return {
        "problems": len(rows),
        "samples": samples,
        "greedy": float(right.mean()),
        "sampled": float(hits.mean()),
        "pass_at_k": 1.0 - float((counts == 0).mean()),
        "mixed_groups": float(mixed.mean()),
        "entropy": float(np.mean([output.mean_entropy for output in sampled])),
        "length": float(np.mean([len(output.token_ids) for output in sampled])),
        "finished": float(np.mean([output.finished for output in sampled])),
        "answered": float(np.mean([stated_answer(text) is not None for text in texts])),
        "true_equations": float(np.mean(equations)) if equations else None,
        "greedy_by_steps": {n: float(right[steps == n].mean()) for n in by_steps},
        "mixed_by_steps": {n: float(mixed[steps == n].mean()) for n in by_steps},
    }


def _is_right(output: Output, text: str, row: PromptRow) -> bool:
    return output.finished and stated_answer(text) == row.ground_truth
