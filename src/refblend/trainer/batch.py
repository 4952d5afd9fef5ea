"""The typed values of one training step, in the order in which the stages produce them.

Legend: B sequences (prompts × n, the n of a prompt consecutive), T longest response.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from refblend.data.schema import PromptRow
from refblend.scoring.result import JudgeResult
from refblend.workers.types import Sequences


@dataclass(frozen=True)
class PromptBatch:
    """The step's prompts, each replicated ``n`` times."""

    rows: list[PromptRow]
    """(B,)"""
    prompt_ids: list[list[int]]
    """(B,) token ids."""
    uids: list[int]
    """(B,) dataset index of the prompt: the group for GRPO and RLOO, and part of the seeds."""
    sample_index: list[int]
    """(B,) 0 … n − 1 within the group."""


@dataclass(frozen=True)
class GreedyResponses:
    """The greedy response to each of P prompts: ReMax's baseline, judged like a sample."""

    texts: list[str]
    """(P,) decoded, special tokens removed."""
    lengths: list[int]
    """(P,) tokens."""


@dataclass(frozen=True)
class Rollout:
    """The actor's responses."""

    sequences: Sequences
    texts: list[str]
    """(B,) decoded responses, special tokens removed."""
    finished: list[bool]
    """(B,) True if the response ended before the length limit."""
    response_mask: Tensor
    """(B, T)"""
    log_probs: Tensor
    """(B, T) under the engine's sampling distribution."""
    greedy: GreedyResponses | None = None
    """Only for estimators with a greedy baseline."""


@dataclass(frozen=True)
class Experience:
    """Five independent results about a rollout, computed before any reward is shaped."""

    rule: Tensor
    """(B,) rule-based reward."""
    accuracy: Tensor
    """(B,) 1 where the answer is right."""
    quality: list[JudgeResult] | None
    """(B,) the judge's results; None when no judge runs."""
    old_log_probs: Tensor
    """(B, T) of the actor before the update, zero where masked."""
    entropy: Tensor
    """(B, T) of its token distributions, in nats, zero where masked."""
    reference: Tensor | None = None
    """(B, T) log-probs of the reference policy."""
    values: Tensor | None = None
    """(B, T) of the critic."""
    greedy_rule: Tensor | None = None
    """(P,) rule reward of the greedy responses."""
    greedy_quality: list[JudgeResult] | None = None
    """(P,) the judge's results on them."""
    alignment: Tensor | None = None
    """(B,) cosine similarity to the gold solution (alignment bonus)."""

    def numbers(self) -> dict[str, Tensor | None]:
        """The inputs of rewards and advantages, by their names in messages."""
        scores = [result.score for result in self.quality or []]
        return {
            "the actor's log-probs": self.old_log_probs,
            "the reference policy's log-probs": self.reference,
            "the critic's values": self.values,
            "the judge's scores": torch.tensor(scores) if scores else None,
            "the similarities to the gold solutions": self.alignment,
        }


@dataclass(frozen=True)
class Advantages:
    """The input of the updates."""

    token_level_rewards: Tensor
    """(B, T) R'', after blending, KL and bonus."""
    advantages: Tensor
    """(B, T)"""
    returns: Tensor
    """(B, T)"""
