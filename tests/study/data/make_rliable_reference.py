"""Writes rliable_reference.json: what rliable and statsmodels say about fixed numbers.

Neither is a dependency of refblend. Made once, in a throw-away environment:

    python3.11 -m venv /tmp/reference
    /tmp/reference/bin/pip install rliable==1.2.0 'pandas<3' statsmodels==0.15.0
    /tmp/reference/bin/python tests/study/data/make_rliable_reference.py

Scores are (runs, tasks). rliable ignores its random state, so intervals differ from run to run in
the third digit; point estimates do not.
"""

import json
from importlib.metadata import version
from pathlib import Path

import numpy as np
from rliable import library, metrics
from statsmodels.stats.multitest import multipletests

REPS = 20000


def one_case(x: np.ndarray, y: np.ndarray) -> dict[str, object]:
    functions = {
        "mean": metrics.aggregate_mean,
        "iqm": metrics.aggregate_iqm,
    }
    out: dict[str, object] = {"x": x.tolist(), "y": y.tolist()}
    for name, function in functions.items():
        points, intervals = library.get_interval_estimates(
            {"x": x}, lambda scores, f=function: np.array([f(scores)]), reps=REPS
        )
        out[name] = {"estimate": float(points["x"][0]), "interval": intervals["x"][:, 0].tolist()}
    points, intervals = library.get_interval_estimates(
        {"x": [x, y]}, lambda a, b: np.array([metrics.probability_of_improvement(a, b)]), reps=REPS
    )
    out["probability_of_improvement"] = {
        "estimate": float(points["x"][0]),
        "interval": intervals["x"][:, 0].tolist(),
    }
    return out


def main() -> None:
    rng = np.random.default_rng(20240607)
    cases = {
        "ten runs, four tasks": (rng.normal(0.8, 0.3, (10, 4)), rng.normal(0.7, 0.3, (10, 4))),
        "three runs, one task": (rng.normal(0.5, 0.1, (3, 1)), rng.normal(0.45, 0.1, (3, 1))),
        "ties and unequal sizes": (
            rng.integers(0, 5, (8, 3)) / 4.0,
            rng.integers(0, 5, (6, 3)) / 4.0,
        ),
    }
    p_values = [
        [0.01, 0.02, 0.03, 0.04, 0.05],
        [0.04, 0.005, 0.03, 0.01],
        rng.uniform(0, 0.3, 7).tolist(),
        [0.25, 0.25, 0.75],
    ]
    reference = {
        "versions": {name: version(name) for name in ("rliable", "arch", "numpy", "statsmodels")},
        "reps": REPS,
        "cases": {name: one_case(x, y) for name, (x, y) in cases.items()},
        "holm": [
            {"p": p, "adjusted": multipletests(p, method="holm")[1].tolist()} for p in p_values
        ],
    }
    path = Path(__file__).with_name("rliable_reference.json")
    path.write_text(json.dumps(reference, indent=1) + "\n")


if __name__ == "__main__":
    main()
