"""Shows a made run at one tracker, in the trackers' environment; arguments: tracker, run directory.

The run is interrupted after its second step and resumed, as ``refblend train`` does it.
"""

import json
import sys
from pathlib import Path

from refblend.trainer.trackers import TrackerContext, Trackers

name, run_dir = sys.argv[1], Path(sys.argv[2])
settings = {
    "trainer": {"project_name": "blends", "experiment_name": None, "seed": 7},
    "algorithm": {"ref_quality_score": {"strategy": "linear"}},
}
steps = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]


def show(start: int, end: int) -> None:
    context = TrackerContext(run_dir, len(steps), start, settings)
    with Trackers([name, "jsonl"], context) as trackers:
        for line in steps[start:end]:
            metrics = {k: v for k, v in line.items() if k != "step"}
            trackers.log(line["step"], metrics | {"broken": float("nan")})


show(0, 2)
show(2, len(steps))
