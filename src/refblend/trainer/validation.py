"""Validation: greedy and sampled responses of every validation and sanity prompt.

The seeds do not depend on the training step.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from refblend.config.actor_rollout_ref import ValKwargs
from refblend.data.dataset import PromptDataset
from refblend.rewards.result import RewardResult
from refblend.rewards.rule import RuleReward
from refblend.rollout.base import Generation, GenerationRequest
from refblend.seeding import derive_seed


@dataclass(frozen=True)
class ValidationSet:
    """Rows of one purpose: all validation files, or the sanity set."""

    dataset: PromptDataset
    limit: int | None = None
    """Use only this many rows, from the start."""
    source: str | None = None
    """Names the metrics of all rows; null: each row's own data source."""

    def __len__(self) -> int:
        size = len(self.dataset)
        return size if self.limit is None else min(self.limit, size)


def validation_requests(
    sets: Sequence[ValidationSet], kwargs: ValKwargs, max_new_tokens: int, seed: int
) -> list[GenerationRequest]:
    """For each prompt the greedy request, then ``kwargs.n`` sampled ones."""
    samples = kwargs.n if kwargs.do_sample else 0
    return [
        GenerationRequest(
            prompt_ids=part.dataset.prompt_ids[row],
            max_new_tokens=max_new_tokens,
            temperature=0.0 if sample == 0 else kwargs.temperature,
            seed=derive_seed(seed, "validation", number, row, sample),
            log_probs=False,
        )
        for number, part in enumerate(sets)
        for row in range(len(part))
        for sample in range(samples + 1)
    ]


def validation_metrics(
    sets: Sequence[ValidationSet],
    kwargs: ValKwargs,
    generations: Sequence[Generation],
    decode: Callable[[list[int]], str],
    reward: RuleReward,
) -> dict[str, float]:
    """Means by data source.

    ``val-core/<source>/{reward,acc}/mean@1`` are greedy; ``val-aux`` has both answer extractions,
    means over N samples, ``acc/best@N`` (pass@N) and the length.
    """
    width = 1 + (kwargs.n if kwargs.do_sample else 0)
    rows = [(part.source, part.dataset.rows[i]) for part in sets for i in range(len(part))]
    every = reward.of_rows(
        [row for _, row in rows for _ in range(width)],
        [decode(answer.token_ids) for answer in generations],
    )
    metrics: dict[str, list[float]] = defaultdict(list)
    for number, (source, row) in enumerate(rows):
        own = slice(number * width, (number + 1) * width)
        answers, results = generations[own], every[own]
        for name, value in _row_metrics(results, answers, reward.method).items():
            metrics[name.format(source=source or row.data_source)].append(value)
    return {name: sum(values) / len(values) for name, values in sorted(metrics.items())}


def _row_metrics(
    results: Sequence[RewardResult], answers: Sequence[Generation], method: str
) -> dict[str, float]:
    greedy, sampled = results[0], results[1:]
    core, aux = "val-core/{source}", "val-aux/{source}"
    metrics = {
        f"{core}/reward/mean@1": greedy.score,
        f"{core}/acc/mean@1": greedy.accuracy(method),
        f"{aux}/acc_strict/mean@1": greedy.acc_strict,
        f"{aux}/acc_flexible/mean@1": greedy.acc_flexible,
        f"{aux}/response_length/mean@1": float(len(answers[0].token_ids)),
    }
    if sampled:
        n = len(sampled)
        accuracies = [r.accuracy(method) for r in sampled]
        metrics |= {
            f"{aux}/reward/mean@{n}": sum(r.score for r in sampled) / n,
            f"{aux}/acc/mean@{n}": sum(accuracies) / n,
            f"{aux}/acc/best@{n}": max(accuracies),
        }
    return metrics
