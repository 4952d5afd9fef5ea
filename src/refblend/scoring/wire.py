"""The wire to an endpoint that speaks OpenAI's chat API: its answers, its errors, its limits.

A process has one client and one limiter for an endpoint, in the event loop of one background
thread, so that a notebook, whose loop is running, may ask as well. OpenAI's client makes the
attempts; each has a deadline as a whole.
"""

import asyncio
import functools
import math
import os
import re
import threading
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import httpx2
from openai import (
    APIConnectionError,
    APIStatusError,
    APITimeoutError,
    AsyncOpenAI,
    DefaultAsyncHttpxClient,
    OpenAIError,
)
from pydantic import AliasChoices, AliasPath, BaseModel, BeforeValidator, Field

from refblend.config.scoring import HttpJudgeConfig
from refblend.documents import shorten


class Alternative(BaseModel):
    """A possible token at a position; a log-probability that is not given is NaN."""

    token: str
    logprob: Annotated[float, BeforeValidator(lambda given: math.nan if given is None else given)]


class Token(BaseModel):
    """A token that was generated, with its alternatives where the endpoint gives them."""

    token: str
    top_logprobs: list[Alternative] | None = None


def _count(given: Any) -> int:
    """A number of tokens; 0 where the endpoint gives none that makes sense."""
    return int(given) if isinstance(given, int | float) and 0 <= given < 2**53 else 0


_Message = ("choices", 0, "message")


class Answer(BaseModel):
    """What is read of a chat completion; only what a score needs must fit."""

    text: str | None = Field(validation_alias=AliasPath(*_Message, "content"))
    thought: Any = Field(
        None,
        validation_alias=AliasChoices(
            AliasPath(*_Message, "reasoning_content"), AliasPath(*_Message, "reasoning")
        ),
    )
    """What a server that takes thoughts out of the text gives apart from it."""
    logprobs: Any = Field(None, validation_alias=AliasPath("choices", 0, "logprobs", "content"))
    """A list of :class:`Token`, checked by whoever needs it."""
    prompt_tokens: Annotated[int, BeforeValidator(_count)] = Field(
        0, validation_alias=AliasPath("usage", "prompt_tokens")
    )
    new_tokens: Annotated[int, BeforeValidator(_count)] = Field(
        0, validation_alias=AliasPath("usage", "completion_tokens")
    )


Outcome = Answer | OpenAIError | ValueError
"""What became of a request."""

_LENGTH_STATUS = (400, 413, 414, 422, 500)
_TOO_LONG = re.compile(
    r"context[ _](length|size|window)"  # OpenAI, vLLM, llama.cpp, SGLang, LM Studio
    r"|(max\w*|allowed) (\w+ )?length|too many (\w+ )?tokens"  # vLLM, SGLang, Cohere
    r"|(prompt|inputs?|messages?|string)( is|\b.{0,40}\bare)? too (long|large)"  # Ollama, OpenAI
    r"|inputs?\W+(tokens.{0,30})?must (be <=|have less)"  # TGI
    r"|(input|prompt|token)\b.{0,60}exceeds?\b.{0,40}(tokens|length|limit)",  # TensorRT-LLM, Google
    re.IGNORECASE,
)


def is_too_long(status: int, words: str) -> bool:
    """Whether an endpoint's answer says that it refused a prompt for its length."""
    return status == 413 or (status in _LENGTH_STATUS and _TOO_LONG.search(words) is not None)


def explain(error: Exception) -> str:
    """An error of the client in one line, with what it was about."""
    if isinstance(error, APIStatusError):
        reason = f"status {error.status_code} from {error.request.url}: {_words(error)}"
    elif isinstance(error, APITimeoutError):
        reason = f"no answer from {error.request.url} in time"
    elif isinstance(error, APIConnectionError):
        cause = error.__cause__ or error
        reason = f"no connection to {error.request.url} ({cause})"
    else:
        reason = f"unreadable answer ({error})"
    return shorten(" ".join(f"{type(error).__name__}: {reason}".split()), 300)


def _words(error: APIStatusError) -> str:
    """What the server said; OpenAI's client drops what is not said in OpenAI's way."""
    message = error.body.get("message") if isinstance(error.body, dict) else error.body
    return message if isinstance(message, str) else error.response.text or error.message


class _Client(DefaultAsyncHttpxClient):
    """Ends an attempt at its deadline, and tells OpenAI's client which errors are final."""

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """The answer with its body; ReadTimeout if it is not complete in time."""
        seconds = request.extensions["timeout"]["read"]
        try:
            async with asyncio.timeout(seconds):
                response = await super().send(request, **options)
        except TimeoutError:
            raise httpx2.ReadTimeout(f"not complete in {seconds} s", request=request) from None
        if response.is_error and is_too_long(response.status_code, response.text):
            response.headers["x-should-retry"] = "false"
        return response


class Wire:
    """All requests of this process to one endpoint; :func:`wire_to` gives it."""

    def __init__(self, http: HttpJudgeConfig, key: str, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._client = AsyncOpenAI(
            base_url=http.base_url,
            api_key=key,
            timeout=http.timeout_s,
            max_retries=http.max_retries,
            http_client=_Client(),
        )
        self._turns, self._news = asyncio.Semaphore(http.concurrency), asyncio.Condition()
        self._under_way = 0
        self._lost: APIConnectionError | None = None
        self._losses = 0

    def ask(self, bodies: Sequence[Mapping[str, Any]]) -> list[Outcome]:
        """The endpoint's answer to each request, or why there is none.

        After a request without an answer no further ones are sent until another one in flight is
        answered. If none is, the endpoint counts as gone, and the waiting requests fail unsent.
        """

        async def all_of_them() -> list[Outcome]:
            before = self._losses
            return await asyncio.gather(*(self._in_turn(body, before) for body in bodies))

        future = asyncio.run_coroutine_threadsafe(all_of_them(), self._loop)
        try:
            return future.result()
        finally:
            future.cancel()  # this thread may be interrupted

    async def _in_turn(self, body: Mapping[str, Any], losses_before: int) -> Outcome:
        def lost() -> APIConnectionError | None:
            return self._lost if self._losses > losses_before else None

        async with self._turns:
            async with self._news:
                await self._news.wait_for(lambda: lost() is None or self._under_way == 0)
            if (gone := lost()) is not None:
                return gone
            self._under_way += 1
            result: Outcome | None = None
            try:
                raw = await self._client.chat.completions.with_raw_response.create(**body)
                result = Answer.model_validate_json(raw.content)
            except (OpenAIError, ValueError) as error:
                result = error
            finally:  # it may be cancelled
                self._under_way -= 1
                self._lost = result if isinstance(result, APIConnectionError) else None
                self._losses += self._lost is not None
                async with self._news:
                    self._news.notify_all()
            return result


_opening = threading.Lock()


def wire_to(http: HttpJudgeConfig, key: str) -> Wire:
    """This process's wire to an endpoint; judges that ask in the same way share it."""
    shared = http.model_copy(update={"model": None, "enable_thinking": None, "max_prompt_chars": 1})
    with _opening:
        return _wire(shared, key)


@functools.cache
def _wire(http: HttpJudgeConfig, key: str) -> Wire:
    return Wire(http, key, _loop())


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="judge endpoint", daemon=True).start()
    return loop


def _forget() -> None:
    """A forked child has neither the parent's thread nor a right to its connections."""
    global _opening
    _opening = threading.Lock()
    _wire.cache_clear()
    _loop.cache_clear()


os.register_at_fork(after_in_child=_forget)
