"""An endpoint on loopback that answers as told; :data:`FAULTS` are the ways it may go wrong."""

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from refblend.config.algorithm import RefQualityScoreConfig
from refblend.scoring.endpoint import EndpointJudge
from refblend.scoring.judge import start_judge

MODEL = "tiny-judge"
Answer = Callable[[dict[str, Any]], tuple[int, Any]]


def completion(text: str | None, logprobs: Any = None, **message: Any) -> dict[str, Any]:
    """A chat completion as vLLM writes it."""
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": MODEL,
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": text, **message},
                "logprobs": None if logprobs is None else {"content": logprobs},
            }
        ],
        "usage": {"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16},
    }


def with_usage(usage: Any) -> dict[str, Any]:
    """A good answer whose statistics are as given."""
    return completion("\\box{0.75}") | {"usage": usage}


TOKENS = ["\\box{", "0", ".", "3", "7", "}"]


def with_logprobs(first_decimal: dict[str, float | None] | None) -> list[dict[str, Any]]:
    """The tokens of ``\\box{0.37}``; the first decimal has alternatives, or None at all."""
    tops: list[dict[str, float | None] | None] = [{t: 0.0} for t in TOKENS]
    tops[3] = first_decimal
    return [
        {
            "token": token,
            "logprob": (top or {}).get(token),
            "bytes": None,
            "top_logprobs": top
            and [{"token": t, "logprob": p, "bytes": None} for t, p in top.items()],
        }
        for token, top in zip(TOKENS, tops, strict=True)
    ]


@dataclass
class Drip:
    """A body that comes one byte at a time."""

    body: bytes
    seconds: float


class Endpoint(ThreadingHTTPServer):
    """Serves ``/v1/chat/completions`` as ``answer`` decides."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer: Answer = lambda body: (200, completion("\\box{0.75}"))
        self.bodies: list[dict[str, Any]] = []
        self.keys: set[str | None] = set()
        self.connections = 0
        self.busy = self.most_busy = 0
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    def fail(self, fault: str) -> None:
        """Answer from now on with one of :data:`FAULTS`."""
        self.answer = FAULTS[fault](self)


class Handler(BaseHTTPRequestHandler):
    server: Endpoint
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        with self.server.lock:
            self.server.connections += 1

    def do_POST(self) -> None:
        assert self.path == "/v1/chat/completions"
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server = self.server
        with server.lock:
            server.bodies.append(body)
            server.keys.add(self.headers["Authorization"])
            server.busy += 1
            server.most_busy = max(server.most_busy, server.busy)
        try:
            self.send(*server.answer(body))
        finally:
            with server.lock:
                server.busy -= 1

    def send(self, status: int, content: Any) -> None:
        drip = content if isinstance(content, Drip) else None
        content = drip.body if drip else content
        content = content.encode() if isinstance(content, str) else content
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        try:
            for byte in data if drip else ():
                self.wfile.write(bytes([byte]))
                time.sleep(drip.seconds if drip else 0)
            self.wfile.write(b"" if drip else data)
        except OSError:
            self.close_connection = True  # the client has hung up

    def log_message(self, *_: Any) -> None:
        pass


def _echo(status: int) -> Callable[[Endpoint], Answer]:
    """Every answer quotes the header that brought the key, as some gateways do."""

    def of(server: Endpoint) -> Answer:
        def answer(request: dict[str, Any]) -> tuple[int, Any]:
            told = ", ".join(str(key) for key in server.keys)
            if status == 200:
                return 200, completion(f"I was asked with {told} \\box{{0.75}}")
            return status, {"error": {"message": f"no access with {told}", "code": status}}

        return answer

    return of


def _says(content: Any, status: int = 200) -> Callable[[Endpoint], Answer]:
    return lambda server: lambda request: (status, content)


TOO_LONG: dict[str, tuple[int, Any]] = json.loads(
    Path(__file__).with_name("too_long.json").read_text(encoding="utf-8")
)
"""How servers say that a prompt is too long: status, and a body of JSON or text."""

FAULTS: dict[str, Callable[[Endpoint], Answer]] = {
    "key echoed in a refusal": _echo(401),
    "key echoed in a failure": _echo(500),
    "key echoed in an answer": _echo(200),
    "drip": _says(Drip(json.dumps(completion("\\box{0.75}")).encode(), 0.05)),
    "thought": _says(completion("<think>\\box{0.1}</think> The answer is right")),
    "thought, open": _says(completion("<think>Maybe \\box{0.1}? Let me look")),
    "thought, then a score": _says(completion("<think>\\box{0.1}?</think>\n\\box{0.75}")),
    "thought apart": _says(completion(None, reasoning_content="Maybe \\box{0.1}")),
    "no usage": _says(with_usage(None)),
    "usage of nulls": _says(with_usage({"prompt_tokens": None, "completion_tokens": None})),
    "usage in fractions": _says(with_usage({"prompt_tokens": 11.5, "completion_tokens": 5.0})),
    "usage in words": _says(with_usage({"prompt_tokens": "many", "completion_tokens": -1})),
    "no alternatives": _says(completion("\\box{0.37}", with_logprobs(None))),
    "NaN": _says(completion("\\box{0.37}", with_logprobs({"3": float("nan"), "9": -0.1}))),
    "null for a number": _says(completion("\\box{0.37}", with_logprobs({"3": None, "9": -0.1}))),
} | {f"too long: {server}": _says(body, status) for server, (status, body) in TOO_LONG.items()}
"""Ways in which the endpoint goes wrong, by name: what it answers from then on."""


def config(url: str, http: dict[str, Any] | None = None, **scoring: Any) -> RefQualityScoreConfig:
    """A judge behind an address, which does not wait long."""
    quick = {"base_url": url, "model": MODEL, "timeout_s": 5.0, "max_retries": 1}
    defaults = {"kind": "http", "templates": "embedded", "score_mode": "text"}
    tree = defaults | scoring | {"http": quick | (http or {})}
    return RefQualityScoreConfig.model_validate({"scoring": tree, "invalid_score": 0.4})


def judge(endpoint: Endpoint, http: dict[str, Any] | None = None, **scoring: Any) -> EndpointJudge:
    """The judge behind this endpoint."""
    started = start_judge(config(endpoint.url, http, **scoring))
    assert isinstance(started, EndpointJudge)
    return started
