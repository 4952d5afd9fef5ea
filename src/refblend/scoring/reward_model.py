"""A reward model as the judge: a classifier with one logit over the conversation.

The question is the user's turn, the response the assistant's; the score is
q = σ(scale · (logit − shift)). The data is encoded apart from the chat template, so that it yields
no special token, and the middle of what is too long is cut: of the response first.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from refblend.config.algorithm import RefQualityScoreConfig
from refblend.config.scoring import SCORING_KEY
from refblend.data.tokenizer import load_tokenizer
from refblend.errors import ModelError, ScoringError
from refblend.lifecycle.faults import is_out_of_memory
from refblend.rollout.model_dir import check_model, model_record, positions_of
from refblend.scoring.clipping import MIN_DATA_TOKENS, ScoringRequest, clip_parts
from refblend.scoring.judge import RequestJudge
from refblend.scoring.prompts import (
    EncodedPrompt,
    Frame,
    encode_plain,
    encode_untrusted,
    frame_around,
    special_tokens,
)
from refblend.scoring.result import JudgeResult

_MARKS = ("RefblendQuestionMark", "RefblendResponseMark")


def conversation_frame(tokenizer: Any) -> Frame:
    """The chat template around question and response; ModelError if it does not show both."""
    turns = zip(("user", "assistant"), _MARKS, strict=True)
    messages = [{"role": role, "content": mark} for role, mark in turns]
    text = tokenizer.apply_chat_template(messages, tokenize=False)
    frame = frame_around(tokenizer, text, _MARKS)
    if frame is None:
        raise ModelError(
            "the reward model's chat template does not show both turns exactly once",
            "Give a reward model whose chat template renders question and answer.",
        )
    return frame


class RewardModelJudge(RequestJudge):
    """Scores responses with an ``AutoModelForSequenceClassification`` of one logit."""

    def __init__(self, model: Any, tokenizer: Any, config: RefQualityScoreConfig) -> None:
        super().__init__(config)
        self.model = model
        self.tokenizer = tokenizer
        self.frame = conversation_frame(tokenizer)
        self.seam = encode_plain(tokenizer, " ")
        _, self.special_ids = special_tokens(tokenizer)
        scoring = config.scoring
        model_cap = scoring.max_model_len or model.config.max_position_embeddings
        self.allowed_length = min(model_cap, tokenizer.model_max_length)
        if self.allowed_length - len(self.frame) < MIN_DATA_TOKENS:
            raise ScoringError(
                f"the reward model's chat template takes {len(self.frame)} of "
                f"{self.allowed_length} tokens, which leaves no room for question and response",
                f"Raise {SCORING_KEY}.max_model_len.",
            )

    @classmethod
    def check(cls, config: RefQualityScoreConfig) -> None:
        """The directory holds a classifier with one logit and a chat template."""
        key, scoring = f"{SCORING_KEY}.model_path", config.scoring
        path = scoring.model_path or ""
        check_model((key, path), (f"{SCORING_KEY}.max_model_len", scoring.max_model_len))
        directory = Path(path)
        record = model_record(directory / "config.json")
        names = record.get("architectures") or [""]
        labels = len(record.get("id2label") or {}) or record.get("num_labels", 2)
        if not str(names[0]).endswith("ForSequenceClassification") or labels != 1:
            raise ModelError(
                f"{key}: {directory} is a {names[0] or 'model of unknown kind'} with {labels} "
                "labels, not a reward model with one logit",
                "Give a sequence-classification model with num_labels=1, or set scoring.kind=vllm.",
            )
        if scoring.max_model_len is None and positions_of(directory) is None:
            raise ModelError(
                f"{directory}: config.json has no max_position_embeddings",
                f"Set {SCORING_KEY}.max_model_len.",
            )
        tokenizer = load_tokenizer(directory)
        if not tokenizer.chat_template:
            raise ModelError(
                f"{key}: the tokenizer of {directory} has no chat template",
                "Add the template with which the reward model was trained.",
            )
        conversation_frame(tokenizer)

    @classmethod
    def start(cls, config: RefQualityScoreConfig, seed: int) -> "RewardModelJudge":
        """Load the model; it draws no random numbers."""
        from transformers import AutoModelForSequenceClassification

        scoring = config.scoring
        assert scoring.model_path is not None, "checked by the configuration"
        model: Any = AutoModelForSequenceClassification.from_pretrained(
            scoring.model_path,
            dtype=getattr(torch, scoring.dtype),
            local_files_only=True,
            use_safetensors=True,
        )
        model.eval().to("cuda" if torch.cuda.is_available() else "cpu")
        tokenizer = load_tokenizer(scoring.model_path)
        if model.config.pad_token_id is None and tokenizer.pad_token_id != tokenizer.eos_token_id:
            model.config.pad_token_id = tokenizer.pad_token_id
        return cls(model, tokenizer, config)

    def plan(self, question: str, response: str) -> ScoringRequest:
        """The conversation of one sample, within the limit or flagged overlength."""
        f, texts = self.frame, (response, question)
        data = (encode_untrusted(self.tokenizer, text, self.special_ids) for text in texts)
        prompt = EncodedPrompt(f, *data)
        unclipped = len(prompt)
        overlength = unclipped > self.allowed_length and not self.config.scoring.hard_clip
        if not overlength:
            prompt = clip_parts(prompt, self.allowed_length, self.seam)
        # Unlike in our prompts, the question stands first.
        ids = [*f.prefix, *prompt.question, *f.between, *prompt.response, *f.suffix]
        return ScoringRequest(ids, "full", len(ids) < unclipped, overlength, unclipped)

    def answer(self, requests: Sequence[ScoringRequest], seeds: Sequence[int]) -> list[JudgeResult]:
        """The map of every logit to a score; the model's failure becomes their results."""
        lengths = [len(request.token_ids) for request in requests]
        try:
            logits = self.logits([request.token_ids for request in requests])
        except RuntimeError as error:  # CUDA
            if is_out_of_memory(error):  # whoever started this judge decides
                raise
            reason = f"{type(error).__name__}: {error}"
            return [self.failed(reason, length) for length in lengths]
        return list(map(self._score, logits, lengths))

    def _score(self, logit: float, length: int) -> JudgeResult:
        raw, shape = f"{logit:.6g}", self.config.scoring.reward_model
        if not math.isfinite(logit):
            return self._invalid("default", raw, length)
        scaled = torch.tensor(shape.scale * (logit - shape.shift), dtype=torch.float64)
        score = scaled.sigmoid().item()
        return JudgeResult(score, True, "logit", raw, prompt_tokens=length)

    @torch.inference_mode()
    def logits(self, sequences: Sequence[Sequence[int]]) -> list[float]:
        """The model's logit of each sequence of token ids, in their order.

        Sequences of like length go together, padded on the right. Without a padding token the model
        cannot find the last token, and they go one by one.
        """
        order = sorted(range(len(sequences)), key=lambda row: len(sequences[row]))
        padding = self.model.config.pad_token_id
        size = 1 if padding is None else self.config.scoring.reward_model.batch_size
        found: dict[int, float] = {}
        for start in range(0, len(order), size):
            rows = order[start : start + size]
            tokens = [torch.tensor(sequences[row], dtype=torch.long) for row in rows]
            ids = pad_sequence(tokens, True, padding or 0)
            mask = pad_sequence([torch.ones_like(row) for row in tokens], True)
            device = self.model.device
            output = self.model(input_ids=ids.to(device), attention_mask=mask.to(device))
            found.update(zip(rows, output.logits[:, 0].float().tolist(), strict=True))
        return [found[row] for row in range(len(sequences))]

    def shutdown(self) -> None:
        """Free the model's memory."""
        self.model = None
