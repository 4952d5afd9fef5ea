"""Made runs: their numbers, from stated effects, and directories that hold them."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

SOURCE = "refblend/arithmetic"
EVERY = 4


def grid_of(*runs: tuple[str, int]) -> pd.DataFrame:
    """A grid of these (arm, seed), all of experiment M1 and without overrides."""
    rows = [{"experiment": "M1", "arm": a, "seed": str(s), "overrides": "{}"} for a, s in runs]
    return pd.DataFrame(rows, dtype=str)


def run_lines(
    seed: int, effect: float, blended: bool, name: int = 0, steps: int = 20, noise: float = 0.01
) -> list[tuple[int, str, float]]:
    """(step, metric, value) of one run.

    Its test accuracy is 0.5 + effect + what all runs of the seed share + noise of its own, which
    the number ``name`` of its arm decides.
    """
    shift = np.random.default_rng(seed).normal(0, noise)  # the seed's, shared by all arms
    own = np.random.default_rng([seed, name]).normal(0, noise, 2)
    rows = []
    for step in range(steps + 1):
        share = step / steps
        if step % EVERY == 0:
            rows.append(
                (step, f"val-core/{SOURCE}/acc/mean@1", 0.2 + (0.25 + effect + own[0]) * share)
            )
        if step == 0:
            continue
        entropy = 0.9 - 0.4 * share
        rows += [
            (step, "critic/acc/mean", 0.15 + (0.2 + effect) * share + shift),
            (step, "critic/score/mean", 0.2 + (0.2 + effect) * share + shift),
            (step, "actor/ref_quality/avg_entropy", entropy),
            (step, "actor/pg_loss", 0.01 * math.sin(step)),
            (step, "actor/grad_norm", 0.3 + 0.01 * math.cos(step)),
            (step, "response_length/mean", 30 + 10 * share * (1 if blended else -1)),
            (step, "perf/time_per_step", 4.0 + 2.0 * blended + 0.1 * seed + 10 * (step == 1)),
            (step, "perf/throughput", 4000.0 - 100 * seed),
            (step, "perf/cpu_memory_used_gb", 3.0 + blended + 0.01 * step),
        ]
        rows += [(step, f"incidents/{kind}", 0.0) for kind in ("overlength", "oom", "nonfinite")]
        if blended:
            rows += [
                (step, "actor/ref_quality/weight", 0.3 * (1 - entropy)),
                (step, "actor/ref_quality/auc", 0.8 + 0.001 * seed),
                (step, "actor/ref_quality/nonzero_rate", 0.97),
                (step, "actor/ref_quality/valid_rate", 0.99),
                (step, "timing_s/ref_quality_score", 2.0 + 0.01 * seed),
                (step, "incidents/judge_invalid", 1.0),
            ]
    rows.append((steps, "test/greedy", 0.5 + effect + shift + own[1]))
    rows.append((steps, "test/sampled", 0.4 + effect + shift))
    return rows


def responses(seed: int, step: int, count: int = 64) -> list[dict[str, object]]:
    rng = np.random.default_rng([seed, step])
    rows: list[dict[str, object]] = []
    for number in range(count):
        score = round(float(rng.uniform()), 2)
        valid = bool(rng.uniform() < 0.95)
        rows.append(
            {
                "step": step,
                "uid": f"p{number // 8}",
                "question": "What is 1+1?",
                "response": "1+1=2 #### 2",
                "reward": float(rng.uniform() < score),
                "acc": float(rng.uniform() < score),
                "judge_score": score if valid else 0.5,
                "judge_valid": valid,
                "judge_path": "text" if valid else "default",
                "length": int(rng.integers(10, 60)),
            }
        )
    return rows


def write_run(
    directory: Path,
    seed: int,
    steps: int = 20,
    blended: bool = True,
    status: str = "finished",
    incidents: dict[str, int] | None = None,
) -> Path:
    """The directory of a run, whose incidents happened in the first step."""
    (directory / "rollouts").mkdir(parents=True, exist_ok=True)
    lines: list[dict[str, float]] = [{"step": step} for step in range(steps + 1)]
    for step, name, value in run_lines(seed, 0.0, blended, steps=steps, noise=0.0):
        if not name.startswith("test/"):
            lines[step][name] = value
    lines[1] |= {f"incidents/{kind}": count for kind, count in (incidents or {}).items()}
    write_lines(directory / "metrics.jsonl", lines)
    for step in (5, steps):
        rows = responses(seed, step)
        if not blended:
            rows = [{k: v for k, v in row.items() if not k.startswith("judge")} for row in rows]
        write_lines(directory / "rollouts" / f"{step}.jsonl", rows)
    totals = {"energy_kwh_estimated": 0.001, "kg_co2e_estimated": 0.0004}
    records = {
        "provenance": {
            "git": {"commit": "0123456789abcdef", "dirty": False},
            "hardware": {"cpu": "Test CPU", "cores": 2, "gpus": []},
            "sessions": [{"end": "2026-01-01T00:00:00"}],
            "totals": totals | {"wall_time_s": 100.0 + seed},
        },
        "identity": {"identity": "this run"},
        "test": {"greedy": 0.57, "sampled": 0.47, "of": {"identity": "this run", "step": steps}},
        "summary": {"status": status, "reason": ""},
    }
    if status == "incomplete":
        del records["summary"]
    for name, record in records.items():
        (directory / f"{name}.json").write_text(json.dumps(record))
    return directory


def write_lines(path: Path, records: list) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def resource_row(arm: str, seed: int, **changed: Any) -> dict[str, Any]:
    """A line of ``resources.csv``: a run that took 100 s and 1 Wh."""
    row = {"arm": arm, "seed": str(seed), "status": "finished", "resumed": 0}
    row |= {"wall_time_s": 100.0, "energy_kwh": 0.001, "kg_co2e": 0.0004, "peak_memory_gb": 3.0}
    return row | changed
