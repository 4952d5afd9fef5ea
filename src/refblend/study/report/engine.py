"""The report engine: writes what a report has registered. All milestones go through it.

A report is a package with a module ``study`` that makes the :class:`~.registry.Report`, and any
modules with decorated functions, of which each takes what its parameters name::

    REPORT = Report("m2", "M2 ablations", read_study)  # m2/study.py; read_study(Inputs) -> Study

    @REPORT.table("{experiment}_summary", each=learns)      # learns(ExperimentSpec) -> bool
    def summary(study: Study, experiment: str) -> pd.DataFrame: ...

    @REPORT.table("contrasts", shown=True)                  # in the report, and as LaTeX
    def contrasts(study: Study, tables: Tables) -> pd.DataFrame: ...   # any other tables

    @REPORT.figure("{experiment}_forest", each=learns)      # A_forest, B_forest, …: one SVG each
    def forest(study: Study, tables: Tables, experiment: str) -> Drawn: ...  # figure, caption

    @REPORT.text
    def text(study: Study, tables: Tables) -> dict[str, Any]:  # variables of templates/m2.md.j2
        return facts(study.collected) | {"abstract": abstract(study, tables)}

``REPORT.plot(name)`` registers data of a DVC plot and ``REPORT.metrics`` the flat headline numbers.
Three steps make a report, each a job of the workflow: :func:`write_tables` (all tables, kept with
their types for the later steps, and plot data), :func:`draw` (one figure), :func:`write_report`
(text and numbers). A figure carries its caption in its description, where the report finds it.

Templates get the variables of ``text`` and: ``scale``, ``tables`` (name → Markdown, of shown
tables), ``without_rows`` (the names of those that are empty), ``figures`` (the artifacts),
``figure(name)`` (a figure with its caption) and ``made_by``. They may include the shared parts
``_*.md.j2``.
"""

import io
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jinja2
import pandas as pd

from refblend.data.schema import PARQUET_ERRORS
from refblend.errors import StudyError
from refblend.files import atomic_path, write_json, write_text
from refblend.study.report import readable
from refblend.study.report.readable import to_markdown, words, write_csv, write_latex
from refblend.study.report.registry import Artifact, Inputs, Report, Tables

PREPARED = "tables.zip"
"""Beside the collected frames: the tables with their types, a Parquet file each."""

PHRASES = ("own", "difference", "names", "probability", "interval", "change", "estimate", "counts")
"""Functions of :mod:`.readable` that templates have as filters."""

FORMATS = {"share": ".1%", "number": ".3f", "signed": "+.3f", "percent": ".0%"}
"""Filters of numbers; a missing one is a dash."""

DESCRIPTION = "{http://purl.org/dc/elements/1.1/}description"


