"""The closing message of a run: main metrics, where everything is, how to continue."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from rich import box
from rich.console import Console
from rich.table import Table

from refblend.trainer.checkpoint import CheckpointManager
from refblend.trainer.tracking import read_metrics

_ROWS = (
    ("reward", "critic/score/mean", True),
    ("training accuracy", "critic/acc/mean", True),
    ("judge's score", "actor/ref_quality/score_mean", False),
    ("judge's AUC", "actor/ref_quality/auc", True),
    ("weight w", "actor/ref_quality/weight", False),
    ("entropy", "actor/ref_quality/avg_entropy", False),
    ("response tokens", "response_length/mean", False),
)
"""Shown name, metric, and whether more is better."""


def metric_rows(frame: pd.DataFrame) -> list[tuple[str, float, float | None, float]]:
    """Name, first, best and last value of the main metrics; no best without a better direction."""
    sources = [n for n in frame.columns if n.startswith("val-core/") and n.endswith("/acc/mean@1")]
    chosen = [(n.removeprefix("val-core/").removesuffix("/acc/mean@1"), n, True) for n in sources]
    rows = []
    for label, name, more_is_better in (*chosen, *_ROWS):
        values = frame[name].dropna() if name in frame else pd.Series(dtype=float)
        if not values.empty:
            best = float(values.max()) if more_is_better else None
            rows.append((label, float(values.iloc[0]), best, float(values.iloc[-1])))
    return rows


def show_end(run_dir: Path, summary: Mapping[str, Any], console: Console) -> None:
    """Print the closing table of a finished run, whose ``summary.json`` is given.

    Raises:
        DataError: the run's metrics cannot be read.
    """

    def tell(line: str) -> None:
        console.print(line, soft_wrap=True, markup=False, highlight=False)

    tell(f"{run_dir}: finished after {summary['steps']} steps")
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("")
    for heading in ("first", "best", "last"):
        table.add_column(heading, justify="right")
    for label, *values in metric_rows(read_metrics(run_dir / "metrics.jsonl")):
        table.add_row(label, *("" if v is None else f"{v:.3f}" for v in values))
    console.print(table)
    told = ", ".join(f"{name} {count}" for name, count in summary["incidents"].items() if count)
    places = {
        "incidents": told or "none",
        "metrics": f"{run_dir / 'metrics.jsonl'}; tensorboard --logdir {run_dir / 'tensorboard'}",
        "responses": run_dir / "rollouts",
    }
    steps = CheckpointManager(run_dir / "checkpoints").steps()
    if steps:
        places["model"] = run_dir / "checkpoints" / f"global_step_{steps[-1]}" / "actor"
    places["go on"] = (
        "the same command with a higher trainer.total_training_steps, if no schedule needs it"
    )
    for name, place in places.items():
        tell(f"{name + ':':<11}{place}")
