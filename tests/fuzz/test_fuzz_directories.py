"""A run's directory under calls for other runs, other code, and kills at any file operation.

Whatever is asked for and whenever the process ends, every file of the old run is there: in its
place, or complete in a directory that it was moved to.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from fuzz_support import IDENTITY, check_refusal, content, folder
from hypothesis import given
from hypothesis import strategies as st

from refblend.config.trainer import TrainerConfig
from refblend.errors import CheckpointError
from refblend.files import write_json
from refblend.identity import IDENTITY_NAME
from refblend.trainer.checkpoint import CheckpointManager, write_state
from refblend.trainer.run_directory import open_run, record_start
from refblend.trainer.tracking import MetricsLog

STEPS = IDENTITY.total_steps
MOVES = (
    *("pathlib.Path.rename", "pathlib.Path.replace", "pathlib.Path.mkdir"),
    *("os.link", "shutil.copy2"),
)


class Killed(BaseException):
    """Stands for SIGKILL: nothing of the program's own handles it."""


@contextmanager
def killed_at(count: int) -> Iterator[None]:
    """End the process, as it were, before or after its ``count``-th file operation; 0: never."""
    left = 2 * count

    def wrapped(name: str) -> Any:
        module, _, attribute = name.rpartition(".")
        holder: Any = Path if module == "pathlib.Path" else __import__(module)
        original = getattr(holder, attribute)

        def call(*arguments: Any, **named: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 1:
                raise Killed
            result = original(*arguments, **named)
            left -= 1
            if left == 0:
                raise Killed
            return result

        return mock.patch(name, call)

    with ExitStack() as patches:
        for name in MOVES:
            patches.enter_context(wrapped(name))
        yield


def place(path: Path, steps: int) -> dict[str, bytes]:
    """A run with a checkpoint; the content of its files."""
    with open_run(path, IDENTITY, TrainerConfig()) as prepared:
        record_start(path, IDENTITY, prepared)
    log = MetricsLog(path / "metrics.jsonl")
    for step in range(steps + 1):
        log.append(step, {"loss": 1.0})
        if step:
            with CheckpointManager(path / "checkpoints").staging(step) as staged:
                (staged / "model.safetensors").write_bytes(b"weights")
                write_state(staged, {"step": step})
    if steps == STEPS:
        write_json(path / "summary.json", {"status": "finished", "steps": steps})
        write_json(path / "test.json", {"greedy": 0.5})
    return content(path)


def nothing_is_lost(root: Path, before: dict[str, bytes]) -> None:
    """One directory has all files; where the run goes on, its record may name another source."""
    found = [content(path) for path in root.iterdir() if path.is_dir()]
    aside = any(all(each.get(k) == v for k, v in before.items()) for each in found)
    kept = {k: v for k, v in before.items() if k != IDENTITY_NAME}
    assert aside or any(all(each.get(k) == v for k, v in kept.items()) for each in found)


WANTED = st.builds(
    lambda gamma, freq, numbers, data, steps: replace(
        IDENTITY,
        config={"algorithm": {"gamma": gamma}, "trainer": {"test_freq": freq}},
        numerics={"train": numbers},
        data={"train.parquet": data},
        total_steps=steps,
    ),
    st.sampled_from([1.0, 1.0, 0.9]),
    st.sampled_from([5, 7]),
    st.sampled_from([1, 1, 2]),
    st.sampled_from(["aa", "aa", "cc"]),
    st.sampled_from([STEPS, STEPS, 2, 9]),
)


@given(st.data())
def test_nothing_of_a_run_is_lost(data: st.DataObject) -> None:
    wanted = data.draw(WANTED)
    mode = data.draw(st.sampled_from(["auto", "auto", "disable"]))
    with folder() as root:
        run = root / "run"
        before = place(run, data.draw(st.integers(1, STEPS)))
        overwrite = data.draw(st.booleans())
        options = TrainerConfig(strict_code=data.draw(st.booleans()), resume_mode=mode)
        for count in (data.draw(st.integers(0, 8)), 0):
            try:
                with killed_at(count), open_run(run, wanted, options, overwrite) as prepared:
                    record_start(run, wanted, prepared)
            except Killed:
                pass
            except CheckpointError as error:
                check_refusal(error, str(run))
                assert content(run) == before, "a refusal changes nothing"
            nothing_is_lost(root, before)
