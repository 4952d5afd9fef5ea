"""Serve reasoning-gym over a pipe: one JSON request per line on stdin, one JSON answer on stdout.

Run by the interpreter of an environment that has reasoning-gym, whose pins clash with ours; it
imports nothing of refblend. Requests: ``{"op": "make", "task", "size", "seed", "config"}`` →
``{"entries": [...]}``; ``{"op": "score", "task", "config", "answer", "entry"}`` →
``{"score": float}``. An error is answered as ``{"error": text}``. An answer over which the verifier
sits for longer than LIMIT_S, such as a tower of powers, has the score 0. Entries keep their tuples,
which some verifiers compare, and keys that are no texts: see :func:`packed`.
"""

import json
import signal
import sys
from typing import Any

LIMIT_S = 5.0
"""Longest time for one verdict, as for the mathematical rule."""

_DATASETS: dict[str, Any] = {}


_TUPLE, _ITEMS = "__tuple__", "__items__"


def packed(value: Any) -> Any:
    """A value as JSON can hold it; :func:`unpacked`, as ``object_hook``, gives it back."""
    if isinstance(value, tuple):
        return {_TUPLE: [packed(part) for part in value]}
    if isinstance(value, list):
        return [packed(part) for part in value]
    if not isinstance(value, dict):
        return value
    if all(isinstance(key, str) for key in value):
        return {key: packed(part) for key, part in value.items()}
    return {_ITEMS: [[packed(key), packed(part)] for key, part in value.items()]}


def unpacked(value: dict[str, Any]) -> Any:
    """What :func:`packed` made an object of; any other object as it is."""
    if value.keys() == {_TUPLE}:
        return tuple(value[_TUPLE])
    return dict(value[_ITEMS]) if value.keys() == {_ITEMS} else value


class TooLongError(BaseException):
    """The verifier's time is up; a task's ``except Exception`` must not catch it."""


def dataset(task: str, **options: Any) -> Any:
    """The procedural data set of a task, created once per set of options."""
    import reasoning_gym

    key = json.dumps([task, options], sort_keys=True)
    if key not in _DATASETS:
        _DATASETS[key] = reasoning_gym.create_dataset(task, **options)
    return _DATASETS[key]


def limited(verifier: Any, text: str, entry: dict[str, Any]) -> float:
    """The verifier's score of an answer, 0 when its time is up."""
    signal.signal(signal.SIGALRM, _time_is_up)
    signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
    try:
        return float(verifier.score_answer(text, entry))
    except TooLongError:
        print(f"no verdict on {text[:80]!r} in {LIMIT_S:g} s: it counts as wrong", file=sys.stderr)
        return 0.0
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)


def _time_is_up(*_: Any) -> None:
    raise TooLongError


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """The answer to one request."""
    task, config = request["task"], request["config"]
    if request["op"] == "make":
        made = dataset(task, size=request["size"], seed=request["seed"], **config)
        return {"entries": [packed(dict(entry)) for entry in made]}
    if request["op"] == "score":
        # The verifier depends on the task's options, never on size or seed.
        verifier = dataset(task, size=1, seed=0, **config)
        return {"score": limited(verifier, request["answer"], request["entry"])}
    raise ValueError(f"unknown op {request['op']!r}")


def main() -> None:
    """Answer requests until the pipe closes, whatever signals the trainer gets."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    replies = sys.stdout
    sys.stdout = sys.stderr  # a library that prints must not break the protocol
    for line in sys.stdin:
        try:
            reply = answer(json.loads(line, object_hook=unpacked))
        except (Exception, SystemExit) as error:  # each belongs to the request that caused it
            reply = {"error": f"{type(error).__name__}: {error}"}
        replies.write(json.dumps(reply, default=str) + "\n")
        replies.flush()


if __name__ == "__main__":
    main()
