"""The blend in TRL: a judge as a reward function, and a trainer that weighs it by the entropy.

With stock TRL, :class:`JudgeReward` is one reward function among others. With
:class:`BlendedGRPOTrainer` its weight is w, which may follow the batch's entropy, and the others'
sum R gets the rest: R' = (1 − w)·R + w·Q, before TRL normalises within the groups. Example::

    with Judge.open("models/cpu/judge_medium", engine="hf") as judge:
        trainer = BlendedGRPOTrainer(
            model="models/cpu/actor",
            reward_funcs=[correct],
            judge=JudgeReward(judge),
            strategy="constant",
            weight_params=WeightParams(max_weight=0.3),
            args=GRPOConfig(...),
            train_dataset=dataset,
        )
        trainer.train()

Differences from refblend's own trainer:

* TRL's rewards are one number per response, so Q is Σ_t of what ``placement`` puts on the tokens:
  q·L for ``per_token``, q otherwise.
* ``gdpo`` is TRL's own ``normalize_then_sum``, which normalises every reward function by itself.
* TRL has its KL penalty in the loss, not in the reward.
* The entropy costs one more forward pass over the batch, without gradients, in evaluation mode and
  without a random number of TRL's: with w = 0 the training is TRL's own.
* Every process has its own judge, for its own responses.
"""

import contextlib
import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, get_args

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

try:
    from datasets import Dataset
    from trl import GRPOTrainer
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f"{error}: pip install 'refblend[trl]'", name=error.name) from error

from refblend.documents import show
from refblend.errors import ConfigError, DataError
from refblend.integrations.messages import Messages, question_of, response_of
from refblend.lookup import get_strategy
from refblend.ppo.blending import Placement, expand_quality
from refblend.ppo.choices import HERO_MOST, EntropyLevel, Method
from refblend.ppo.masking import masked_mean
from refblend.ppo.methods import prepare
from refblend.ppo.weights import WeightParams, weight_for
from refblend.scoring.judge import Judge
from refblend.scoring.result import InvalidRateGuard, score_metrics


class JudgeReward:
    """The judge's score as a reward function of TRL.

    Args:
        judge: scores; its invalid answers count as its ``invalid_score``.
        placement: ``terminal`` and ``per_token_mean``: q; ``per_token``: q times the response's
            tokens, as a q on every token adds up to, which pays for length.
        question_column: column of the dataset that holds the question; None: the last message of
            the user in the prompt.
        max_invalid_rate: the run stops when more scores than this share are invalid.
        invalid_window: calls over which they are counted.
    """

    def __init__(
        self,
        judge: Judge,
        placement: Placement = "terminal",
        question_column: str | None = None,
        max_invalid_rate: float = 0.9,
        invalid_window: int = 5,
    ) -> None:
        self.judge = judge
        self.placement = placement
        self.question_column = question_column
        self.guard = InvalidRateGuard(max_invalid_rate, invalid_window)
        self.__name__ = "judge"  # under which TRL logs it

    def __call__(
        self,
        prompts: Sequence[str | Messages],
        completions: Sequence[str | Messages],
        completion_ids: Sequence[Sequence[int]],
        log_metric: Callable[[str, float], None] | None = None,
        log_extra: Callable[[str, list[float]], None] | None = None,
        **columns: Any,
    ) -> list[float]:
        """Σ_t Q of each completion, as TRL asks for it.

        Args:
            prompts: B texts or conversations.
            completions: B texts or lists of messages.
            completion_ids: B lists of token ids.
            log_metric: TRL's; gets ``actor/ref_quality/*`` and ``incidents/*``.
            log_extra: TRL's; gets ``judge_score``, a column of the completions that it logs.
            columns: of the dataset, B values each, and what else TRL passes.

        Raises:
            ConfigError: there is no such column.
            DataError: a row has no question.
            ScoringError: too many scores are invalid.
        """
        results = self.judge.score(
            self._questions(prompts, columns), [response_of(c) for c in completions]
        )
        self.guard.update(results)
        if log_metric is not None:
            for name, value in score_metrics(results).items():
                log_metric(name, value)
        if log_extra is not None:
            log_extra("judge_score", [result.score for result in results])
        lengths = torch.tensor([len(ids) for ids in completion_ids])
        mask = torch.arange(int(lengths.max())) < lengths.unsqueeze(-1)
        scores = torch.tensor([result.score for result in results])
        totals: list[float] = expand_quality(scores, mask, self.placement).sum(-1).tolist()
        return totals

    def _questions(
        self, prompts: Sequence[str | Messages], columns: Mapping[str, Any]
    ) -> Sequence[str]:
        if self.question_column is None:
            return [_question(row, prompt) for row, prompt in enumerate(prompts)]
        self.check_questions(columns, "the batch")
        questions: Sequence[str] = columns[self.question_column]
        return questions

    def check_questions(self, columns: Mapping[str, Any], place: str) -> None:
        """Refuse data without ``question_column`` (ConfigError), or rows without a text there.

        A DataError names the first such row; ``place`` is what its number counts in.
        """
        column = self.question_column
        if column is None:
            return
        if column not in columns:
            raise ConfigError(
                f"{place} has no column {column!r}, question_column of the judge",
                "Name a column that exists, or leave it out.",
            )
        for row, question in enumerate(columns[column]):
            if not isinstance(question, str):
                raise DataError(
                    f"row {row} of {place}: column {column!r} holds {show(question)}, and the "
                    "judge reads a text there",
                    "Fill it in, or remove the row.",
                )


