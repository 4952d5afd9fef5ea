"""A project with made runs of M2 and M3, and everything that M3's report reads of other reports."""

import atexit
import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import yaml

from refblend.study.recommend.choose import recommend
from refblend.study.recommend.overlay import write_recommendation
from refblend.study.report import engine
from refblend.study.report.registry import Inputs, load_report
from refblend.study.runs.collect import Collected, collect, write_collected

MakeRun = Callable[..., Path]
ALL_REGIMES = Path(__file__).parents[2] / "params"


@cache
def one_regime() -> Path:
    """The project's parameters, with the confirming experiment of one regime at scale cpu, and all
    its seeds for every arm."""
    folder = tempfile.mkdtemp(prefix="refblend-params-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    params = Path(shutil.copytree(ALL_REGIMES, Path(folder) / "params"))
    path = params / "study" / "M3.yaml"
    document = yaml.safe_load(path.read_text())
    document["arms_at"]["cpu"] = ["off", "linear", "challenger"]
    del document["arm_seeds"]
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return params


PARAMS = one_regime()
FRESH = (101, 102, 103)
ARMS = ("off", "linear", "challenger")
GAINS = {"off": 0.20, "linear": 0.22, "linear_terminal": 0.45, "challenger": 0.30}


def grid(arms: tuple[str, ...], seeds: tuple[int, ...]) -> pd.DataFrame:
    rows = [("X", arm, str(seed), "{}") for arm in arms for seed in seeds]
    return pd.DataFrame(rows, columns=["experiment", "arm", "seed", "overrides"])


def make_runs(
    root: Path,
    make_run: MakeRun,
    arms: tuple[str, ...],
    seeds: tuple[int, ...],
    scale: str = "cpu",
) -> pd.DataFrame:
    for arm in arms:
        for seed in seeds:
            gain = GAINS[arm] + 0.01 * ((seed * 7 + len(arm)) % 3)
            make_run(root / scale / arm / f"seed_{seed}", seed, 20, gain, arm != "off")
    return grid(arms, seeds)


VERDICTS = """experiment,contrast,primary,n,estimate,low,high,p,p_adjusted,verdict,treated,\
reference,endpoint,margin,alpha,paired,p_equivalence,p_equivalence_adjusted,least_p_adjusted,\
detectable,seeds_needed,added
A,judge − no judge,True,10,0.2,0.15,0.25,0.001,0.002,better,linear_terminal,off,test_sampled,\
0.02,0.05,True,1,1,0.004,0.02,9,False
A,entropy-aware − constant,True,10,0.01,-0.02,0.04,0.4,0.4,undecided,linear,constant,\
test_sampled,0.02,0.05,True,0.3,0.6,0.004,0.05,35,False
A,terminal − per token,False,10,0.9,0.8,1.0,0.001,0.001,better,linear_terminal,linear,\
test_greedy,0.02,0.05,True,1,1,0.004,0.02,9,False
L,entropy − their mean,True,10,0.003,-0.01,0.016,0.7,0.7,equivalent,linear_auto,yoked_mean,\
test_sampled,0.02,0.05,False,0.002,0.004,0.004,0.02,9,False
"""
COSTS = """arm,experiments,runs,finished,hours,energy_kwh,kg_co2e,resumed,step_seconds
off,A B C G H,5,5,1.0,0.010,0.004,0,2.0
linear_terminal,A B C G H,5,5,2.0,0.020,0.008,0,3.0
gae_off,G,3,3,0.5,,,0,2.0
len256_ctx1024,E,3,3,0.25,0.001,0.0005,0,2.0
"""


def make_project(tmp_path: Path, make_run: MakeRun, scale: str = "cpu") -> Path:
    """Runs of M2 and M3, M2's tables, and the recommendation made from them."""
    arms = ("off", "linear", "linear_terminal")
    chosen = make_runs(tmp_path / "runs", make_run, arms, (1, 2, 3), scale)
    choose(tmp_path, collect(chosen, scale, tmp_path / "runs"), scale=scale)
    fresh = make_runs(tmp_path / "runs", make_run, ARMS, FRESH, scale)
    frames = collect(fresh, scale, tmp_path / "runs")
    memory = frames.runs[["arm", "seed"]].assign(step=1, value=2.0)
    memory["metric"] = "perf/cpu_memory_used_gb"
    metrics = pd.concat([frames.metrics, memory], ignore_index=True)
    write_frames(tmp_path, replace(frames, metrics=metrics), scale)
    results = tmp_path / "results" / scale
    tables = results / "m2" / "tables"
    tables.mkdir(parents=True)
    (tables / "verdicts.csv").write_text(VERDICTS)
    (tables / "costs_by_arm.csv").write_text(COSTS)
    (tables / "resources.csv").write_text("arm,seed\noff,1\noff,101\nlinear_terminal,1\n")
    (results / "m1").mkdir()
    numbers = {"runs": 6, "missing": 0, "incidents": 0}
    (results / "m1" / "metrics.json").write_text(json.dumps(numbers))
    (results / "m1" / "tables").mkdir()
    rules = "rule,holds\n" + "".join(f"r{i},{'yes' if i else 'no'}\n" for i in range(7))
    (results / "m1" / "tables" / "verdict.csv").write_text(rules)
    return tmp_path


def choose(project: Path, runs: Collected, params: Path = PARAMS, scale: str = "cpu") -> None:
    """Write the recommendation that follows from runs of M2."""
    out = project / "results" / scale / "m3" / "recommended.yaml"
    out.parent.mkdir(parents=True, exist_ok=True)
    write_recommendation(recommend(runs, scale, params), out)


def write_frames(project: Path, frames: Collected, scale: str = "cpu") -> None:
    write_collected(frames, project / "runs" / scale / "_collected" / "m3")


def inputs_of(
    project: Path, scale: str = "cpu", params: Path = PARAMS, folder: str | None = None
) -> Inputs:
    return Inputs(
        scale=scale,
        study=(),
        collected=project / "runs" / (folder or scale) / "_collected" / "m3",
        models=project / "models",
        results=project / "results" / (folder or scale),
        params=params,
    )


def made(project: Path, **changed: Any) -> SimpleNamespace:
    """Tables, text and headline numbers; figures stay undrawn, as drawing takes seconds."""
    report, inputs = load_report("m3"), inputs_of(project, **changed)
    study = report.read(inputs)
    tables = dict(engine.new_tables(report.artifacts(inputs.experiments, "table"), study))
    captions = dict.fromkeys(report.names("figure", {}), "a caption")
    text = engine.render(report, inputs, study, tables, captions)
    return SimpleNamespace(
        tables=tables, text=text, metrics=report.single["metrics"](study, tables)
    )
