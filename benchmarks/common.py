"""Shared by the benchmarks: random models of real shapes, inputs, alternation, and the record.

Import this before torch or refblend: it sets the threads of the process (one, unless
``OMP_NUM_THREADS`` says otherwise). Absolute times on shared machines mean little, so every
benchmark measures its variants in turn in one process and reports ratios. With one thread, time is
the CPU time of the process, which equals wall time on an idle core and is less affected by other
load.
"""

import multiprocessing
import os
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

THREADS = int(os.environ.get("OMP_NUM_THREADS", "1"))

from refblend import runtime

runtime.configure_process(THREADS)

import pandas as pd
import torch
from rich.console import Console
from rich.table import Table

from refblend.config import load_config
from refblend.data.splits import write_splits
from refblend.embedded.architecture import build_model, save_model
from refblend.embedded.demonstrations import build_tokenizer
from refblend.embedded.prepare import recipe_rows
from refblend.embedded.recipe import ArchitectureRecipe, DataRecipe, EmbeddedConfig, load_recipe
from refblend.files import write_json
from refblend.provenance import Source, hardware, library_versions
from refblend.scoring.templates import load_templates

if TYPE_CHECKING:
    from refblend.rollout.vllm_engine import VllmEngine

torch.set_num_threads(THREADS)

ROOT = Path(__file__).resolve().parents[1]
WRITTEN = "benchmarks/results"
RESULTS = ROOT / WRITTEN
CONFIGS = [ROOT / "params" / "ppo.yaml", ROOT / "params" / "scale" / "cpu.yaml"]
_SCALE = load_config(CONFIGS, [])
PROMPTS, GROUP = _SCALE.data.train_batch_size, _SCALE.actor_rollout_ref.rollout.n
"""Scale cpu: prompts per step, responses per prompt."""

_start_load = os.getloadavg()[0]


def embedded_tokenizer() -> Any:
    """The tokenizer of scale cpu."""
    recipe = load_recipe(ROOT / "params" / "embedded" / "cpu.yaml")
    return build_tokenizer(recipe, load_templates("embedded"))


def make_model(directory: Path, tokenizer: Any, seed: int = 0, **shape: Any) -> Path:
    """Write a random model of the embedded architecture; ``shape`` changes its recipe."""
    recipe = load_recipe(ROOT / "params" / "embedded" / "cpu.yaml").architecture
    recipe = ArchitectureRecipe(**recipe.model_dump() | shape)
    save_model(directory, build_model(recipe, tokenizer, seed), tokenizer, {})
    return directory


def prepare_data(folder: Path) -> None:
    """Problems for the runs of :func:`runs.overrides`, below ``folder``."""
    data = DataRecipe(train_rows=256, validation_rows=8, test_rows=8)
    write_splits(folder / "data", recipe_rows(EmbeddedConfig(data=data)))


def link_actor(folder: Path) -> Path:
    """``folder/actor``, the model that the committed runs of scale cpu started from.

    Raises:
        SystemExit: it is not there.
    """
    actor = ROOT / "models" / "cpu" / "actor"
    if not (actor / "model.safetensors").exists():
        raise SystemExit(f"{actor} holds no model. Unpack it: make prepare SCALE=cpu")
    (folder / "actor").symlink_to(actor, target_is_directory=True)
    return folder / "actor"


def train_prompts(folder: Path, count: int) -> list[str]:
    """The first questions of the training data below ``folder``, with their instruction."""
    frame = pd.read_parquet(folder / "data" / "train.parquet", columns=["prompt"])
    return [chat[-1]["content"] for chat in frame["prompt"].head(count)]


def prepare_inputs(folder: Path) -> None:
    """Data, the actor of the committed runs and a random judge, below ``folder``."""
    link_actor(folder)
    make_model(folder / "judge", embedded_tokenizer(), seed=1)
    prepare_data(folder)


