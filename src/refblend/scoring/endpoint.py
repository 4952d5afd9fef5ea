"""A judge behind HTTP: an endpoint that speaks OpenAI's chat API, such as ``vllm serve``.

The endpoint applies its own chat template and counts its own tokens, so prompts leave here as
text, with their length bounded in characters. Each request is retried by OpenAI's client, with
growing pauses; a request that fails for good is a result of the path ``error``, and the run goes
on, as when one of our engines fails.
"""

import asyncio
import os
import re
from collections.abc import Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from openai import (
    APIConnectionError,
    APIStatusError,
    APITimeoutError,
    AsyncOpenAI,
    BadRequestError,
    OpenAI,
    OpenAIError,
)
from pydantic import AliasPath, BaseModel, Field

from refblend.config.algorithm import RefQualityScoreConfig
from refblend.config.scoring import SCORING_KEY, HttpJudgeConfig
from refblend.documents import shorten
from refblend.errors import ConfigError, ScoringError
from refblend.scoring.clipping import MIN_DATA_TOKENS, ScoringRequest, plan_request
from refblend.scoring.generative import TOP_LOGPROBS, answer_regex
from refblend.scoring.judge import Reply, RequestJudge
from refblend.scoring.parsing import parse_tokens
from refblend.scoring.prompts import EncodedPrompt, Frame
from refblend.scoring.result import ParsedScore
from refblend.scoring.templates import PromptForm, ScoringTemplates, load_templates

T = TypeVar("T")
HTTP_KEY = "algorithm.ref_quality_score.scoring.http"
PREFLIGHT_SECONDS = 10.0
"""Deadline for an endpoint to list the models it serves."""


class Alternative(BaseModel):
    """A possible token at a position."""

    token: str
    logprob: float


class Token(BaseModel):
    """A token that was generated."""

    token: str
    top_logprobs: list[Alternative] = []


class Answer(BaseModel):
    """What is read of a chat completion; one that does not fit is refused.

    Tokens have their alternatives where the endpoint gives them; lengths are in its own tokens, 0
    where it does not say.
    """

    text: str | None = Field(validation_alias=AliasPath("choices", 0, "message", "content"))
    tokens: list[Token] | None = Field(
        None, validation_alias=AliasPath("choices", 0, "logprobs", "content")
    )
    prompt_tokens: int = Field(0, validation_alias=AliasPath("usage", "prompt_tokens"))
    new_tokens: int = Field(0, validation_alias=AliasPath("usage", "completion_tokens"))


class _Model(BaseModel):
    id: str


class _Models(BaseModel):
    data: list[_Model]


def client_arguments(http: HttpJudgeConfig) -> dict[str, Any]:
    """Arguments of OpenAI's clients; ConfigError if the variable of the key is not set."""
    key = "none"  # the client wants one; endpoints without keys ignore it
    if http.bearer_env is not None:
        key = os.environ.get(http.bearer_env, "")
        if not key:
            raise ConfigError(
                f"{HTTP_KEY}.bearer_env names {http.bearer_env}, which is not set",
                f"Export {http.bearer_env} in the environment of this command.",
            )
    return {
        "base_url": http.base_url,
        "api_key": key,
        "timeout": http.timeout_s,
        "max_retries": http.max_retries,
    }


def check_endpoint(http: HttpJudgeConfig) -> None:
    """Refuse (ScoringError) an endpoint that is away, refuses the key or lacks the model.

    An endpoint without a list of models is taken at its word.
    """
    quick = {"timeout": min(http.timeout_s, PREFLIGHT_SECONDS), "max_retries": 0}
    try:
        with OpenAI(**client_arguments(http) | quick) as client:
            answer = client.models.with_raw_response.list()
            served = [model.id for model in _Models.model_validate_json(answer.content).data]
    except APIStatusError as error:
        if error.status_code in (404, 405, 501):
            return
        raise ScoringError(f"the judge's endpoint: {explain(error)}", _remedy(http)) from None
    except (OpenAIError, ValueError) as error:
        reason = f"the judge's endpoint {http.base_url}: {explain(error)}"
        raise ScoringError(reason, _remedy(http)) from None
    if http.model not in served:
        raise ScoringError(
            f"{http.base_url} does not serve {http.model!r}, but "
            f"{shorten(', '.join(map(repr, served)) or 'nothing', 200)}",
            f"Correct {HTTP_KEY}.model.",
        )


