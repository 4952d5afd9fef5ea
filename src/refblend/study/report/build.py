"""Writes reports: tables as CSV, figures as SVG, a page of Markdown.

A report is a milestone's (``m2``), one experiment's (``A``), or ``scoring``. It has whatever
experiments have finished runs, and lies in ``results/<scale>/<name>/``. Its numbers come from the
collected frames of its runs; :class:`Archive` makes all reports of a scale.
"""

import re
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd

from refblend.errors import StudyError
from refblend.files import write_text
from refblend.study.design.arms import resolve_arms
from refblend.study.design.grid import read_grid
from refblend.study.design.names import MILESTONES, REPORTS, SCORING
from refblend.study.design.spec import ExperimentSpec, experiments_of, load_experiments
from refblend.study.recommend import overlay, recommendations
from refblend.study.report import figures, figures_runs, scoring, style
from refblend.study.report.alignment import alignment
from refblend.study.report.figures import Tables
from refblend.study.report.readable import to_markdown, write_csv
from refblend.study.report.study import Study, judged, make_study, stable
from refblend.study.report.summary import main_table
from refblend.study.report.tables import tables_of
from refblend.study.report.verdicts import headline, verdict_lines, verdicts
from refblend.study.runs.collect import RUN, Collected, read_collected, refuse_mixed_models, runs_of
from refblend.study.runs.incidents import incident_totals
from refblend.study.runs.measures import run_measures

Draw = Callable[[], style.Drawn]
WEIGHT = (figures_runs.weight_steps, figures_runs.weight_entropy, figures_runs.correlation)
"""How the weight behaves, of experiments that lead."""
TITLES = {"m1": "Stability", "m2": "Ablations", "m3": "Recommendation", "r": "A real model"}


@dataclass(frozen=True)
class Place:
    """A scale, and where its results, models and parameter files are."""

    scale: str
    results: Path
    models: Path
    params: Path = Path("params")

    @classmethod
    def of(cls, scale: str) -> "Place":
        """That of a scale below the current directory."""
        return cls(scale, Path("results", scale), Path("models", scale))

    def experiments(self, name: str) -> list[str]:
        """Those of a milestone's report, or the named experiment alone."""
        known = name in MILESTONES
        return experiments_of(name, self.params, self.scale) if known else [name]


def write_report(place: Place, name: str, collected: Collected, out: Path) -> Path:
    """Write the report of a milestone or an experiment from its collected runs.

    StudyError if no run has finished, or a file cannot be used.
    """
    asked = load_experiments(place.params, place.experiments(name))
    collected = of(collected, asked, place.scale)
    specs = {
        experiment: spec
        for experiment, spec in asked.items()
        if len(of(collected, {experiment: spec}, place.scale).finished)
    }
    if not specs:
        reasons = [reason for reason in collected.runs.reason if reason]
        raise StudyError(
            "; ".join([f"{name}: no run has finished at scale {place.scale}", *reasons[:1]]),
            "Train it, or correct what its runs report, and call again.",
        )
    study = make_study(collected, specs, place.scale, place.params)
    tables = tables_of(study)
    sections = figures_of(study, tables)
    pages = [page_of(study, tables, each) for each in specs]
    captions = _write(out, tables, sections)
    shown = {key: [(n, captions[n]) for n in drawn] for key, drawn in sections.items()}
    runs = collected.runs
    _write_page(
        out,
        "report",
        title=TITLES.get(name) or next(iter(specs.values())).title,
        scale=place.scale,
        runs=len(runs),
        absent=runs[runs.status != "finished"].to_dict("records"),
        incidents={kind: n for kind, n in incident_totals(collected).items() if n},
        stability=tables["stability"] if any(map(stable, specs.values())) else None,
        headline=headline(study, tables["verdicts"]),
        recommendations=tables.get("recommendations"),
        experiments=pages,
        figures=shown,
        tables=[each for each in tables if not any(each in page["tables"] for page in pages)],
    )
    return out / "report.md"


