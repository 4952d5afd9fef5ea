"""Publishing a report: built in an ignored folder, copied to ``results/`` if it says anything new.

Two studies of the same configuration, data, models and code agree in every number except what the
machine determines: times, memory, energy, the commit, the hardware. Those stand in tables, captions
and text, so that every study would change tracked files although it found nothing else. The last
line of a published ``report.md`` therefore has a hash over everything that the report is made from
without them (:func:`made_from`): when it is the same, all published files stay as they are.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

from refblend.errors import StudyError
from refblend.files import copy_file, sha256_file, write_text
from refblend.study.report.registry import Artifact, Inputs, Report
from refblend.study.report.shared import quality_of_arms
from refblend.study.runs.collect import numbers_hash, read_collected

READS = {"m1": (), "r": (), "scoring": (), "m2": ("scoring",), "m3": ("m1", "m2", "scoring")}
"""Reports whose published results a report reads."""

_MARK = re.compile(r"\n<!-- Made from ([0-9a-f]{64}) -->\n\Z")


def publish(report: Report, inputs: Inputs, built: Path) -> bool:
    """Copy a built report to the results, unless those say the same.

    Args:
        report: the report.
        inputs: what it was made from; ``inputs.results`` is where it is published.
        built: folder with everything that the report has registered.

    Returns:
        Whether the published files have changed.

    Raises:
        StudyError: a file was not built.
    """
    target, made = inputs.results / report.name, made_from(report, inputs)
    names = [*_files(report, inputs), "metrics.json"]
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

    That is: collected runs, metrics and responses, the experiments, the quality of judges and
    actor, measurements, the recommendation, the reports that it reads, and the reports' code.
    """
    parts = {
        "code": _code(report, inputs),
        "experiments": {
            name: spec.model_dump(mode="json") for name, spec in inputs.experiments.items()
        },
        "runs": numbers_hash(read_collected(inputs.collected)) if inputs.study else None,
        "files": {path.name: sha256_file(path) for path in _read_files(report, inputs)},
        "reports": {
            name: published_from(inputs.results / name / "report.md") for name in READS[report.name]
        },
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _code(report: Report, inputs: Inputs) -> list[str]:
    figures = report.artifacts(inputs.experiments, "figure")
    templates = Path(__file__).parent / "templates"
    return [
        report.code("tables"),
        report.code("report"),
        *(report.code("figure", figure) for figure in figures),
        *(sha256_file(path) for path in sorted(templates.glob("_*.j2"))),
        sha256_file(templates / f"{report.name}.md.j2"),
    ]


def _read_files(report: Report, inputs: Inputs) -> Iterator[Path]:
    """What a report reads besides runs and other reports."""
    if report.name == "m1":
        yield from quality_of_arms(inputs)
    if report.name == "scoring":
        yield from sorted((inputs.models / "quality").glob("judge_*.json"))
        yield from sorted((inputs.results / "scoring" / "measurements").glob("*.json"))
    if report.name == "m3":
        yield from sorted((inputs.results / "m3").glob("recommended.*"))


def _files(report: Report, inputs: Inputs) -> Iterator[str]:
    """Everything that a report has registered, as paths below its folder."""

    def of(artifact: Artifact) -> list[str]:
        if artifact.kind == "table":
            return [f"tables/{artifact.name}.{s}" for s in ("csv", *["tex"] * artifact.shown)]
        if artifact.kind == "figure":
            return [
                f"figures/{artifact.name}.{s}" for s in ("svg", *["png"] * bool(artifact.preview))
            ]
        return [f"plots/{artifact.name}.csv"]

    for artifact in report.artifacts(inputs.experiments):
        yield from of(artifact)


def _remove_others(target: Path, names: set[str]) -> None:
    """Remove tables, figures and plots that the report no longer has."""
    for folder in ("tables", "figures", "plots"):
        for path in (target / folder).glob("*"):
            if f"{folder}/{path.name}" not in names:
                path.unlink()