def _question(row: int, prompt: str | Messages) -> str:
    try:
        return question_of(prompt)
    except ValueError as error:
        raise DataError(
            f"row {row} of the batch: {error}", "Correct the prompt, or name a question_column."
        ) from None


class BlendedGRPOTrainer(GRPOTrainer):
    """TRL's ``GRPOTrainer`` with R' = (1 − w)·R + w·Q, w from the entropy of each batch.

    Logs ``actor/ref_quality/weight`` and ``actor/ref_quality/avg_entropy`` beside TRL's metrics.
    Where the weight differs between responses (``recheck``, ``hero``, and the entropy level
    ``response``), ``rewards/judge`` in TRL's log is what the judge adds to R; its scores are in
    ``actor/ref_quality/score_mean``.

    Args:
        judge: gives Q; it becomes one more reward function.
        reward_funcs: TRL's; R is their sum with ``args.reward_weights``.
        strategy: a name of :data:`refblend.ppo.weights.STRATEGIES`, or your own
            ``module:function``.
        weight_params: thresholds and maxima of the strategy; None: the defaults.
        method: ``blend``, or ``recheck``, ``gdpo`` or ``hero`` (:mod:`refblend.ppo.methods`).
        entropy_level: ``response``: each response has the weight of its own entropy.
        args: ``GRPOConfig``; rewards must be summed before they are normalised, which is TRL's
            default.
        trl: everything else that ``GRPOTrainer`` takes, by name.

    Raises:
        ConfigError: the configuration normalises each reward by itself, or the data have images or
            lack the judge's column.
        DataError: a row has no question in that column.
    """

    def __init__(
        self,
        *,
        judge: JudgeReward,
        reward_funcs: Any,
        strategy: str = "linear",
        weight_params: WeightParams | None = None,
        method: Method = "blend",
        entropy_level: EntropyLevel = "batch",
        args: Any = None,
        **trl: Any,
    ) -> None:
        if args is not None and args.multi_objective_aggregation != "sum_then_normalize":
            raise ConfigError(
                f"multi_objective_aggregation={args.multi_objective_aggregation} normalises each "
                "reward by itself: nothing is left to blend",
                "Use sum_then_normalize, or method='gdpo', which sets it.",
            )
        if not isinstance(judge, JudgeReward):
            raise ConfigError(f"judge is {show(judge)}", "Give JudgeReward(judge).")
        chosen = get_strategy(strategy) if ":" in strategy else strategy
        _refuse_what_does_not_fit(method, entropy_level, judge.placement, weight_params)
        if args is not None and args.reward_weights is not None:
            args = copy.copy(args)
            args.reward_weights = [*args.reward_weights, 1.0]
        if (given := trl.get("reward_processing_classes")) is not None:
            trl["reward_processing_classes"] = [*_as_list(given), None]
        weight_for(chosen, 0.0, 1, 1, weight_params)  # refuse what does not fit before a step
        for name in ("train_dataset", "eval_dataset"):
            data = trl.get(name)
            if isinstance(data, Dataset):  # what is streamed is checked batch by batch
                judge.check_questions({n: data[n] for n in data.column_names}, name)
        super().__init__(reward_funcs=[*_as_list(reward_funcs), judge], args=args, **trl)
        self.strategy, self.weight_params = chosen, weight_params
        self.method, self.entropy_level = method, entropy_level
        if method == "gdpo":
            self.multi_objective_aggregation = "normalize_then_sum"
        self._advantage_factors: Tensor | None = None
        self._judge_index = self.reward_funcs.index(judge)
        self._own_weights: Tensor = self.reward_weights.clone()
        self._sequences: tuple[list[list[int]], list[list[int]] | None] = ([], None)

    def _generate(self, prompts: list[Any]) -> Any:
        generated = super()._generate(prompts)
        prompt_ids, _, tool_mask, *_ = generated
        self._sequences = (prompt_ids, tool_mask)
        return generated

    def _calculate_rewards(
        self,
        inputs: list[dict[str, Any]],
        prompts: list[Any],
        completions: list[Any],
        completion_ids_list: list[list[int]],
    ) -> Tensor:
        """TRL's rewards; the weights with which TRL sums them become those of the blend."""
        if inputs[0].keys() & {"image", "images"}:
            raise ConfigError("the batch has images, which the judge cannot see", "Leave them out.")
        entropies = self._entropies(completion_ids_list)
        average = float(entropies.mean())
        per_response = self.entropy_level == "response"
        weights = self._weights(entropies.tolist() if per_response else [average])
        self._log_metric("actor/ref_quality/avg_entropy", average)
        self._log_metric("actor/ref_quality/weight", math.fsum(weights) / len(weights))
        found: Tensor = super()._calculate_rewards(
            inputs, prompts, completions, completion_ids_list
        )
        others = [column for column in range(found.shape[1]) if column != self._judge_index]
        if others:  # what no other function scores has no advantage, whatever the judge says
            found[found[:, others].isnan().all(dim=1), self._judge_index] = math.nan
        if per_response or self.method in ("recheck", "hero"):
            found[:, self._judge_index] = self._added(found, weights)
        else:
            self.reward_weights = (1.0 - weights[0]) * self._own_weights
            self.reward_weights[self._judge_index] = weights[0]
        return found

    def _weights(self, entropies: list[float]) -> list[float]:
        """w of each entropy, in the present step."""
        done = self.state.global_step  # in an evaluation, that of the last training step
        step = done + 1 if self.model.training else max(1, done)
        total = max(self.state.max_steps, step)
        return [weight_for(self.strategy, h, step, total, self.weight_params) for h in entropies]

    def _added(self, found: Tensor, weights: list[float]) -> Tensor:
        """R' − R of each response of all processes, which TRL adds to R with a weight of 1.

        A response without a score (nan) gets nothing, and ``hero`` compares only the others.
        """
        device, found = found.device, found.cpu()
        own = self._own_weights.to(found).clone()
        own[self._judge_index] = 0.0
        rule = (found * own).nansum(dim=1)
        size = self.num_generations if self.model.training else self.num_generations_eval
        groups = torch.arange(len(found)) // size
        shares = torch.tensor(weights).to(found).expand(len(found))
        added, factors = torch.full_like(rule, math.nan), torch.ones_like(rule)
        scored = ~found[:, self._judge_index].isnan()
        if scored.any():
            scores = found[scored, self._judge_index]
            ready = prepare(self.method, rule[scored], scores, shares[scored], groups[scored])
            blended = (1.0 - ready.weights) * ready.rule + ready.weights * ready.quality
            added[scored] = blended - rule[scored]
            if ready.advantage_factors is not None:
                factors[scored] = ready.advantage_factors
        self._advantage_factors = factors.to(device)
        self.reward_weights = self._own_weights.clone()
        self.reward_weights[self._judge_index] = 1.0
        return added.to(device)

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> Any:
        """TRL's batch, with the factors that ``hero`` gives the advantages."""
        output = super()._generate_and_score_completions(inputs)
        if self._advantage_factors is not None:
            first = self.accelerator.process_index * len(inputs)
            factors = self._advantage_factors[first : first + len(inputs)]
            output["advantages"] = output["advantages"] * factors
        return output

    @torch.no_grad()
    def _entropies(self, completion_ids: list[list[int]]) -> Tensor:
        """Mean entropy of each sequence's own tokens in nats, of all processes; (N,)."""
        prompt_ids, tool_mask = self._sequences
        own = tool_mask or [[1] * len(ids) for ids in completion_ids]
        prompts, asked = self._padded(prompt_ids, "left")
        responses, answered = self._padded(completion_ids, "right")
        mask = pad_sequence([torch.tensor(row) for row in own], batch_first=True)
        device = self.accelerator.device
        with _observing(self.model, device):
            _, entropies, _ = self._get_per_token_logps_and_entropies(
                self.model,
                torch.cat([prompts, responses], dim=1).to(device),
                torch.cat([asked, answered], dim=1).to(device),
                responses.shape[1],
                batch_size=self.args.per_device_train_batch_size,
                compute_entropy=True,
            )
        means = masked_mean(entropies, mask.to(device), dim=-1)
        gathered: Tensor = self.accelerator.gather(means)
        return gathered

    def _padded(self, ids: list[list[int]], side: str) -> tuple[Tensor, Tensor]:
        """Token ids and attention mask, (B, longest)."""
        rows = [torch.tensor(row) for row in ids]
        pad = self._tokenizer.pad_token_id
        padded = pad_sequence(rows, batch_first=True, padding_value=pad, padding_side=side)
        seen = [torch.ones_like(row) for row in rows]
        return padded, pad_sequence(seen, batch_first=True, padding_side=side)


