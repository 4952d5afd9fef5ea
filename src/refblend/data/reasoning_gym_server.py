"""Serve reasoning-gym over a pipe: one JSON request per line on stdin, one JSON answer on stdout.

Run by the interpreter of an environment that has reasoning-gym, whose pins clash with ours; it
imports nothing of refblend. Requests: ``{"op": "make", "task", "size", "seed", "config"}`` →
``{"entries": [...]}``; ``{"op": "score", "task", "config", "answer", "entry"}`` →
``{"score": float}``. An error is answered as ``{"error": text}``.
"""

import json
import signal
import sys
from typing import Any

_DATASETS: dict[str, Any] = {}


def dataset(task: str, **options: Any) -> Any:
    """The procedural data set of a task, created once per set of options."""
    import reasoning_gym

    key = json.dumps([task, options], sort_keys=True)
    if key not in _DATASETS:
        _DATASETS[key] = reasoning_gym.create_dataset(task, **options)
    return _DATASETS[key]


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """The answer to one request."""
    task, config = request["task"], request["config"]
    if request["op"] == "make":
        made = dataset(task, size=request["size"], seed=request["seed"], **config)
        return {"entries": [dict(entry) for entry in made]}
    if request["op"] == "score":
        # The verifier depends on the task's options, never on size or seed.
        verifier = dataset(task, size=1, seed=0, **config)
        return {"score": float(verifier.score_answer(request["answer"], request["entry"]))}
    raise ValueError(f"unknown op {request['op']!r}")


def main() -> None:
    """Answer requests until the pipe closes; a signal to the whole group is the trainer's alone,
    which still scores the step that it finishes."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    replies = sys.stdout
    sys.stdout = sys.stderr  # a library that prints must not break the protocol
    for line in sys.stdin:
        try:
            reply = answer(json.loads(line))
        except Exception as error:  # every failure belongs to the request that caused it
            reply = {"error": f"{type(error).__name__}: {error}"}
        replies.write(json.dumps(reply, default=str) + "\n")
        replies.flush()


if __name__ == "__main__":
    main()