def figures_of(study: Study, tables: Tables) -> dict[str, dict[str, Draw]]:
    """Section → name of a figure → what draws it; sections are experiments, ``""`` and ``weight``.

    To add one, write its function in :mod:`.figures` and name it here. The file of an experiment's
    figure is named ``<experiment>_<function>``.
    """
    found: dict[str, dict[str, Draw]] = {"": {}, "weight": {}}
    if tables["verdicts"].primary.any():
        found[""]["verdicts"] = partial(figures.verdict_forest, study, tables)
    if "alignment" in tables:
        found[""]["alignment"] = partial(alignment, study, tables)
    for name, spec in study.experiments.items():
        compares = not spec.exclusive and not stable(spec)
        asked = {
            figures_runs.training: stable(spec),
            figures.costs: spec.exclusive and bool(spec.factors),
            figures.forest: compares,
            figures.sensitivity: bool(study.levels(name)),
            figures.dose: spec.dose,
            figures.judge_quality: judged(spec) and compares,
            figures.judges: judged(spec),
            figures.learning: compares and not spec.sweep and not judged(spec),
        }
        own = [draw for draw, wanted in asked.items() if wanted]
        found[name] = {f"{name}_{d.__name__}": partial(d, study, tables, name) for d in own}
        for draw in WEIGHT if spec.leads else ():
            found["weight"][f"{name}_{draw.__name__}"] = partial(draw, study, tables, name)
    return found


def page_of(study: Study, tables: Tables, experiment: str) -> dict[str, Any]:
    """What the page shows of an experiment: its question, verdicts, main table, names of tables."""
    spec, verdicts = study.experiments[experiment], tables["verdicts"]
    own = verdicts[(verdicts.experiment == experiment) & ~verdicts.primary]
    named = [f"{experiment}_{kind}" for kind in ("summary", "costs", "judge_auc", "dose")]
    found = [name for name in named if name in tables]
    return {
        "name": experiment,
        "title": spec.title,
        "question": spec.question.strip(),
        "test": spec.test if "test" in spec.model_fields_set else "",
        "verdicts": verdict_lines(own),
        "table": main_table(study, experiment, tables[found[0]]),
        "tables": found,
    }


def write_scoring(place: Place, out: Path) -> Path:
    """Write the report on scoring; StudyError if a measurement is missing or malformed."""
    tables = scoring.read_tables(place.results, place.models)
    drawn = (scoring.robustness, scoring.judge_reliability)
    captions = _write(out, tables, {"": {d.__name__: partial(d, tables) for d in drawn}})
    shown, names = scoring.shown(tables), list(tables)
    _write_page(out, "scoring", scale=place.scale, shown=shown, captions=captions, tables=names)
    return out / "report.md"


def _write(out: Path, tables: Tables, sections: Mapping[str, Mapping[str, Draw]]) -> dict[str, str]:
    """Write tables and figures in place of an earlier report's; captions by figure."""
    report, ends = out / "report.md", {"tables": ".csv", "figures": ".svg"}
    foreign = [f for f in out.glob("*/*") if f.suffix != ends.get(f.parent.name, f.suffix)]
    if not report.exists():
        foreign += [out / name for name in ends if (out / name).exists()]
    elif not re.match(r"# .+ \(scale `\w+`\)\n|\Z", report.read_text(errors="replace")):
        foreign.append(report)
    if foreign:
        raise StudyError(f"{foreign[0]} was written by no report", "Name another folder.")
    out.mkdir(parents=True, exist_ok=True)
    report.touch()  # so that the next call may replace what this one leaves half done
    shutil.rmtree(out / "tables", ignore_errors=True)
    for name, frame in tables.items():
        write_csv(frame, out / "tables" / f"{name}.csv")
    shutil.rmtree(out / "figures", ignore_errors=True)
    style.apply_style()
    captions = {}
    for drawn in sections.values():
        for name, draw in drawn.items():
            figure, captions[name] = draw()
            style.write_figure(figure, out / "figures" / f"{name}.svg")
    return captions


