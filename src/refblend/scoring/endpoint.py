"""A judge behind HTTP: an endpoint that speaks OpenAI's chat API, such as ``vllm serve``.

The endpoint applies its own chat template and counts its own tokens, so prompts leave here as
text, with their length bounded in characters. A request that fails for good has the path ``error``.
"""

import logging
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from openai import APIStatusError
from pydantic import TypeAdapter

from refblend.config.algorithm import RefQualityScoreConfig
from refblend.config.scoring import SCORING_KEY, HttpJudgeConfig
from refblend.documents import show
from refblend.errors import ConfigError, ScoringError
from refblend.scoring.clipping import MIN_DATA_TOKENS, ScoringRequest, plan_request
from refblend.scoring.generative import TOP_LOGPROBS, answer_regex
from refblend.scoring.judge import RequestJudge
from refblend.scoring.parsing import parse_score, piece_at
from refblend.scoring.prompts import CharacterEncoder
from refblend.scoring.result import JudgeResult
from refblend.scoring.templates import load_templates
from refblend.scoring.wire import Answer, Outcome, Token, explain, is_too_long, wire_to
from refblend.secret import read_secret

HTTP_KEY = "algorithm.ref_quality_score.scoring.http"

logger = logging.getLogger(__name__)
_TOKENS = TypeAdapter(list[Token])


def read_key(http: HttpJudgeConfig) -> str:
    """The endpoint's key; ConfigError if it is missing or malformed."""
    name = http.bearer_env
    if name is None:
        return "none"  # the client wants one; endpoints without keys ignore it
    try:
        key = read_secret(name)
    except ValueError as error:
        raise ConfigError(
            f"the key in {name} ({HTTP_KEY}.bearer_env) {error}",
            f"Export the key alone in {name}, in one line.",
        ) from None
    if not key:
        # The name of no variable may be the key itself, given in the wrong place.
        shown = name if name.isupper() else "a variable"
        raise ConfigError(
            f"{HTTP_KEY}.bearer_env names {shown}, which is not set",
            f"Export {shown} in the environment of this command.",
        )
    return key


