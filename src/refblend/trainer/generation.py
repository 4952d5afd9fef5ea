"""The requests that a step sends to the rollout engine, and its answers as a rollout."""

from collections.abc import Callable, Sequence

from refblend.config import RefblendConfig
from refblend.errors import TrainingError
from refblend.rollout.base import Generation, GenerationRequest
from refblend.seeding import derive_seed
from refblend.trainer.batch import GreedyResponses, PromptBatch, Rollout
from refblend.workers.types import Sequences, pad_rows, response_mask


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
    """The engine's answers to :func:`rollout_requests`.

    Raises:
        TrainingError: every response is empty.
    """
    sampled, greedy = answers[: len(prompts.uids)], answers[len(prompts.uids) :]
    sequences = Sequences(prompts.prompt_ids, [a.token_ids for a in sampled])
    if not any(sequences.response_lengths):
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
