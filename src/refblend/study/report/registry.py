"""What each report consists of: tables, figures, plot data and text, registered by decorators.

A report is a package below ``refblend.study.report`` (m1, m2, m3, r, scoring) that makes one
:class:`Report` and decorates functions with it; every module of the package is imported, so that a
new table or figure is one decorated function and nothing else. See :mod:`.engine` for an example.
"""

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar

import pandas as pd

from refblend.errors import StudyError
from refblend.study.design.names import REPORTS
from refblend.study.design.spec import ExperimentSpec, load_experiment

PACKAGE = "refblend.study.report"
PLACEHOLDER = "{experiment}"
Function = TypeVar("Function", bound=Callable[..., Any])
Kind = Literal["table", "figure", "plot"]
Preview = bool | Callable[[ExperimentSpec], bool]
Tables = Mapping[str, pd.DataFrame]
"""Tables by name."""


@dataclass(frozen=True)
class Inputs:
    """Where a report finds what it is made from.

    ``study`` names the milestone's experiments, files of ``params/study``; the other paths are the
    folders of one scale: collected frames, models and results of all milestones.
    """

    scale: str
    study: tuple[str, ...]
    collected: Path
    models: Path
    results: Path
    params: Path = Path("params")

    @cached_property
    def experiments(self) -> dict[str, ExperimentSpec]:
        """The milestone's experiments by name, in the order of their names."""
        return read_experiments(self.study, self.params)


def read_experiments(names: tuple[str, ...], params: Path) -> dict[str, ExperimentSpec]:
    """Experiments by name.

    Raises:
        StudyError, ConfigError: a file is missing or not acceptable.
    """
    return {name: load_experiment(params / "study" / f"{name}.yaml") for name in names}


@dataclass(frozen=True)
class Artifact:
    """One file (or file with its LaTeX twin) that a report writes."""

    kind: Kind
    name: str
    function: Callable[..., Any]
    experiment: str | None = None
    """Of a family, the experiment that this member is about."""
    section: str = ""
    """Where the report shows a figure; the experiment, for members of a family."""
    shown: bool = False
    """A table that the report shows: written as LaTeX, too."""
    preview: Preview = False
    """A figure that DVC and README show: written as PNG, too; of a family, which members."""
    pdf: bool = False
    """A figure of a text that is also made with LaTeX: written as PDF, too."""
    each: Callable[[ExperimentSpec], bool] | None = None
    """Of a family, which experiments have a member."""

    def place(self) -> tuple[str, int]:
        """Module and line of the function: an order that does not depend on what imports what."""
        code = self.function.__code__
        return code.co_filename, code.co_firstlineno

    @property
    def files(self) -> list[str]:
        """What is written of it, below the report's folder."""
        pictures = ["png"] * bool(self.preview) + ["pdf"] * self.pdf
        more = {"table": ["tex"] * self.shown, "figure": pictures, "plot": []}
        suffixes = ["svg" if self.kind == "figure" else "csv", *more[self.kind]]
        return [f"{self.kind}s/{self.name}.{suffix}" for suffix in suffixes]

    def make(self, **available: Any) -> Any:
        """Call the function with those of ``available`` that its parameters name."""
        wanted = inspect.signature(self.function).parameters
        values = available | {"experiment": self.experiment}
        return self.function(**{name: values[name] for name in wanted if name in values})

    def members(self, experiments: Mapping[str, ExperimentSpec]) -> Iterator["Artifact"]:
        """The artifact itself, or one for each experiment that its predicate accepts."""
        if self.each is None:
            yield self
            return
        for experiment, spec in experiments.items():
            if self.each(spec):
                name = self.name.replace(PLACEHOLDER, experiment)
                preview = self.preview(spec) if callable(self.preview) else self.preview
                member = replace(self, name=name, experiment=experiment, preview=preview)
                yield replace(member, section=self.section or experiment)


@dataclass(frozen=True)
class Report:
    """A report: how its study is read, and everything that is made from it.

    Args:
        name: of its package, its template ``<name>.md.j2`` and its folder below the results.
        title: its category in Snakemake's report.
        read: makes the study, the first argument of all registered functions.
        origin: of a study, the sentence that ends all captions: which runs, which commit.
    """

    name: str
    title: str
    read: Callable[[Inputs], Any]
    origin: Callable[[Any], str] | None = None
    entries: list[Artifact] = field(default_factory=list)
    single: dict[str, Callable[..., dict[str, Any]]] = field(default_factory=dict)

    def table(self, name: str, **options: Any) -> Callable[[Function], Function]:
        """Register ``(study[, tables][, experiment]) -> DataFrame`` as ``tables/<name>.csv``.

        ``tables`` holds the report's other tables, each made when it is asked for. A name with
        ``{experiment}`` in it needs ``each``; options are those of :class:`Artifact`.
        """
        return self._register("table", name, **options)

    def figure(self, name: str, **options: Any) -> Callable[[Function], Function]:
        """Register ``(study, tables[, experiment]) -> (figure, caption)``, ``figures/<name>.svg``.

        The same options as :meth:`table`; one figure per report has ``preview``.
        """
        return self._register("figure", name, **options)

    def plot(self, name: str) -> Callable[[Function], Function]:
        """Register ``(study[, tables]) -> DataFrame``: ``plots/<name>.csv``, for a plot of DVC."""
        return self._register("plot", name)

    def text(self, function: Function) -> Function:
        """Register ``(study, tables) -> dict``, the variables of the template."""
        self.single["text"] = function
        return function

    def metrics(self, function: Function) -> Function:
        """Register ``(study, tables) -> dict``, a few flat headline numbers for ``dvc metrics``."""
        self.single["metrics"] = function
        return function

    def artifacts(
        self, experiments: Mapping[str, ExperimentSpec], kind: Kind | None = None
    ) -> list[Artifact]:
        """Everything that the report writes for these experiments, in the order of its source."""
        return [
            member
            for entry in sorted(self.entries, key=Artifact.place)
            if kind is None or entry.kind == kind
            for member in entry.members(experiments)
        ]

    def names(self, kind: Kind, experiments: Mapping[str, ExperimentSpec]) -> list[str]:
        """Names of the tables, figures or plots."""
        return [artifact.name for artifact in self.artifacts(experiments, kind)]

    def find(self, name: str, experiments: Mapping[str, ExperimentSpec]) -> Artifact:
        """The figure of that name.

        Raises:
            StudyError: the report has no such figure.
        """
        figures = {figure.name: figure for figure in self.artifacts(experiments, "figure")}
        if name not in figures:
            raise StudyError(
                f"{self.name} has no figure {name}", f"Choose one of {', '.join(figures)}."
            )
        return figures[name]

    def _register(self, kind: Kind, name: str, **options: Any) -> Callable[[Function], Function]:
        if (PLACEHOLDER in name) != ("each" in options):
            raise ValueError(f"{name}: {PLACEHOLDER} in the name and `each` go together")
        if any(entry.name == name and entry.kind == kind for entry in self.entries):
            raise ValueError(f"{self.name} has two {kind}s {name}")

        def decorate(function: Function) -> Function:
            self.entries.append(Artifact(kind, name, function, **options))
            return function

        return decorate


def load_report(name: str) -> Report:
    """The report of that name, with all modules of its package imported.

    Raises:
        StudyError: there is no such report.
    """
    try:
        package = importlib.import_module(f"{PACKAGE}.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"{PACKAGE}.{name}":
            raise
        known = ", ".join(REPORTS)
        raise StudyError(f"there is no report {name}", f"Choose one of {known}.") from None
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    report: Report = importlib.import_module(f"{package.__name__}.study").REPORT
    return report