class EndpointJudge(RequestJudge):
    """Scores responses with a model that somebody else serves."""

    def __init__(self, config: RefQualityScoreConfig) -> None:
        super().__init__(config)
        self.http = config.scoring.http
        self.encoder = CharacterEncoder(load_templates(config.scoring.templates))
        taken = len(self.encoder.frame("compact"))
        if self.http.max_prompt_chars - taken < MIN_DATA_TOKENS:
            raise ScoringError(
                f"{HTTP_KEY}.max_prompt_chars={self.http.max_prompt_chars}: the compact template "
                f"alone has {taken} characters",
                "Raise it, or shorten the template.",
            )
        self._wire = wire_to(self.http, read_key(self.http))
        self._regex = answer_regex(config.scoring)

    @classmethod
    def check(cls, config: RefQualityScoreConfig) -> None:
        """Templates and key are there, and the endpoint answers a trial sample at once."""
        http = config.scoring.http
        once = http.model_copy(update={"max_retries": min(http.max_retries, 1)})
        scoring = config.scoring.model_copy(update={"http": once})
        judge = cls(config.model_copy(update={"scoring": scoring}))
        (trial,) = judge.score(["What is 1 + 1?"], ["2"])
        if trial.path in ("error", "overlength"):
            raise ScoringError(
                f"the judge's endpoint {http.base_url} does not answer as it should: {trial.raw}",
                f"Start it (`vllm serve {http.model} --port PORT`), or check {HTTP_KEY}: base_url, "
                f"model, bearer_env ({http.bearer_env or 'none'}), enable_thinking (null for an "
                f"endpoint that refuses unknown fields); and {SCORING_KEY}.score_mode.",
            )
        if judge._regex is not None and not re.fullmatch(judge._regex, trial.raw):
            raise ScoringError(
                f"the judge's endpoint does not guide its answers: it wrote {trial.raw[:200]!r}",
                f"Serve it with vLLM (structured_outputs), or set {SCORING_KEY}.decoding=free.",
            )
        if not trial.valid:
            logger.warning(
                "the judge's answer to a trial has no score: it wrote %s. Raise "
                "%s.max_new_tokens, set http.enable_thinking=false beside it, or improve the "
                "templates.",
                show(trial.raw, 200) if trial.raw else "nothing",
                SCORING_KEY,
            )

    @classmethod
    def start(cls, config: RefQualityScoreConfig, seed: int) -> "EndpointJudge":
        """Start nothing: the endpoint runs already, as :meth:`check` has seen."""
        return cls(config)

    def plan(self, question: str, response: str) -> ScoringRequest:
        """The request for one sample; its ids are code points."""
        scoring = self.config.scoring
        how = self.http.max_prompt_chars, scoring.form, scoring.hard_clip
        return plan_request(self.encoder, question, response, *how)

    def answer(self, requests: Sequence[ScoringRequest], seeds: Sequence[int]) -> list[JudgeResult]:
        """The endpoint's answers; a request that fails does not affect the others."""
        found = self._wire.ask(list(map(self._body, requests, seeds)))
        return list(map(self._read, requests, found))

    def _body(self, plan: ScoringRequest, seed: int) -> dict[str, Any]:
        """Arguments of OpenAI's client for one request."""
        scoring, thinking = self.config.scoring, self.http.enable_thinking
        body: dict[str, Any] = {
            "model": self.http.model or "",
            "messages": [{"role": "user", "content": "".join(map(chr, plan.token_ids))}],
            "temperature": scoring.temperature,
            "max_tokens": scoring.max_new_tokens,
        }
        if scoring.score_mode == "expected":
            body |= {"logprobs": True, "top_logprobs": TOP_LOGPROBS}
        if scoring.temperature > 0:
            body["seed"] = seed % 2**31
        extra: dict[str, Any] = {}  # vLLM's extensions of the API
        if thinking is not None:
            extra["chat_template_kwargs"] = {"enable_thinking": thinking}
        if self._regex is not None:
            extra["structured_outputs"] = {"regex": self._regex}
        return body | {"extra_body": extra or None}

    def _read(self, plan: ScoringRequest, answer: Outcome) -> JudgeResult:
        if isinstance(answer, Exception):
            refused = isinstance(answer, APIStatusError) and is_too_long(
                answer.status_code, answer.response.text
            )
            reason = explain(answer)
            return self.too_long(plan, reason) if refused else self.failed(reason, 0)
        try:
            parsed = self._parse(answer)
        except ValueError as error:
            return self.failed(explain(error), answer.prompt_tokens)
        raw = answer.text or (f"<think>{answer.thought}" if answer.thought else "")
        return replace(
            parsed, raw=raw, prompt_tokens=answer.prompt_tokens, new_tokens=answer.new_tokens
        )

    def _parse(self, answer: Answer) -> JudgeResult:
        """The score of an answer; ValueError if its log-probabilities are needed and unusable."""
        text, mode = answer.text or "", self.config.scoring.score_mode
        tokens: list[Token] = []
        if mode == "expected" and text:
            tokens = _TOKENS.validate_python(answer.logprobs or [])
            if not any(token.top_logprobs for token in tokens):
                raise ValueError(
                    f"{self.http.base_url} gives no log-probabilities, and score_mode=expected "
                    "needs them: set score_mode=text, or let it give top_logprobs"
                )
        if answer.thought:
            tokens = _tokens_of(text, tokens)
        said = _Said()
        ids = [said.add(token.token) for token in tokens]
        top = [{said.add(t.token): t.logprob for t in token.top_logprobs or ()} for token in tokens]
        return parse_score(text, ids, said, top, self.config.invalid_score, mode)


class _Said:
    """The tokens of an answer, decoded by their places: an endpoint gives texts and no ids."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def add(self, text: str) -> int:
        self._texts.append(text)
        return len(self._texts) - 1

    def decode(self, ids: list[int], skip_special_tokens: bool) -> str:
        return self._texts[ids[0]]


def _tokens_of(text: str, tokens: Sequence[Token]) -> list[Token]:
    """The tokens from the last occurrence of ``text`` on; those before it are thinking."""
    pieces = [token.token for token in tokens]
    before = "".join(pieces).rfind(text)
    return list(tokens[piece_at(pieces, before)[0] :]) if before >= 0 else []
