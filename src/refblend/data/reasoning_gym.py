"""Procedural tasks of reasoning-gym in verl's schema, and its own verifiers.

Source: https://github.com/open-thought/reasoning-gym (Apache-2.0). The library pins versions that
clash with ours, so it has a separate environment (``make reasoning-gym``) and is queried over a
pipe (:mod:`refblend.data.reasoning_gym_server`).
"""

import json
import os
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from refblend.data import reasoning_gym_server
from refblend.data.gsm8k import INSTRUCTION
from refblend.data.schema import PromptRow
from refblend.data.splits import SPLITS
from refblend.documents import show
from refblend.errors import DataError, RewardError

SOURCE_PREFIX = "reasoning_gym/"
"""A row's ``data_source`` is this prefix and the task's name."""
PYTHON_VARIABLE = "REFBLEND_REASONING_GYM_PYTHON"
DEFAULT_PYTHON = Path(".tools/reasoning-gym/bin/python")
_PATIENCE_S = 10
"""How long the server may take to end when its input does."""
_SEEDS, _APART = 2**32, 10**7
"""How many seeds we have, and how far apart the library's are: more than is ever drawn of one."""
_SPARE = 4
"""Entries are drawn in rounds until there are enough different questions, at most this many."""


def find_python() -> str:
    """The interpreter that has reasoning-gym: ours, the configured one, or that of ``make``."""
    named = os.environ.get(PYTHON_VARIABLE)
    if named:
        return named
    if find_spec("reasoning_gym") is not None:
        return sys.executable
    if DEFAULT_PYTHON.is_file():
        return str(DEFAULT_PYTHON)
    raise DataError(
        f"reasoning-gym is not installed: neither here nor in {DEFAULT_PYTHON}",
        f"Run `make reasoning-gym`, or name a Python that has it in {PYTHON_VARIABLE}.",
    )


class ReasoningGym:
    """A running server of reasoning-gym; make one with :func:`reasoning_gym`."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        requests, replies = self._process.stdin, self._process.stdout
        assert requests is not None, "opened with pipes"
        assert replies is not None, "opened with pipes"
        try:
            requests.write(json.dumps(request) + "\n")
            requests.flush()
            line = replies.readline()
        except OSError:
            line = ""
        if not line:
            raise DataError(
                f"the process of reasoning-gym ended with status {self._process.wait()}",
                "Its own message is above; install it again with `make reasoning-gym`.",
            )
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            told = f"reasoning-gym task {request['task']}: {reply['error']}"
            if request["op"] == "score":
                raise RewardError(
                    f"{told} (the answer was {show(request['answer'])})",
                    "Write the file again with `refblend data reasoning-gym`.",
                )
            if "ModuleNotFoundError" in reply["error"]:
                raise DataError(told, "Remove .tools/reasoning-gym and run `make reasoning-gym`.")
            raise DataError(
                told, "Correct --task or --config; the library documents the options of each task."
            )
        return reply

    def entries(
        self, task: str, size: int, seed: int, config: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        """``size`` problems of a task; DataError if the library refuses it."""
        request = {"op": "make", "task": task, "size": size, "seed": seed, "config": dict(config)}
        made: list[dict[str, Any]] = self._ask(request)["entries"]
        return made

    def score(
        self, task: str, answer: str, entry: Mapping[str, Any], config: Mapping[str, Any]
    ) -> float:
        """The library's own verdict on an answer, in [0, 1]; RewardError if its verifier fails."""
        request = {"op": "score", "task": task, "answer": answer, "entry": dict(entry)}
        return float(self._ask({**request, "config": dict(config)})["score"])


@contextmanager
def reasoning_gym() -> Iterator[ReasoningGym]:
    """Start the server, and end it with the block; DataError if reasoning-gym is not installed."""
    # -P: otherwise this folder's reasoning_gym.py would shadow the library.
    command = [find_python(), "-P", "-W", "ignore", str(Path(reasoning_gym_server.__file__))]
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )
    except OSError as error:
        raise DataError(
            f"{command[0]} cannot be started ({error.strerror})", f"Correct {PYTHON_VARIABLE}."
        ) from error
    try:
        yield ReasoningGym(process)
    finally:
        try:
            process.communicate(timeout=_PATIENCE_S)  # the end of its input ends the server
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def make_splits(
    gym: ReasoningGym,
    task: str,
    size: int,
    held_out: int,
    seed: int,
    config: Mapping[str, Any],
    without: Collection[str] = (),
) -> dict[str, list[PromptRow]]:
    """All splits of a task; no question is in two of them, or in ``without``.

    Train has ``size`` rows, the others ``held_out`` each; ``config`` are the task's own options,
    e.g. ``{"min_terms": 2}``. DataError if there are too few questions.
    """
    sizes = {name: size if name == "train" else held_out for name in SPLITS}
    wanted = sum(sizes.values())
    found: dict[str, dict[str, Any]] = {}
    for attempt in range(_SPARE):
        # The library draws entry i of seed s from s + i: seeds closer together share entries.
        drawn = 1 + (seed - 1) % _SEEDS * _APART + attempt * wanted
        for entry in gym.entries(task, wanted, drawn, config):
            if (question := entry["question"].strip()) not in without:
                found.setdefault(question, entry)
        if len(found) >= wanted:
            break
    else:
        raise DataError(
            f"reasoning-gym task {task} gave {len(found)} different questions, {wanted} are asked "
            "for",
            "Lower --size or --held-out, or widen the task's --config.",
        )
    entries = iter(found.values())
    # The held-out splits come first, so a larger train split does not change them.
    splits = {
        name: [_row(task, config, name, index, next(entries)) for index in range(sizes[name])]
        for name in reversed(SPLITS)
    }
    return {name: splits[name] for name in SPLITS}


def _row(
    task: str, config: Mapping[str, Any], split: str, index: int, entry: Mapping[str, Any]
) -> PromptRow:
    question = entry["question"].strip()
    return PromptRow(
        index=index,
        data_source=SOURCE_PREFIX + task,
        messages=[{"role": "user", "content": f"{question} {INSTRUCTION}"}],
        question=question,
        ground_truth="" if entry["answer"] is None else str(entry["answer"]),
        solution="",
        extra={
            "split": split,
            # As text: parquet would merge the columns of entries with different metadata.
            "entry": json.dumps(entry, sort_keys=True),
            "task_config": json.dumps(dict(config), sort_keys=True),
        },
    )
