"""From run directories to tidy frames; a run that failed or is missing is a row, never a gap.

Frames:

- ``runs``: one row per run of the grid, with its status, times, energy and origin.
- ``metrics``: one row per (run, step, metric), from ``metrics.jsonl``; the evaluation on the test
  set joins as ``test/<measure>`` at the run's last step.
- ``responses``: one row per dumped training response, without its text.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from refblend.data.schema import PARQUET_ERRORS
from refblend.documents import shorten
from refblend.errors import StudyError
from refblend.files import atomic_path
from refblend.identity import EARLIER_MODELS
from refblend.study.design.grid import unique_runs
from refblend.study.layout import COLLECTED, run_dir
from refblend.study.runs.run_files import DIGITS, read_run
from refblend.trainer.tracking import TIMING_PREFIXES

RUN = ["arm", "seed"]
RUN_COLUMNS = {
    "arm": "str",
    "seed": "int64",
    "status": "str",
    "reason": "str",
    "steps": "Int64",
    "wall_time_s": "float64",
    "energy_kwh": "float64",
    "kg_co2e": "float64",
    "resumed": "Int64",
    "commit": "str",
    "dirty": "boolean",
    "hardware": "str",
    "models": "str",
}
OF_THE_MACHINE = [
    "wall_time_s", "energy_kwh", "kg_co2e", "resumed", "commit", "dirty", "hardware", "models",
]  # fmt: skip
"""Columns of ``runs`` that differ between two equal studies."""
METRIC_COLUMNS = {
    "arm": "str",
    "seed": "int64",
    "step": "int64",
    "metric": "str",
    "value": "float64",
}
RESPONSE_COLUMNS = {
    "arm": "str",
    "seed": "int64",
    "step": "int64",
    "reward": "float64",
    "acc": "float64",
    "judge_score": "float64",
    "judge_valid": "boolean",
    "judge_path": "str",
    "length": "float64",
}


@dataclass(frozen=True)
class Collected:
    """The frames of a milestone."""

    runs: pd.DataFrame
    metrics: pd.DataFrame
    responses: pd.DataFrame

    @property
    def finished(self) -> pd.DataFrame:
        """Rows of ``runs`` whose results count."""
        return self.runs[self.runs.status == "finished"]

    @property
    def counted_metrics(self) -> pd.DataFrame:
        """Metrics of finished runs only."""
        return self.metrics.merge(self.finished[RUN], on=RUN)


def collect(grid: pd.DataFrame, scale: str, root: str | Path = "runs") -> Collected:
    """Read every run of a grid; ``root`` is the folder of all runs."""
    runs, metrics, responses = [], [], []
    for row in unique_runs(grid).itertuples():
        directory = run_dir(scale, row.arm, row.seed, root)
        identity = {"arm": row.arm, "seed": int(row.seed)}
        record, values, rows = read_run(directory)
        runs.append(identity | record)
        if values is not None and len(values):
            metrics.append(_long(values).assign(**identity))
        responses += [identity | item for item in rows]
    return Collected(
        _typed(pd.DataFrame(runs), RUN_COLUMNS),
        _typed(pd.concat(metrics) if metrics else pd.DataFrame(), METRIC_COLUMNS),
        _typed(pd.DataFrame(responses), RESPONSE_COLUMNS),
    )


def used_models(runs: pd.DataFrame) -> pd.DataFrame:
    """The models of runs that have a record of them: arm, seed, role (a name) and digest."""
    earlier = {old[:DIGITS]: new[:DIGITS] for old, new in EARLIER_MODELS.items()}
    known = runs[runs.models.fillna("") != ""]
    models = known.assign(model=known.models.str.split("; ")).explode("model", ignore_index=True)
    parts = models.model.str.rsplit(" ", n=1, expand=True).reindex(columns=[0, 1])
    return models[RUN].assign(role=parts[0], digest=parts[1].replace(earlier))


def write_collected(collected: Collected, out: str | Path) -> None:
    """Write the three frames below ``out``, each atomically."""
    out = Path(out)
    frames = (collected.runs, collected.metrics, collected.responses)
    for name, frame in zip(COLLECTED, frames, strict=True):
        with atomic_path(out / name) as temporary:
            if name.endswith(".csv"):
                frame.to_csv(temporary, index=False)
            else:
                frame.to_parquet(temporary, index=False)


def read_collected(folder: str | Path) -> Collected:
    """Read what :func:`write_collected` wrote.

    Raises:
        StudyError: a file is missing or unreadable.
    """
    runs, metrics, responses = (Path(folder) / name for name in COLLECTED)
    try:
        return as_collected(runs, pd.read_parquet(metrics), pd.read_parquet(responses))
    except (OSError, TypeError, *PARQUET_ERRORS) as error:
        raise StudyError(
            f"{folder}: collected frames cannot be read ({shorten(str(error), 300)})",
            "Run `refblend study collect`.",
        ) from None


def numbers_hash(collected: Collected) -> str:
    """SHA-256 over all that two equal studies agree in: not times, energy, commit and machine."""
    metrics = collected.metrics
    metrics = metrics[~metrics["metric"].str.startswith(TIMING_PREFIXES)]
    digest = hashlib.sha256()
    for frame in (collected.runs.drop(columns=OF_THE_MACHINE), metrics, collected.responses):
        digest.update(pd.util.hash_pandas_object(frame, index=False).to_numpy().tobytes())
    return digest.hexdigest()


def as_collected(runs: Path, metrics: pd.DataFrame, responses: pd.DataFrame) -> Collected:
    """The frames with their types, as they were before they were written.

    Raises:
        ValueError: one has other columns.
    """
    records = pd.read_csv(runs, keep_default_na=False, na_values=[""])
    frames = ((records, RUN_COLUMNS), (metrics, METRIC_COLUMNS), (responses, RESPONSE_COLUMNS))
    for (frame, columns), name in zip(frames, COLLECTED, strict=True):
        if list(frame.columns) != list(columns):
            raise ValueError(f"{name} has other columns")
    records["reason"] = records["reason"].fillna("")
    return Collected(*(_typed(frame, columns) for frame, columns in frames))


def _typed(frame: pd.DataFrame, columns: dict[str, str]) -> pd.DataFrame:
    frame = frame.reindex(columns=list(columns))
    return frame.astype(columns).reset_index(drop=True)


def _long(values: pd.DataFrame) -> pd.DataFrame:
    """Wide metrics (one row per step) → one row per (step, metric), without missing values."""
    long = values.melt(id_vars="step", var_name="metric", value_name="value")
    return long.dropna(subset="value").sort_values(["step", "metric"], ignore_index=True)
