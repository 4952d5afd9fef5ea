"""Synthetic run directories: plausible curves with known properties, no training."""

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

SOURCE = "refblend/arithmetic"


def load_beside(name: str) -> ModuleType:
    """A module of this folder, which is no package."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SCORING_REPORTS = load_beside("scoring_reports")


def metrics_lines(
    seed: int, steps: int, gain: float, blended: bool, incidents: dict[str, int] | None = None
) -> list[dict[str, float]]:
    """Validation at step 0 and every fifth step; training metrics at every step but 0."""
    rng = np.random.default_rng(seed)
    lines = []
    for step in range(steps + 1):
        share = step / steps
        line: dict[str, float] = {"step": step}
        if step % 5 == 0 or step == steps:
            accuracy = 0.25 + gain * share
            line |= {
                f"val-core/{SOURCE}/acc/mean@1": accuracy,
                "val-core/refblend/sanity/acc/mean@1": accuracy + 0.05,
            }
        if step:
            entropy = 0.9 - 0.5 * share
            line |= {
                "critic/score/mean": 0.2 + gain * share + rng.normal(0, 0.02),
                "actor/entropy": entropy,
                "actor/pg_loss": rng.normal(0, 0.01),
                "actor/grad_norm": 0.3 + rng.normal(0, 0.01),
                "response_length/mean": 36 - 12 * share,
                "perf/time_per_step": 2.0,
                "perf/throughput": 5000.0,
            }
            for kind in ("overlength", "oom", "nonfinite", "judge_invalid", "judge_error"):
                line[f"incidents/{kind}"] = 0
            if step == 1:
                line |= {f"incidents/{kind}": n for kind, n in (incidents or {}).items()}
            if blended:
                line |= {
                    "actor/ref_quality/weight": 0.3 * (1 - entropy),
                    "actor/ref_quality/avg_entropy": entropy,
                    "actor/ref_quality/score_mean": 0.4,
                    "actor/ref_quality/score_std": 0.2,
                    "actor/ref_quality/nonzero_rate": 0.95,
                    "actor/ref_quality/valid_rate": 0.99,
                    "actor/ref_quality/fallback_rate": 0.02,
                    "actor/ref_quality/compact_rate": 0.01,
                    "actor/ref_quality/auc": 0.85,
                    "actor/ref_quality/ece": 0.1,
                    "actor/ref_quality/reward_length_corr": 0.1 * share,
                }
        lines.append(line)
    return lines


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
    gain: float = 0.3,
    blended: bool = True,
    status: str = "finished",
    incidents: dict[str, int] | None = None,
) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    lines = metrics_lines(seed, steps, gain, blended, incidents)
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (directory / "metrics.jsonl").write_text(text)
    provenance = {
        "git": {"commit": "0123456789abcdef", "dirty": False},
        "hardware": {"cpu": "Test CPU", "cores": 2, "gpus": []},
        "sessions": [{"end": "2026-01-01T00:00:00"}],
        "totals": {
            "wall_time_s": 100.0 + seed,
            "energy_kwh_estimated": 0.001,
            "kg_co2e_estimated": 0.0004,
        },
    }
    (directory / "provenance.json").write_text(json.dumps(provenance))
    (directory / "rollouts").mkdir(exist_ok=True)
    for step in (5, steps):
        rows = responses(seed, step)
        if not blended:
            rows = [{k: v for k, v in row.items() if not k.startswith("judge")} for row in rows]
        (directory / "rollouts" / f"{step}.jsonl").write_text(
            "".join(json.dumps(row) + "\n" for row in rows)
        )
    (directory / "identity.json").write_text(json.dumps({"identity": "this run"}))
    report = {
        "greedy": 0.27 + gain,
        "sampled": 0.17 + gain,
        "of": {"identity": "this run", "step": steps},
    }
    (directory / "test.json").write_text(json.dumps(report))
    if status != "incomplete":
        (directory / "summary.json").write_text(json.dumps({"status": status, "reason": ""}))
    return directory


@pytest.fixture
def make_run() -> Callable[..., Path]:
    """``make_run(directory, seed, …)`` writes a synthetic run directory."""
    return write_run


@pytest.fixture
def scoring_reports() -> ModuleType:
    """Makers of reports of ``refblend judge``, with known numbers."""
    return SCORING_REPORTS