def judge_sampling(
    engine: "VllmEngine", new_tokens: int, regex: str | None, log_probs: bool = True
) -> Any:
    """What the judge stage asks of vLLM by default in training, for the bare engine beside it."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

    from refblend.scoring.generative import TOP_LOGPROBS

    return SamplingParams(
        temperature=0.0,
        max_tokens=new_tokens,
        logprobs=TOP_LOGPROBS if log_probs else None,
        flat_logprobs=True,
        detokenize=False,
        stop_token_ids=engine._stop_ids,
        output_kind=RequestOutputKind.FINAL_ONLY,
        structured_outputs=StructuredOutputsParams(regex=regex) if regex else None,
    )


def seconds(work: Callable[[], object]) -> float:
    """CPU time of one call on one thread, wall time on several."""
    clock = time.process_time if THREADS == 1 else time.perf_counter
    start = clock()
    work()
    return clock() - start


UPDATES_TO_WARM_UP = 3
"""A network's memory is all there after as many updates."""

Cases = Mapping[str, Callable[[], object]]
_apart: dict[str, Callable[[], object]] = {}
"""In a process of :class:`Apart`: what it can measure."""


class Apart:
    """Cases in a process of their own, as a run has them.

    Where a vLLM engine lives, large tensors are an order of magnitude slower to allocate, and an
    update of 135M parameters takes 1.7 times as long.

    Args:
        load: makes the cases, in that process; a function of a module.
        arguments: of ``load``.
    """

    def __init__(self, load: Callable[..., Cases], *arguments: object) -> None:
        self._process = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
        self.names: list[str] = self._process.submit(_load_apart, load, *arguments).result()

    def __enter__(self) -> "Apart":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.shutdown()

    def seconds(self, name: str) -> float:
        """:func:`seconds` of a case, measured there."""
        return self._process.submit(_seconds_apart, name).result()


def _load_apart(load: Callable[..., Cases], *arguments: object) -> list[str]:
    runtime.prepare_process(THREADS)
    runtime.keep_freed_memory()  # as the actor's process does
    _apart.update(load(*arguments))
    return list(_apart)


def _seconds_apart(name: str) -> float:
    return seconds(_apart[name])


def alternate(
    cases: Cases,
    repeats: int,
    warm_ups: int = 1,
    before: Callable[[], object] = lambda: None,
    apart: Apart | None = None,
) -> dict[str, list[float]]:
    """Time every case in turn, ``repeats`` rounds after the warm-ups; seconds of each round.

    ``before`` runs before each case and is not timed; the cases ``apart`` follow in each round.
    """
    times: dict[str, list[float]] = {name: [] for name in (*cases, *(apart.names if apart else []))}
    for repeat in range(repeats + warm_ups):
        for name in times:
            if name in cases:
                before()
                spent = seconds(cases[name])
            else:
                assert apart is not None, "a name that is not of a case here"
                spent = apart.seconds(name)
            if repeat >= warm_ups:
                times[name].append(spent)
    return times


def ratio(numerator: list[float], denominator: list[float]) -> float:
    """Median over rounds of the ratio within a round: a disturbance affects both variants."""
    return statistics.median(a / b for a, b in zip(numerator, denominator, strict=True))


def show(title: str, columns: list[str], rows: list[list[Any]]) -> None:
    """Print a table; floats with three significant digits."""
    table = Table(*columns, title=title)
    for row in rows:
        table.add_row(*(f"{v:.3g}" if isinstance(v, float) else str(v) for v in row))
    Console().print(table)


def work_tree() -> dict[str, Any]:
    """Commit, and whether anything but the benchmarks' own results differs from it."""
    command = ["git", "-C", str(ROOT), "status", "--porcelain", "--", ".", ":(exclude)" + WRITTEN]
    status = subprocess.run(command, capture_output=True, text=True, check=False)
    commit = Source.of(ROOT).commit
    return {"commit": commit, "dirty": bool(status.stdout.strip()) if commit else None}


def record(name: str, what: str, value: float, goal: float, figures: Mapping[str, Any]) -> None:
    """Write ``benchmarks/results/<name>.json``.

    Args:
        name: of the benchmark.
        what: the headline number in words.
        value: its measured value.
        goal: what it should reach.
        figures: everything measured.
    """
    write_json(
        RESULTS / f"{name}.json",
        {
            "headline": {"value": round(value, 4), "goal": goal, "what": what},
            "figures": figures,
            "threads": THREADS,
            "load_average": {"start": _start_load, "end": os.getloadavg()[0]},
            "git": work_tree(),
            "hardware": hardware(),
            "versions": library_versions(),
        },
    )
    Console().print(f"{what}: [bold]{value:.3g}[/bold] (goal {goal:g})")
