"""A rule reward that can strike: it ends processes of the run in the middle of a step.

The reward is computed while judge, actor, critic and reference policy work, so a strike there
hits a step half done. What to strike is told by the environment::

    SABOTEUR_RUN=<run directory>  SABOTEUR_AFTER=<checkpointed step>  SABOTEUR_TARGET=<target>

where the target is ``driver`` (SIGKILL), ``driver-term`` (SIGTERM), ``driver-int`` (SIGINT),
``driver-int-twice`` (again after half a second) or the class of a worker, such as
``RolloutWorker`` (SIGKILL). Each strike happens once: a file beside the run remembers it.
``SABOTEUR_DELAY=<seconds>`` strikes that much later, in whatever stage the run is then, and
``SABOTEUR_RANKS=<n>`` hits only so many processes of the class. ``SABOTEUR_STEPS=<n>`` waits for
the step after so many recorded ones.
"""

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import ray


def reward(
    data_source: str, solution_str: str, ground_truth: str, extra_info: dict[str, Any]
) -> dict[str, float]:
    """Share of ASCII letters in the text; right when there are many."""
    del data_source, ground_truth, extra_info
    _strike()
    letters = sum(c.isascii() and c.isalpha() for c in solution_str)
    share = letters / max(1, len(solution_str))
    return {"score": share, "acc": float(share > 0.7)}


def _strike() -> None:
    target = os.environ.get("SABOTEUR_TARGET")
    if target is None or not ray.is_initialized():  # not in the preflight's trial call
        return
    run = Path(os.environ["SABOTEUR_RUN"])
    after = int(os.environ["SABOTEUR_AFTER"])
    done = run.parent / f"{run.name}-{target}-{after}.struck"
    saved = run / "checkpoints" / "latest_checkpointed_iteration.txt"
    reached = int(saved.read_text()) if saved.exists() else 0
    recorded = run / "metrics.jsonl"
    steps = len(recorded.read_text().splitlines()) - 1 if recorded.exists() else -1
    # Only inside a training step: the validation of step 0 comes before its line is written.
    if done.exists() or reached != after or steps < int(os.environ.get("SABOTEUR_STEPS", after)):
        return
    done.touch()
    delay = float(os.environ.get("SABOTEUR_DELAY", "0"))
    if delay:
        threading.Timer(delay, _hit, [target]).start()
    else:
        _hit(target)
        time.sleep(0.1)


def _hit(target: str) -> None:
    if target == "driver":
        os.kill(os.getpid(), signal.SIGKILL)
    elif target == "driver-term":
        os.kill(os.getpid(), signal.SIGTERM)
    elif target.startswith("driver-int"):
        os.kill(os.getpid(), signal.SIGINT)
        if target.endswith("twice"):
            time.sleep(0.5)
            os.kill(os.getpid(), signal.SIGINT)
    else:
        ranks = os.environ.get("SABOTEUR_RANKS")
        for process in workers(target)[: int(ranks) if ranks else None]:
            process.kill()
            process.wait(10)


def workers(name: str) -> list[psutil.Process]:
    """The Ray workers of this driver whose class is ``name``; Ray puts it into their title."""
    children = psutil.Process().children(recursive=True)
    found = [p for p in children if any(name in word for word in p.cmdline()[:1])]
    assert found, [p.cmdline()[:1] for p in children]
    return found
