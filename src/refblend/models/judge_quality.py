"""How good an embedded judge is on held-out pairs, with few-shot and with compact prompts.

AUC (Mann-Whitney, ties count half) over all and over worked answers, once for the greedy text
score and once for the expected value over the score digits; ECE with ten equal bins; share of
valid scores at several limits of new tokens.
"""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from refblend.models.generation import Output, generate
from refblend.models.judge_data import Pair
from refblend.models.progress import step_progress
from refblend.ppo.metrics import expected_calibration_error, roc_auc
from refblend.scoring.expected import expected_score
from refblend.scoring.parsing import parse_score
from refblend.scoring.prompts import encoder_for
from refblend.scoring.templates import ScoringTemplates

TOP_LOGPROBS = 20
_OWN_RESULT = re.compile(r"=(\d+):")


@dataclass(frozen=True)
class JudgeQuality:
    """Measurements of a judge on held-out pairs with one form of prompt.

    ``valid`` maps a limit of new tokens to the share of outputs whose box is complete within it.
    ``own_answer_right`` is the share of outputs whose own result is the problem's answer.
    AUCs are None where right or wrong answers are missing. ``reliability`` has, for each tenth of
    the expected scores that occurs, the mean score, the share of right answers and the count.
    """

    pairs: int
    few_shot: bool
    right_share: float
    worked_share: float
    valid: dict[str, float]
    auc: float | None
    auc_worked: float | None
    auc_expected: float | None
    auc_expected_worked: float | None
    ece: float | None
    ece_expected: float | None
    score_mean: float
    score_std: float
    distinct_scores: int
    mean_absolute_error: float
    own_answer_right: float
    tokens: float
    reliability: list[dict[str, float]]

    def as_dict(self) -> dict[str, Any]:
        """For the JSON report."""
        return asdict(self)


def judge_pairs(
    model: Any,
    tokenizer: Any,
    templates: ScoringTemplates,
    pairs: Sequence[Pair],
    few_shot: bool,
    max_new_tokens: int,
) -> tuple[list[Output], list[list[dict[int, float]]]]:
    """The judge's greedy outputs and the most probable tokens at each of their positions."""
    encoder = encoder_for(tokenizer, templates)
    prompts = [encoder.encode(p.problem.question, p.response, few_shot).ids for p in pairs]
    likely: list[list[dict[int, float]]] = [[] for _ in pairs]

    def observe(rows: list[int], _: int, log_probs: torch.Tensor, __: torch.Tensor) -> None:
        top = log_probs.topk(TOP_LOGPROBS, dim=-1)
        for row, ids, values in zip(rows, top.indices.tolist(), top.values.tolist(), strict=True):
            likely[row].append(dict(zip(ids, values, strict=True)))

    with step_progress("judge scores", 0, len(prompts)) as show:
        outputs = generate(
            model,
            prompts,
            max_new_tokens,
            tokenizer.eos_token_id,
            tokenizer.pad_token_id,
            batch_size=128,
            observer=observe,
            progress=lambda done: show(done, "few-shot" if few_shot else "compact"),
        )
    return outputs, likely


def measure_judge(
    model: Any,
    tokenizer: Any,
    templates: ScoringTemplates,
    pairs: Sequence[Pair],
    few_shot: bool,
    max_new_tokens: int,
    invalid_score: float = 0.5,
) -> JudgeQuality:
    """Score every pair greedily; invalid outputs count as ``invalid_score``."""
    outputs, likely = judge_pairs(model, tokenizer, templates, pairs, few_shot, max_new_tokens)
    right = [pair.right for pair in pairs]
    worked = [pair.worked for pair in pairs]
    scores, expected, own_right = [], [], []
    valid = {str(limit): 0 for limit in (32, 64, 96) if limit <= max_new_tokens}
    valid.setdefault(str(max_new_tokens), 0)
    for pair, output, top in zip(pairs, outputs, likely, strict=True):
        pieces = [tokenizer.decode([i], skip_special_tokens=True) for i in output.token_ids]
        for limit in valid:
            valid[limit] += parse_score("".join(pieces[: int(limit)])).valid
        parsed = parse_score("".join(pieces))
        scores.append(parsed.score if parsed.valid else invalid_score)
        value = None
        if parsed.valid:
            value = expected_score(pieces, top, lambda i: tokenizer.decode([i]), parsed.score)
        expected.append(scores[-1] if value is None else value)
        own = _OWN_RESULT.search("".join(pieces))
        own_right.append(own is not None and int(own.group(1)) == pair.problem.answer)
    labels = np.array([pair.label for pair in pairs])
    chosen = [place for place, shown in enumerate(worked) if shown]
    return JudgeQuality(
        pairs=len(pairs),
        few_shot=few_shot,
        right_share=float(np.mean(right)),
        worked_share=float(np.mean(worked)),
        valid={limit: count / len(pairs) for limit, count in valid.items()},
        auc=roc_auc(scores, right),
        auc_worked=roc_auc([scores[i] for i in chosen], [right[i] for i in chosen]),
        auc_expected=roc_auc(expected, right),
        auc_expected_worked=roc_auc([expected[i] for i in chosen], [right[i] for i in chosen]),
        ece=expected_calibration_error(scores, right),
        ece_expected=expected_calibration_error(expected, right),
        score_mean=float(np.mean(scores)),
        score_std=float(np.std(scores)),
        distinct_scores=len(set(scores)),
        mean_absolute_error=float(np.abs(np.array(scores) - labels).mean()),
        own_answer_right=float(np.mean(own_right)),
        tokens=float(np.mean([len(output.token_ids) for output in outputs])),
        reliability=_reliability(np.array(expected), np.array(right, dtype=float)),
    )


def _reliability(
    scores: npt.NDArray[np.float64], right: npt.NDArray[np.float64], bins: int = 10
) -> list[dict[str, float]]:
    which = np.clip((scores * bins).astype(int), 0, bins - 1)
    return [
        {
            "score": float(scores[which == number].mean()),
            "accuracy": float(right[which == number].mean()),
            "count": int((which == number).sum()),
        }
        for number in np.unique(which)
    ]
