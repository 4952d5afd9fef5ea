"""Publishing a report: built in an ignored folder, copied to ``results/`` if it says anything new.

Two studies of the same configuration, data, models and code agree in every number except what the
machine determines: times, memory, energy, the commit, the hardware. Those stand in tables, captions
and text, so that every study would change tracked files although it found nothing else. The last
line of a published ``report.md`` therefore has a hash over everything that the report is made from
without them (:func:`made_from`): when it is the same, all published files stay as they are.

:func:`redraw_reports` makes every report of a scale from its archive, without training anything.
"""

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from refblend.config.loading import read_yaml
from refblend.errors import StudyError
from refblend.files import copy_file, sha256_file, write_text
from refblend.numerics import versions
from refblend.study.design.grid import config_files, read_grid, select
from refblend.study.design.names import READS
from refblend.study.design.spec import experiments_of
from refblend.study.report.beside import PER_SEED, beside_files
from refblend.study.report.engine import write_everything
from refblend.study.report.registry import Inputs, Report, load_report
from refblend.study.report.shared import quality_of_arms
from refblend.study.report.verdicts import write_verdicts
from refblend.study.runs.archive import QUALITY, RUNS, archived_models, of_grid, read_archive
from refblend.study.runs.collect import numbers_hash, read_collected, write_collected

_MARK = re.compile(r"\n<!-- Made from ([0-9a-f]{64}) -->\n\Z")


def publish(report: Report, inputs: Inputs, built: Path) -> bool:
    """Copy a built report to ``inputs.results``, unless those say the same; returns whether it did.

    Raises:
        StudyError: a file was not built.
    """
    target, made = inputs.results / report.name, made_from(report, inputs)
    artifacts = report.artifacts(inputs.experiments)
    names = [*(file for artifact in artifacts for file in artifact.files), "metrics.json"]
    missing = [name for name in (*names, "report.md") if not (built / name).is_file()]
    if missing:
        raise StudyError(f"{built}: has no {missing[0]}", f"Run `snakemake {report.name}`.")
    whole = all((target / name).is_file() for name in names)
    unchanged = whole and published_from(target / "report.md") == made
    if not unchanged:
        for name in names:
            copy_file(built / name, target / name)
        text = (built / "report.md").read_text(encoding="utf-8")
        write_text(target / "report.md", f"{text}\n<!-- Made from {made} -->\n")
        _remove_others(target, set(names))
    for name in ("metrics.json", "report.md"):
        os.utime(target / name)  # the workflow's outputs are up to date
    return not unchanged


def published_from(path: Path) -> str | None:
    """The hash in the last line of a published ``report.md``; None without one."""
    if not path.is_file():
        return None
    found = _MARK.search(path.read_text(encoding="utf-8"))
    return found[1] if found else None