def _remedy(http: HttpJudgeConfig) -> str:
    key = http.bearer_env or f"{HTTP_KEY}.bearer_env"
    return (
        f"Start it (`vllm serve MODEL --port PORT`), correct {HTTP_KEY}.base_url, or check {key}."
    )


def explain(error: Exception) -> str:
    """An error of the client in one line, with what it was about."""
    if isinstance(error, APIStatusError):
        reason = f"status {error.status_code} from {error.request.url}: {error.message}"
    elif isinstance(error, APITimeoutError):
        reason = f"no answer from {error.request.url} in time"
    elif isinstance(error, APIConnectionError):
        cause = error.__cause__ or error
        reason = f"no connection to {error.request.url} ({cause})"
    else:
        reason = f"unreadable answer ({error})"
    return shorten(" ".join(f"{type(error).__name__}: {reason}".split()), 300)


_TOO_LONG = ("context length", "context_length", "maximum model length", "too long")
"""Phrases with which endpoints refuse a prompt for its length."""


class CharacterEncoder:
    """Prompts as code points, so that the guards of length and their order are the same."""

    seam: tuple[int, ...] = (ord(" "),)

    def __init__(self, templates: ScoringTemplates) -> None:
        self.templates = templates

    def frame(self, form: PromptForm) -> Frame:
        """The trusted texts of one form."""
        return Frame(*(_points(text) for text in self.templates.frame(form)))

    def encode(self, question: str, response: str, form: PromptForm) -> EncodedPrompt:
        """One prompt in the chosen form, its data made harmless."""
        quote = self.templates.quote
        return EncodedPrompt(self.frame(form), _points(quote(response)), _points(quote(question)))


def _points(text: str) -> tuple[int, ...]:
    return tuple(map(ord, text))


