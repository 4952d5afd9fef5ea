"""From run directories to tidy frames; a run that failed or is missing is a row, never a gap.

Frames:

- ``runs``: one row per run of the grid, with its status, times, energy and origin.
- ``metrics``: one row per (run, step) and one column per metric, from ``metrics.jsonl``; the
  evaluation on the test set joins as ``test/<measure>`` at the run's last step.
- ``responses``: one row per dumped training response, without its text.

The archive of a scale has the frames of all its runs, and ``quality/``: what the embedded models
were measured to be, and when and where. It is a few MB and is committed with the results. All
tables, figures and reports can be made from it, without training anything.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from refblend.data.schema import PARQUET_ERRORS
from refblend.documents import shorten
from refblend.errors import StudyError
from refblend.files import copy_file
from refblend.study.design.grid import unique_runs
from refblend.study.design.names import COLLECTED, run_dir
from refblend.study.design.spec import ExperimentSpec
from refblend.study.runs.run_files import KEPT_COLUMNS, ORIGIN_COLUMNS, read_run, typed
from refblend.tables import write_table

RUN, STEP = ["arm", "seed"], ["arm", "seed", "step"]
_RUN = {"arm": "str", "seed": "int64"}
RUN_COLUMNS = _RUN | {"status": "str", "reason": "str", "steps": "Int64"} | ORIGIN_COLUMNS
RESPONSE_COLUMNS = _RUN | KEPT_COLUMNS


class Collected(NamedTuple):
    """The frames of a milestone, in the order of :data:`COLLECTED`."""

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


def collect(
    grid: pd.DataFrame, scale: str, root: str | Path = "runs", archive: Path | None = None
) -> Collected:
    """Read every run of a grid; ``root`` is the folder of all runs.

    In place of a run without a folder stands what an archive has of it.
    """
    runs, metrics, responses = [], [], []
    for row in unique_runs(grid).itertuples():
        identity = {"arm": row.arm, "seed": int(row.seed)}
        record, values, kept = read_run(run_dir(scale, row.arm, row.seed, root))
        runs.append(identity | record)
        metrics.append(values.assign(**identity))
        responses.append(kept.assign(**identity))
    found = frames_of(pd.DataFrame(runs), pd.concat(metrics), pd.concat(responses))
    if archive is None or not (archive / COLLECTED[0]).exists():
        return found
    missing = found.runs.loc[found.runs.status == "missing", RUN]
    kept = [missing.merge(frame, on=RUN) for frame in read_collected(archive)]
    both = [pd.concat(pair) for pair in zip(kept, found, strict=True)]
    return frames_of(both[0].drop_duplicates(RUN), *both[1:])


def frames_of(runs: pd.DataFrame, metrics: pd.DataFrame, responses: pd.DataFrame) -> Collected:
    """The frames in their types, metrics sorted by run and step, and by name.

    Metrics without any value are left out. ValueError or TypeError for a value of another type.
    """
    names = metrics.columns[metrics.notna().any()].difference(STEP)
    types = _RUN | {"step": "int64"} | dict.fromkeys(names, "float64")
    return Collected(
        typed(runs, RUN_COLUMNS),
        typed(metrics.sort_values(STEP), types),
        typed(responses, RESPONSE_COLUMNS),
    )


def runs_of(seeds: Mapping[str, Sequence[int]]) -> pd.DataFrame:
    """Arm and seed of some runs, to merge with a frame."""
    runs = [(arm, seed) for arm, own in seeds.items() for seed in own]
    return pd.DataFrame(runs, columns=RUN).astype({"seed": "int64"})


def used_models(runs: pd.DataFrame) -> pd.DataFrame:
    """The models of runs that have a record of them: arm, seed, role (a name) and digest."""
    known = runs[runs.models.fillna("") != ""]
    models = known.assign(model=known.models.str.split("; ")).explode("model", ignore_index=True)
    parts = models.model.str.rsplit(" ", n=1, expand=True).reindex(columns=[0, 1])
    return models[RUN].assign(role=parts[0], digest=parts[1])


def refuse_mixed_models(
    runs: pd.DataFrame, experiments: Mapping[str, ExperimentSpec], scale: str
) -> None:
    """Refuse (StudyError) a contrast whose arms were trained from different models of one name.

    Rounding decides which warm start a machine makes, and what is learnt from one of them says
    nothing of an arm that was trained from another. Arms with the same seeds are compared seed by
    seed, so each seed may have models of its own. Runs without a record of their models pass.
    """
    models = used_models(runs)
    for name, spec in experiments.items():
        seeds = spec.seeds_by_arm(scale)
        for pair in (pair for contrast in spec.contrasts for pair in contrast.pairs.items()):
            used = models.merge(runs_of({arm: seeds.get(arm, ()) for arm in pair}), on=RUN)
            alike = seeds.get(pair[0]) == seeds.get(pair[1])
            for (role, *_), part in used.groupby(["role", "seed"] if alike else ["role"]):
                first = part.drop_duplicates("digest").itertuples()
                which = [f"{row.digest} ({row.arm}, seed {row.seed})" for row in first]
                if len(which) > 1:
                    raise StudyError(
                        f"{name}: {pair[0]} − {pair[1]} compares runs of different models, "
                        f"{role} {' and '.join(which[:2])}",
                        "Give both arms seeds that were trained from the same models.",
                    )


def write_collected(collected: Collected, out: Path) -> None:
    """Write the three frames below ``out``; :data:`COLLECTED` names the files."""
    for name, frame in zip(COLLECTED, collected, strict=True):
        write_table(out / name, frame)


def read_collected(folder: Path) -> Collected:
    """Read what :func:`write_collected` wrote; StudyError if it cannot."""
    runs, metrics, responses = (folder / name for name in COLLECTED)
    try:
        records = pd.read_csv(runs, keep_default_na=False, na_values=[""])
        records["reason"] = records["reason"].fillna("")
        kept = pd.read_parquet(responses)[list(RESPONSE_COLUMNS)]
        return frames_of(records[list(RUN_COLUMNS)], pd.read_parquet(metrics), kept)
    except (OSError, KeyError, TypeError, *PARQUET_ERRORS) as error:
        raise StudyError(
            f"{folder}: the numbers of its runs cannot be read ({shorten(str(error), 300)})",
            "`refblend study redraw` draws archived runs; `make study` or `refblend study archive` "
            "writes these files.",
        ) from None


def copy_quality(models: Path, circumstances: Path, out: Path) -> None:
    """Copy measurements of a scale's embedded models, and when and where they were made, to its
    archive; there are none where the models are not ours."""
    kept = {models / "quality": "quality", circumstances: "quality/circumstances"}
    for source, place in kept.items():
        for file in sorted(source.glob("*.json")):
            copy_file(file, out / place / file.name)
