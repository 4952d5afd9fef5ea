"""A step's rollout, and the five results about it that are computed at once.

Rule reward, judge's score, old log-probs with entropy, reference log-probs and values do not
depend on one another, so all are started before any is awaited.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from refblend.config import RefblendConfig
from refblend.data.schema import PromptRow
from refblend.errors import TrainingError
from refblend.ppo.correction import mismatch_metrics
from refblend.rewards.alignment import cosine_similarity
from refblend.rewards.imperfect import imperfect_rewards, partial_credit
from refblend.rewards.rule import RuleReward
from refblend.rollout.base import Generation, GenerationRequest
from refblend.scoring.result import InvalidRateGuard, JudgeResult
from refblend.seeding import derive_seed
from refblend.trainer.batch import Experience, GreedyResponses, PromptBatch, Rollout
from refblend.trainer.datasets import RunData
from refblend.trainer.guards import JudgeWatch
from refblend.trainer.step_metrics import StepRecord
from refblend.workers.groups import Future, SplitCall
from refblend.workers.roles import ACTOR, CRITIC, REFERENCE
from refblend.workers.types import Sequences, merge_shards, pad_rows, response_mask
from refblend.workers.worker_set import WorkerSet


def rollout_requests(
    config: RefblendConfig, prompts: PromptBatch, step: int, greedy: bool
) -> list[GenerationRequest]:
    """One sampled response per row, then one greedy response per prompt where asked for."""
    rollout, longest = config.actor_rollout_ref.rollout, config.data.max_response_length
    seed = config.trainer.seed
    requests = [
        GenerationRequest(
            ids,
            longest,
            rollout.temperature,
            derive_seed(seed, "rollout", step, uid, k),
            ignore_eos=rollout.ignore_eos,
        )
        for ids, uid, k in zip(prompts.prompt_ids, prompts.uids, prompts.sample_index, strict=True)
    ]
    if greedy:
        requests += [
            GenerationRequest(ids, longest, temperature=0.0, log_probs=False)
            for ids in prompts.prompt_ids[:: rollout.n]
        ]
    return requests


def as_rollout(
    prompts: PromptBatch,
    answers: Sequence[Generation],
    decode: Callable[[list[int]], str],
    step: int,
) -> Rollout:
    """The engine's answers to :func:`rollout_requests`; TrainingError if all are empty."""
    sampled, greedy = answers[: len(prompts.uids)], answers[len(prompts.uids) :]
    sequences = Sequences(prompts.prompt_ids, [a.token_ids for a in sampled])
    # An engine keeps the end token: an actor that ends at once answers with that alone.
    if all(len(a.token_ids) <= (a.finish_reason == "stop") for a in sampled):
        raise TrainingError(
            f"step {step}: every response is empty: the actor has learned to end at once",
            "Resume from an earlier checkpoint with a lower learning rate, or fix the reward.",
        )
    greedy_responses = None
    if greedy:
        texts, lengths = [decode(a.token_ids) for a in greedy], [len(a.token_ids) for a in greedy]
        greedy_responses = GreedyResponses(texts, lengths)
    mask = response_mask(sequences.response_lengths, sequences.response_width)
    return Rollout(
        sequences=sequences,
        texts=[decode(a.token_ids) for a in sampled],
        finished=[a.finish_reason == "stop" for a in sampled],
        response_mask=mask,
        log_probs=pad_rows([a.log_probs for a in sampled], mask.shape[1]),
        greedy=greedy_responses,
    )