def made_from(report: Report, inputs: Inputs) -> str:
    """SHA-256 over what determines a report, apart from what the machine determines.

    That is: collected runs, metrics and responses, the experiments and the settings of the scale,
    the quality of judges and actor, measurements, the recommendation, another scale's verdicts
    that these are set beside, the reports that it reads, and the reports' code.
    """
    parts = {
        "code": _code(report),
        "experiments": {
            name: spec.model_dump(mode="json") for name, spec in inputs.experiments.items()
        },
        "settings": {"/".join(path.parts[-2:]): read_yaml(path) for path in _settings(inputs)},
        "runs": numbers_hash(read_collected(inputs.collected)) if inputs.study else None,
        "files": {
            "/".join(path.parts[-2:]): sha256_file(path) for path in _read_files(report, inputs)
        },
        "models": _models(inputs) if report.name == "m3" else None,
        "reports": {
            name: published_from(inputs.results / name / "report.md") for name in READS[report.name]
        },
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _settings(inputs: Inputs) -> list[Path]:
    """The configuration files of the scale, and the recipe of its data and models if it has one."""
    recipe = inputs.params / "embedded" / f"{inputs.scale}.yaml"
    files = [*map(Path, config_files(inputs.scale, inputs.params)), recipe]
    return [path for path in files if path.is_file()]


def _code(report: Report) -> list[str]:
    templates = Path(__file__).parent / "templates"
    read = [*sorted(templates.glob("_*.j2")), templates / f"{report.name}.md.j2"]
    return [str(versions("report")), *map(sha256_file, read)]


def _read_files(report: Report, inputs: Inputs) -> list[Path]:
    """What a report reads besides runs and other reports."""
    if report.name == "m1":
        return quality_of_arms(inputs)
    if report.name == "r":
        return quality_of_arms(inputs) + beside_files(inputs)
    if report.name == "scoring":
        measurements = inputs.results / "scoring" / "measurements"
        judges = sorted((inputs.models / "quality").glob("judge_*.json"))
        return judges + sorted(measurements.glob("*.json"))
    if report.name == "m3":
        chosen = inputs.results / "m3"
        files = [*sorted(chosen.glob("recommended.*")), *sorted(chosen.glob("regimes/*"))]
        return files + beside_files(inputs)
    return []


def _models(inputs: Inputs) -> str:
    """What M3 says of warm starts follows from the models of all archived runs."""
    return archived_models(inputs.results).to_csv(index=False)


def _remove_others(target: Path, names: set[str]) -> None:
    """Remove tables, figures and plots that the report no longer has."""
    for folder in ("tables", "figures", "plots"):
        for path in (target / folder).glob("*"):
            if f"{folder}/{path.name}" not in names:
                path.unlink()


def redraw_reports(
    scale: str, results: Path, params: Path, out: Path | None = None
) -> Iterator[Path]:
    """Write the verdicts, then tables, figures and text of all reports: each when it is written.

    ``results`` has the scale's grid, its archive and what M3 has chosen; experiments that the grid
    does not have are left out. Without ``out`` reports are published there, where they say
    anything else; with ``out`` that folder gets them, and they read one another as drawn here.

    Raises:
        StudyError: the archive is missing or lacks a run, or a contrast compares runs of
            different models; nothing is written then.
    """
    grid = read_grid(results / "grid.tsv")
    chosen = results / "m3" / "recommended.json"
    if set(experiments_of("m3", params, scale)) & set(grid.experiment) and not chosen.is_file():
        raise StudyError(
            f"{chosen} is missing, from which M3's report is drawn",
            "Choose first: snakemake m3 does, or refblend study recommend.",
        )
    yield write_verdicts(scale, results, params, out)
    archive = read_archive(results)
    with tempfile.TemporaryDirectory(prefix="refblend-redraw-") as folder:
        scratch = Path(folder)
        read = results if out is None else _copied(results, scratch / "results")
        for milestone in READS:  # a scale need not have all
            collected, built = scratch / milestone, scratch / "built" / milestone
            named = experiments_of(milestone, params, scale)
            study = tuple(name for name in named if name in set(grid.experiment))
            if milestone == "scoring":
                if not (results / "scoring" / "measurements").is_dir():
                    continue
                _copy(results / QUALITY / "circumstances", collected / "circumstances")
            elif study:
                write_collected(of_grid(archive, select(grid, study)), collected)
            else:
                continue
            inputs = Inputs(scale, study, collected, models=read, results=read, params=params)
            report = load_report(milestone)
            write_everything(report, inputs, built)
            if out is None:
                publish(report, inputs, built)
            else:
                _copy(built, out / milestone)
                shutil.rmtree(read / milestone / "tables", ignore_errors=True)
                _copy(built, read / milestone)
            yield (out or results) / milestone / "report.md"


def _copied(results: Path, root: Path) -> Path:
    """A copy below ``root`` of what reports read of a scale's results, and of other scales'."""
    for pattern in ("*/verdicts.csv", f"*/{PER_SEED}", f"*/{RUNS}"):
        for path in results.parent.glob(pattern):
            copy_file(path, root / path.relative_to(results.parent))
    read = root / results.name
    for name in (QUALITY, *READS):
        _copy(results / name, read / name)
    return read


def _copy(source: Path, target: Path) -> None:
    """Copy a folder if it is there; what else is in the target stays."""
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