class LazyTables(Tables):
    """Tables that are made or read when they are asked for, each once."""

    def __init__(self, names: Iterable[str], make: Callable[[str], pd.DataFrame]) -> None:
        self.names = list(names)
        self.make = cache(make)

    def __getitem__(self, name: str) -> pd.DataFrame:
        if name not in self.names:
            raise KeyError(name)
        return self.make(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


def new_tables(artifacts: Iterable[Artifact], study: Any) -> Tables:
    """Tables of a study; each may use the others."""
    named = {artifact.name: artifact for artifact in artifacts}
    tables = LazyTables(named, lambda name: named[name].make(study=study, tables=tables))
    return tables


def prepared_tables(path: Path) -> Tables:
    """Tables of :data:`PREPARED`.

    Raises:
        StudyError: the file is missing or damaged; also when a table is asked for.
    """

    @contextmanager
    def explained(what: str) -> Iterator[None]:
        try:
            yield
        except (OSError, zipfile.BadZipFile, *PARQUET_ERRORS) as error:
            reason = f"{path}: {what} cannot be read ({error})"
            raise StudyError(reason, "Run `refblend study tables`.") from None

    def read(name: str) -> pd.DataFrame:
        with explained(f"table {name}"), zipfile.ZipFile(path) as archive:
            return pd.read_parquet(io.BytesIO(archive.read(name)))

    with explained("prepared tables"), zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    return LazyTables(names, read)


def write_tables(report: Report, inputs: Inputs, out: Path) -> None:
    """Write tables (LaTeX too of those that are shown) and plot data, and :data:`PREPARED`."""
    _write_tables(report, inputs, report.read(inputs), out)


def _write_tables(report: Report, inputs: Inputs, study: Any, out: Path) -> None:
    artifacts = report.artifacts(inputs.experiments, "table")
    tables = new_tables(artifacts, study)
    for artifact in artifacts:
        write_csv(tables[artifact.name], out / "tables" / f"{artifact.name}.csv")
        if artifact.shown:
            write_latex(tables[artifact.name], out / "tables" / f"{artifact.name}.tex")
    for artifact in report.artifacts(inputs.experiments, "plot"):
        frame = artifact.make(study=study, tables=tables)
        write_csv(frame, out / "plots" / f"{artifact.name}.csv")
    with (
        atomic_path(inputs.collected / PREPARED) as temporary,
        zipfile.ZipFile(temporary, "w") as archive,
    ):
        for name, frame in tables.items():
            stream = io.BytesIO()
            frame.to_parquet(stream, index=False)
            # A date of its own would make equal tables differ.
            archive.writestr(zipfile.ZipInfo(name), stream.getvalue())


def draw(report: Report, inputs: Inputs, out: Path) -> None:
    """Draw the figure that the file's stem names, as SVG, PNG or PDF by its suffix.

    Raises:
        StudyError: the report has no such figure, or its tables are not prepared.
    """
    artifact = report.find(out.stem, inputs.experiments)
    tables = prepared_tables(inputs.collected / PREPARED)
    _draw(report, artifact, report.read(inputs), tables, out)


def _draw(report: Report, artifact: Artifact, study: Any, tables: Tables, out: Path) -> None:
    from refblend.study.report.plotting.common import apply_style, write_figure

    apply_style()
    figure, caption = artifact.make(study=study, tables=tables)
    write_figure(figure, out, f"{caption} {report.origin(study)}" if report.origin else caption)


def write_report(report: Report, inputs: Inputs, out: Path) -> None:
    """Write ``report.md`` and ``metrics.json`` beside tables and figures.

    Raises:
        StudyError: the tables are not prepared, or a figure is not drawn.
    """
    tables = prepared_tables(inputs.collected / PREPARED)
    _write_text(report, inputs, report.read(inputs), tables, out)


def _write_text(report: Report, inputs: Inputs, study: Any, tables: Tables, out: Path) -> None:
    captions = {
        name: read_caption(out / "figures" / f"{name}.svg")
        for name in report.names("figure", inputs.experiments)
    }
    write_text(out / "report.md", render(report, inputs, study, tables, captions))
    write_json(out / "metrics.json", report.single["metrics"](study, tables))


def write_everything(report: Report, inputs: Inputs, out: Path) -> None:
    """Tables, figures, text and numbers of a report, one after another; its study is read once."""
    study = report.read(inputs)
    _write_tables(report, inputs, study, out)
    tables = prepared_tables(inputs.collected / PREPARED)
    for figure in report.artifacts(inputs.experiments, "figure"):
        for file in figure.files:
            _draw(report, figure, study, tables, out / file)
    _write_text(report, inputs, study, tables, out)


def render(
    report: Report, inputs: Inputs, study: Any, tables: Tables, captions: Mapping[str, str]
) -> str:
    """The Markdown text of a report; ``captions`` has every figure."""
    shown = [entry.name for entry in report.artifacts(inputs.experiments, "table") if entry.shown]
    variables = {
        "scale": inputs.scale,
        "tables": {name: to_markdown(tables[name]) for name in shown},
        "without_rows": {name for name in shown if tables[name].empty},
        "figures": report.artifacts(inputs.experiments, "figure"),
        "figure": lambda name: f"![{words(name)}](figures/{name}.svg)\n\n*{captions[name]}*\n",
        "made_by": f"snakemake {report.name} --config scale={inputs.scale}",
    }
    template = environment().get_template(f"{report.name}.md.j2")
    return template.render(variables | report.single["text"](study, tables))


@cache
def environment() -> jinja2.Environment:
    """The one environment of all templates; an unknown variable is an error."""

    def formatted(spec: str, value: float | None) -> str:
        return "–" if pd.isna(value) else format(value, spec)

    made = jinja2.Environment(
        loader=jinja2.PackageLoader("refblend.study.report"),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )
    made.filters |= {name: getattr(readable, name) for name in PHRASES}
    made.filters["words"] = words
    made.filters |= {name: partial(formatted, spec) for name, spec in FORMATS.items()}
    made.tests["missing"] = pd.isna
    return made


def read_caption(path: Path) -> str:
    """The caption that a figure carries in its description.

    Raises:
        StudyError: the figure is missing or was not drawn by :func:`draw`.
    """
    try:
        found = ElementTree.parse(path).iter(DESCRIPTION)
        return next(element.text or "" for element in found)
    except (OSError, ElementTree.ParseError, StopIteration) as error:
        raise StudyError(
            f"{path}: has no caption ({error or 'no description'})", "Run `refblend study figure`."
        ) from None