@contextlib.contextmanager
def _observing(model: torch.nn.Module, device: torch.device) -> Iterator[None]:
    """The model in evaluation mode; modes and random states are as before afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    accelerators = [] if device.type == "cpu" else [device]
    kind = "cuda" if device.type == "cpu" else device.type
    with torch.random.fork_rng(accelerators, device_type=kind):
        model.eval()
        try:
            yield
        finally:
            for module, training in modes:  # a part may have been frozen in evaluation mode
                module.training = training


def _as_list(given: Any) -> list[Any]:
    """A list; TRL also takes one reward function, or one tokenizer, alone."""
    return given if isinstance(given, list) else [given]


def _refuse_what_does_not_fit(
    method: str, level: str, placement: str, params: WeightParams | None
) -> None:
    """ConfigError for a method without the settings that it needs."""
    if method not in get_args(Method) or level not in get_args(EntropyLevel):
        raise ConfigError(
            f"method={method}, entropy_level={level}: one of them is unknown",
            f"Use {', '.join(get_args(Method))}; {' or '.join(get_args(EntropyLevel))}.",
        )
    if method == "gdpo" and level == "response":
        raise ConfigError(
            "method=gdpo is TRL's own sum of normalised rewards, with one weight for the batch",
            "Use entropy_level='batch'.",
        )
    if method in ("gdpo", "hero") and placement == "per_token":
        raise ConfigError(
            f"method={method} compares scores, and placement=per_token multiplies them by lengths",
            "Give JudgeReward placement='terminal'.",
        )
    if method == "hero" and (params or WeightParams()).max_weight >= HERO_MOST:
        raise ConfigError(
            "method=hero with such a max_weight would lift wrong responses above right ones",
            f"Lower weight_params.max_weight below {HERO_MOST}.",
        )
