"""The wire format of a judge behind HTTP: the answers that are read, and the preflight."""

import os
from typing import Any

from openai import APIConnectionError, APIStatusError, APITimeoutError, OpenAI, OpenAIError
from pydantic import AliasPath, BaseModel, Field

from refblend.config.scoring import HttpJudgeConfig
from refblend.documents import shorten
from refblend.errors import ConfigError, ScoringError

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
    """Arguments of OpenAI's clients, the key among them.

    Raises:
        ConfigError: the environment variable of the key is not set.
    """
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
    """Refuse an endpoint that is away, refuses the key or does not serve the model.

    An endpoint without a list of models is taken at its word.

    Raises:
        ScoringError: says which, with the address.
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