class EndpointJudge(RequestJudge):
    """Scores responses with a model that somebody else serves.

    ScoringError for templates longer than a prompt may be, ConfigError for a key that is not set.
    """

    def __init__(self, config: RefQualityScoreConfig) -> None:
        self.config = config
        self.invalid_score = config.invalid_score
        self.greedy = config.scoring.temperature == 0
        self.http = config.scoring.http
        self.encoder = CharacterEncoder(load_templates(config.scoring.templates))
        taken = len(self.encoder.frame("compact"))
        if self.http.max_prompt_chars - taken < MIN_DATA_TOKENS:
            raise ScoringError(
                f"{HTTP_KEY}.max_prompt_chars={self.http.max_prompt_chars}: the compact template "
                f"alone has {taken} characters",
                "Raise it, or shorten the template.",
            )
        self._arguments = client_arguments(self.http)
        self._regex = answer_regex(config.scoring)

    @classmethod
    def check(cls, config: RefQualityScoreConfig) -> None:
        """Templates and key are there; the endpoint serves the model and answers a trial sample."""
        judge = cls(config)
        check_endpoint(config.scoring.http)
        (trial,) = judge.score(["What is 1 + 1?"], ["2"])
        if trial.path == "error":
            raise ScoringError(
                f"the judge's endpoint does not answer as it should: {trial.raw}",
                f"Check {HTTP_KEY}: base_url, model, enable_thinking (null for an endpoint that "
                f"refuses unknown fields); and {SCORING_KEY}.score_mode.",
            )
        if judge._regex is not None and not re.fullmatch(judge._regex, trial.raw):
            raise ScoringError(
                f"the judge's endpoint does not guide its answers: it wrote {trial.raw[:200]!r}",
                f"Serve it with vLLM (structured_outputs), or set {SCORING_KEY}.decoding=free.",
            )

    @classmethod
    def start(cls, config: RefQualityScoreConfig, seed: int) -> "EndpointJudge":
        """Nothing is started here; the endpoint was there when :meth:`check` asked."""
        return cls(config)

    def plan(self, question: str, response: str) -> ScoringRequest:
        """The request for one sample, its ids being code points."""
        scoring = self.config.scoring
        form: PromptForm = "full" if scoring.few_shot else "compact"
        return plan_request(
            self.encoder, question, response, self.http.max_prompt_chars, form, scoring.hard_clip
        )

    def answer(self, requests: Sequence[ScoringRequest], seeds: Sequence[int]) -> list[Reply]:
        """The endpoint's answers; what fails for good is the reply to that request alone."""
        return list(map(self._reply, _finished(self._ask(requests, seeds))))

    async def _ask(
        self, requests: Sequence[ScoringRequest], seeds: Sequence[int]
    ) -> list[Answer | OpenAIError | ValueError]:
        """The endpoint's answer to each request, or why there is none.

        A request to which nothing came back, retries included, stops further ones until another has
        an answer. When those under way have none either, the endpoint counts as gone, and the rest
        of the batch is not sent: each would wait as long.
        """
        turns, news = asyncio.Semaphore(self.http.concurrency), asyncio.Condition()
        sent, lost = 0, None  # requests under way; the connection lost last, until an answer comes

        # A client belongs to the loop that it was first used in.
        async with AsyncOpenAI(**self._arguments) as client:

            async def one(request: ScoringRequest, seed: int) -> Answer | OpenAIError | ValueError:
                nonlocal sent, lost
                async with turns:
                    async with news:
                        await news.wait_for(lambda: lost is None or sent == 0)
                        if lost is not None:
                            return lost
                        sent += 1
                    result: Answer | OpenAIError | ValueError
                    try:
                        result = await self._request(client, request, seed)
                    except (OpenAIError, ValueError) as error:
                        result = error
                    async with news:
                        sent -= 1
                        lost = result if isinstance(result, APIConnectionError) else None
                        news.notify_all()
                    return result

            return await asyncio.gather(*map(one, requests, seeds))

    async def _request(self, client: AsyncOpenAI, plan: ScoringRequest, seed: int) -> Answer:
        scoring = self.config.scoring
        expected = scoring.score_mode == "expected"
        options: dict[str, Any] = (
            {"logprobs": True, "top_logprobs": TOP_LOGPROBS} if expected else {}
        )
        wanted = self.http.enable_thinking
        extra: dict[str, Any] = {}  # vLLM's extensions of the API
        if wanted is not None:
            extra["chat_template_kwargs"] = {"enable_thinking": wanted}
        if self._regex is not None:
            extra["structured_outputs"] = {"regex": self._regex}
        if scoring.temperature > 0:
            options["seed"] = seed % 2**31
        raw = await client.chat.completions.with_raw_response.create(
            model=self.http.model or "",
            messages=[{"role": "user", "content": "".join(map(chr, plan.token_ids))}],
            temperature=scoring.temperature,
            max_tokens=scoring.max_new_tokens,
            extra_body=extra or None,
            **options,
        )
        return Answer.model_validate_json(raw.content)

    def _reply(self, answer: Answer | OpenAIError | ValueError) -> Reply:
        if isinstance(answer, Exception):
            refused = isinstance(answer, BadRequestError) and any(
                part in str(answer).lower() for part in _TOO_LONG
            )
            return self.too_long() if refused else self.failed(explain(answer), prompt_tokens=0)
        text, tokens = answer.text or "", answer.tokens or []
        expected = self.config.scoring.score_mode == "expected"
        if expected and text and not any(token.top_logprobs for token in tokens):
            return self.failed(
                f"{self.http.base_url} gives no log-probabilities, and score_mode=expected needs "
                "them: set score_mode=text, or let it give top_logprobs",
                answer.prompt_tokens,
            )
        parsed = self._parse(text, tokens)
        return Reply(parsed, text, answer.prompt_tokens, answer.new_tokens)

    def _parse(self, text: str, tokens: Sequence[Token]) -> ParsedScore:
        """The score; the endpoint's tokens get ids of our own."""
        mode = self.config.scoring.score_mode
        texts: list[str] = []

        def known(piece: str) -> int:
            texts.append(piece)
            return len(texts) - 1

        ids = [known(token.token) for token in tokens]
        top = [{known(t.token): t.logprob for t in token.top_logprobs} for token in tokens]
        return parse_tokens(text, ids or None, texts.__getitem__, top, self.invalid_score, mode)


def _finished(work: Coroutine[Any, Any, T]) -> T:
    """What the work gives; in a thread where this one has a loop already, as a notebook's has."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()