def of(collected: Collected, specs: Mapping[str, ExperimentSpec], scale: str) -> Collected:
    """The frames of the runs that some experiments have at a scale, in the order of their files."""
    own = pd.concat([runs_of(spec.seeds_by_arm(scale)) for spec in specs.values()] or [runs_of({})])
    own = own.drop_duplicates()
    return Collected(*(own.merge(frame, on=RUN) for frame in collected))


@dataclass(frozen=True)
class Archive:
    """The archived runs of a scale; experiments that it lacks are left out."""

    place: Place
    known: Collection[str]
    collected: Collected

    @classmethod
    def read(cls, place: Place) -> "Archive":
        """Read it; StudyError if grid or archive cannot be read."""
        grid, archive = read_grid(place.results / "grid.tsv"), read_collected(place.results)
        archived = set(zip(archive.runs.arm, archive.runs.seed.astype(str), strict=True))
        runs = zip(grid.arm, grid.seed, strict=True)
        lacking = set(grid.experiment[[run not in archived for run in runs]])
        known = [name for name in dict.fromkeys(grid.experiment) if name not in lacking]
        collected = of(archive, load_experiments(place.params, known), place.scale)
        return cls(place, known, collected)

    def write_verdicts(self, out: Path | None = None) -> Path:
        """Write ``verdicts.csv`` of all experiments; errors of :meth:`verdicts`."""
        path = (out or self.place.results) / "verdicts.csv"
        write_csv(self.verdicts(self.experiments()), path)
        return path

    def experiments(self, names: Collection[str] = ()) -> dict[str, ExperimentSpec]:
        """The complete ones, or some of them by name; StudyError if the archive lacks one."""
        if absent := [name for name in names if name not in self.known]:
            raise StudyError(
                f"{self.place.results} has no complete experiment {', '.join(absent)}",
                f"Name some of {', '.join(self.known)}, or finish and archive its runs.",
            )
        return load_experiments(self.place.params, names or self.known)

    def verdicts(self, specs: Mapping[str, ExperimentSpec]) -> pd.DataFrame:
        """The verdicts on contrasts; StudyError where one compares runs of different models."""
        refuse_mixed_models(self.collected.runs, specs, self.place.scale)
        return verdicts(run_measures(self.collected), specs, self.place.scale)

    def recommend(self, names: Collection[str], out: Path) -> list[Path]:
        """Write what experiments recommend in their regimes; without names all that have any.

        StudyError if none has a candidate in a regime, or if two declare the same one.
        """
        specs = {name: spec for name, spec in self.experiments(names).items() if spec.regimes}
        arms = resolve_arms(specs, self.place.scale, self.place.params)
        found = recommendations(self.verdicts(specs), specs, arms, self.place.scale)
        if not found:
            raise StudyError(
                "no experiment compares a blend with the baseline of a regime",
                "Declare `regimes` in a file of params/study (docs/explanation/recommendation.md).",
            )
        paths = [out / f"{chosen.regime}.yaml" for chosen in found]
        for path, best in zip(paths, found, strict=True):
            text = overlay(best, specs[best.experiment], self.place.scale, arms[best.arm])
            write_text(path, text)
        return paths

    def redraw(self, reports: Collection[str] = (), out: Path | None = None) -> Iterator[Path]:
        """Write the verdicts and all reports of the scale, or some, each when it is written.

        ``out`` is by default the results. Errors of :meth:`experiments` and :meth:`verdicts`.
        """
        self.experiments([name for name in reports if name not in REPORTS])
        out, place = out or self.place.results, replace(self.place, models=self.place.results)
        yield self.write_verdicts(out)
        for name in reports or REPORTS:
            if name == SCORING:
                if (place.results / SCORING / "measurements").is_dir():
                    yield write_scoring(place, out / name)
                continue
            names = place.experiments(name)
            own = load_experiments(place.params, [each for each in names if each in self.known])
            collected = of(self.collected, own, place.scale)
            if len(collected.finished):
                yield write_report(place, name, collected, out / name)


def _write_page(out: Path, template: str, **variables: Any) -> None:
    """Render a template to ``report.md``; an unknown variable is an error."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("refblend.study.report"),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["table"] = to_markdown
    text = environment.get_template(f"{template}.md.j2").render(variables)
    write_text(out / "report.md", text)