class ExperienceCollector:
    """Collects the experience of each step: rewards, scores, log-probs and values."""

    def __init__(
        self,
        config: RefblendConfig,
        data: RunData,
        workers: WorkerSet,
        invalid_guard: InvalidRateGuard,
    ) -> None:
        self.config = config
        self.data = data
        self.workers = workers
        self._watch = JudgeWatch(invalid_guard, workers.notify)
        self.reward = RuleReward.from_config(config.reward)
        quality = config.algorithm.ref_quality_score
        self._overlap = quality.scoring.overlap
        self._oracle = quality.enable and quality.scoring.control == "oracle"

    def collect(
        self, prompts: PromptBatch, rollout: Rollout, step: int, record: StepRecord
    ) -> Experience:
        """Launch everything, compute the rule reward meanwhile, and join once.

        With ``scoring.overlap`` off the judge finishes before the networks' passes are launched.
        ScoringError if too many of its scores are invalid.
        """
        rows = len(prompts.rows)
        greedy = rollout.greedy.texts if rollout.greedy else []
        asked, texts = [*prompts.rows], [*rollout.texts, *greedy]
        places = list(zip(prompts.uids, prompts.sample_index, strict=True))
        if greedy:  # one response per prompt, which counts as its sample n
            n = self.config.actor_rollout_ref.rollout.n
            asked += prompts.rows[::n]
            places += [(uid, n) for uid in prompts.uids[::n]]
        judging = self._compute_ref_quality_score(asked, texts, places, step)
        judge_first = judging is not None and not self._overlap
        passes = None if judge_first else self._passes(rollout.sequences)
        with record.timed("reward"):
            results = self.reward.of_rows(asked, texts)
        accuracy = [result.accuracy(self.reward.method) for result in results]
        judged = None
        if judging is not None:
            judged, call = self.workers.judge_results(judging)
            record.metrics |= call.metrics()
            self._watch.update(step, judged)  # warns about too many invalid scores, then stops
        if self._oracle:
            judged = [
                JudgeResult(partial_credit(text, row.solution, right), True, "oracle")
                for text, row, right in zip(texts, asked, accuracy, strict=True)
            ]
        old, values, ref = passes or self._passes(rollout.sequences)
        verifier, seed = self.config.reward.verifier, self.config.trainer.seed
        scores = [result.score for result in results]
        rule = imperfect_rewards(verifier, scores, places, step, seed)
        old_log_probs, entropy = _joined(old, rows)
        experience = Experience(
            rule=torch.tensor(rule[:rows]),
            accuracy=torch.tensor(accuracy[:rows]),
            quality=judged and judged[:rows],
            old_log_probs=old_log_probs,
            entropy=entropy,
            reference=_joined(ref, rows)[0],
            values=_joined(values, rows)[0],
            greedy_rule=torch.tensor(rule[rows:]) if greedy else None,
            greedy_quality=judged and judged[rows:],
            alignment=self._alignment(prompts, rollout),
        )
        waits = {"old_log_prob": old, "ref": ref, "values": values, "ref_quality_score": judging}
        record.seconds |= {name: wait.seconds for name, wait in waits.items() if wait}
        record.metrics |= mismatch_metrics(
            rollout.log_probs,
            old_log_probs,
            rollout.response_mask,
            self.config.algorithm.rollout_correction.threshold,
        )
        return experience

    def _passes(self, sequences: Sequences) -> tuple[Future | None, ...]:
        """Launch the passes of actor, critic and reference policy."""
        forward = self.workers.forward
        return (
            forward(ACTOR, "compute_log_prob", sequences),
            forward(CRITIC, "compute_values", sequences),
            forward(REFERENCE, "compute_log_prob", sequences),
        )

    def _compute_ref_quality_score(
        self, rows: list[PromptRow], texts: list[str], places: list[tuple[int, int]], step: int
    ) -> SplitCall | None:
        """Launch the judge on all responses; None when no judge runs."""
        seeds = [derive_seed(self.config.trainer.seed, "judge", step, *place) for place in places]
        return self.workers.judge_responses([row.question for row in rows], texts, seeds)

    def _alignment(self, prompts: PromptBatch, rollout: Rollout) -> torch.Tensor | None:
        """Cosine between the reference model's states of the response and the gold solution."""
        if not self.config.algorithm.repr_align.enable:
            return None
        gold = Sequences(prompts.prompt_ids, [self.data.encode(r.solution) for r in prompts.rows])
        pending = [
            self.workers.forward(REFERENCE, "compute_pooled_states", sequences)
            for sequences in (rollout.sequences, gold)
        ]
        return cosine_similarity(*(_joined(p, len(gold))[0] for p in pending))


def _joined(call: Future | None, rows: int) -> tuple[Any, ...]:
    """The matrices of a pass over all rows; a single None where no such role runs."""
    return merge_shards(call.results(), rows) if call else (None,)
