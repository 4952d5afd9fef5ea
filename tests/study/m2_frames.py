"""Collected frames of a whole M2 study, made from stated effects; nothing is trained."""

import zlib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import pandas as pd
from made_runs import run_lines

from refblend.study.design.spec import ExperimentSpec, load_experiments
from refblend.study.report.study import Study, make_study
from refblend.study.runs.collect import STEP, Collected, frames_of

PARAMS = Path(__file__).parents[2] / "params"
COST_STEPS = 4


def specs(scale: str | None = None) -> dict[str, ExperimentSpec]:
    """M2's experiments (of a scale) as declared, with seeds 1 to 3 and A with five.

    Scale cpu has all arms here, whatever the hours of the real study hold.
    """
    fewer = {"A": 5}
    declared = {
        name: spec
        for name, spec in load_experiments(PARAMS).items()
        if (spec.milestone_of(scale) if scale else spec.milestone) == "m2"
    }
    return {
        name: spec.model_copy(
            update={
                "seeds": {
                    scale: list(range(1, 1 + min(len(seeds), fewer.get(name, 3))))
                    for scale, seeds in spec.seeds.items()
                },
                "arm_seeds": {},
                "arms_at": {k: arms for k, arms in spec.arms_at.items() if k != "cpu"},
            }
        )
        for name, spec in declared.items()
    }


def collected(
    runs: Iterable[tuple[str, int]],
    effects: Mapping[str, float] | None = None,
    missing: Collection[tuple[str, int]] = (),
    costs: Collection[str] = (),
) -> Collected:
    """Frames of some runs.

    Args:
        runs: (arm, seed) of the grid.
        effects: what an arm adds to every accuracy; 0 where it is not named.
        missing: runs that failed before their first step.
        costs: arms that measure a few steps only, without test.
    """
    records, metrics = [], []
    for arm, seed in runs:
        record = {"arm": arm, "seed": seed, "status": "finished", "reason": "", "dirty": False}
        record |= {"steps": 20, "wall_time_s": 100.0, "energy_kwh": 0.002, "kg_co2e": 0.001}
        record |= {"resumed": 0, "commit": "0123456789abcdef", "hardware": "Test CPU, 2 cores"}
        if (arm, seed) in missing:
            gone = dict.fromkeys(("steps", "wall_time_s", "energy_kwh", "kg_co2e", "resumed"))
            record |= gone | {"status": "failed", "reason": "worker died", "commit": ""}
        else:
            blended = arm not in ("off", "gae_off")
            number = zlib.crc32(arm.encode())
            lines = run_lines(seed, (effects or {}).get(arm, 0.0), blended, number)
            if arm in costs:
                lines = [line for line in lines if line[0] <= COST_STEPS and "val-" not in line[1]]
            metrics += [(arm, seed, *line) for line in lines]
        records.append(record)
    frame = pd.DataFrame(metrics, columns=[*STEP, "metric", "value"])
    wide = frame.pivot(index=STEP, columns="metric", values="value").reset_index()
    return frames_of(pd.DataFrame(records), wide, pd.DataFrame())


def study(
    scale: str = "cpu",
    effects: Mapping[str, float] | None = None,
    missing: Collection[tuple[str, int]] = (),
    experiments: Mapping[str, ExperimentSpec] | None = None,
) -> Study:
    """A whole study of the declared experiments at a scale."""
    chosen = dict(experiments if experiments is not None else specs(scale))
    runs = {
        (arm, seed): None
        for spec in chosen.values()
        for arm in spec.arms_of(scale)
        for seed in spec.usual_seeds(scale)
    }
    costs = {arm for spec in chosen.values() if spec.exclusive for arm in spec.arms}
    return make_study(collected(runs, effects, missing, costs), chosen, scale, PARAMS)
