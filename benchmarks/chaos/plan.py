"""Which faults are injected, where and when: a seeded list."""

import random
from dataclasses import dataclass

TARGETS = {
    "command": "",
    "driver": "",
    "rollout engine": "ray::RolloutWorker",
    "judge": "ray::JudgeWorker",
    "training rank": "ray::ActorWorker",
    "reference policy": "ray::ReferenceWorker",
    "raylet": "raylet/raylet",
    "Ray's head": "gcs/gcs_server",
    "Snakemake": "",
}
"""A process below the driver plays the role when its first word has this text. The command is what
the user started, and the driver its child (:mod:`refblend.lifecycle.guardian`); Snakemake has a way
of its own (:mod:`chaos.snakemake_case`)."""

SIGNALS = ("SIGKILL", "SIGTERM", "SIGSTOP")


@dataclass(frozen=True)
class Injection:
    """The target, the fault, and the time."""

    number: int
    target: str
    signal: str
    after_lines: int
    """So many lines of ``metrics.jsonl`` are waited for; 0: the engines are still starting."""
    delay_s: float
    """And so many seconds more: any stage of a step, or of the start."""


SHORT = (
    Injection(0, "driver", "SIGKILL", 2, 0.3),
    Injection(1, "rollout engine", "SIGKILL", 1, 0.3),
    Injection(2, "driver", "SIGTERM", 2, 0.3),
)
"""For ``make chaos-short``: a stop, a kill and a worker's death, each in the middle of the run."""

DIRECTORY = ("moving aside", "other code", "other configuration", "two Ctrl-C")
"""What a run's directory must survive (:mod:`chaos.directory`)."""
SHORT_DIRECTORY = ("moving aside", "two Ctrl-C")
"""Those of ``make chaos-short``; fast tests try the others."""
FIRST_DIRECTORY = 1000
"""Number of the first of these cases."""


def directory_injections(count: int, seed: int = 0) -> list[Injection]:
    """The cases of :data:`DIRECTORY` in turn, at random times during steps 1 to 3."""
    rng = random.Random(f"directory {seed}")
    planned = []
    for number in range(count):
        target = DIRECTORY[number % len(DIRECTORY)]
        sent = "SIGINT" if target == "two Ctrl-C" else "SIGKILL"
        moment = rng.randint(1, 3), round(rng.uniform(0, 1), 2)
        planned.append(Injection(FIRST_DIRECTORY + number, target, sent, *moment))
    return planned


def injections(count: int, seed: int = 0) -> list[Injection]:
    """Every pair of target and signal in turn, at random times during the start or steps 1 to 4.

    Args:
        count: number of injections.
        seed: for the order and the times.
    """
    rng = random.Random(seed)
    pairs = [(target, signal) for signal in SIGNALS for target in TARGETS]
    rng.shuffle(pairs)
    planned = []
    for number in range(count):
        lines = rng.randint(0, 4)
        delay = rng.uniform(0, 2) if lines else rng.uniform(0, 12)
        planned.append(Injection(number, *pairs[number % len(pairs)], lines, round(delay, 2)))
    return planned
