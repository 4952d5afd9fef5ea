"""The engine with a report of its own: registration, families, prepared tables, captions."""

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from refblend.errors import StudyError
from refblend.study.design.spec import ExperimentSpec, load_experiment
from refblend.study.report.engine import (
    PREPARED,
    draw,
    prepared_tables,
    read_caption,
    write_tables,
)
from refblend.study.report.registry import Inputs, Report, Tables, load_report

PARAMS = Path(__file__).parents[3] / "params"


def make_report() -> Report:
    """Two tables of which the first uses the second, a family, a figure."""
    report = Report("toy", "A toy", lambda inputs: inputs.scale, lambda study: f"At {study}.")

    @report.table("double", shown=True)
    def double(tables: Tables) -> pd.DataFrame:
        return tables["single"] * 2

    @report.table("single")
    def single() -> pd.DataFrame:
        return pd.DataFrame({"a": pd.array([1, None], dtype="Int64"), "b": [1 / 3, 0.5]})

    @report.table("{experiment}_arms", each=lambda spec: not spec.exclusive)
    def arms(study: str, experiment: str) -> pd.DataFrame:
        return pd.DataFrame({"experiment": [experiment], "scale": [study]})

    @report.figure("line", preview=True)
    def line(tables: Tables) -> tuple[Any, str]:
        figure, axis = plt.subplots()
        axis.plot(tables["single"]["b"])
        return figure, "A line & more."

    return report


@pytest.fixture
def inputs(tmp_path: Path) -> Inputs:
    folders = (tmp_path / name for name in ("collected", "models", "results"))
    return Inputs("cpu", ("A", "E"), *folders, params=PARAMS)


def specs(*names: str) -> dict[str, ExperimentSpec]:
    return {name: load_experiment(PARAMS / "study" / f"{name}.yaml") for name in names}


def test_a_family_has_one_member_per_experiment_that_it_accepts() -> None:
    report = make_report()
    assert report.names("table", specs("A", "B", "E")) == ["double", "single", "A_arms", "B_arms"]
    assert [table.section for table in report.artifacts(specs("B"), "table")] == ["", "", "B"]


def test_tables_may_use_others_and_keep_their_types(inputs: Inputs, tmp_path: Path) -> None:
    write_tables(make_report(), inputs, tmp_path)
    assert (tmp_path / "tables" / "double.csv").read_text() == "a,b\n2,0.666667\n,1\n"
    assert (tmp_path / "tables" / "double.tex").exists()
    assert not (tmp_path / "tables" / "single.tex").exists()
    assert (tmp_path / "tables" / "A_arms.csv").read_text() == "experiment,scale\nA,cpu\n"
    prepared = prepared_tables(inputs.collected / PREPARED)
    assert list(prepared) == ["double", "single", "A_arms"]
    assert prepared["single"]["a"].dtype == "Int64"
    assert prepared["single"]["b"][0] == 1 / 3, "not rounded as the CSV is"
    with pytest.raises(KeyError):
        prepared["E_arms"]


def test_equal_tables_are_equal_files(inputs: Inputs, tmp_path: Path) -> None:
    write_tables(make_report(), inputs, tmp_path)
    first = (inputs.collected / PREPARED).read_bytes()
    write_tables(make_report(), inputs, tmp_path)
    assert (inputs.collected / PREPARED).read_bytes() == first


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_a_figure_is_the_same_file_each_time(inputs: Inputs, tmp_path: Path, suffix: str) -> None:
    write_tables(make_report(), inputs, tmp_path)
    path = tmp_path / "figures" / f"line.{suffix}"
    draw(make_report(), inputs, path)
    first = path.read_bytes()
    draw(make_report(), inputs, path)
    assert path.read_bytes() == first
    if suffix == "svg":
        assert read_caption(path) == "A line & more. At cpu."


def test_what_is_not_there_is_named(inputs: Inputs, tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="prepared tables cannot be read"):
        draw(make_report(), inputs, tmp_path / "line.svg")
    write_tables(make_report(), inputs, tmp_path)
    with pytest.raises(StudyError, match="toy has no figure curve"):
        draw(make_report(), inputs, tmp_path / "curve.svg")
    (tmp_path / "bare.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg"/>')
    for name in ("bare.svg", "absent.svg"):
        with pytest.raises(StudyError, match=f"{name}: has no caption"):
            read_caption(tmp_path / name)
    with pytest.raises(StudyError, match="there is no report m9"):
        load_report("m9")


def test_names_are_registered_once() -> None:
    report = make_report()
    with pytest.raises(ValueError, match="two tables single"):
        report.table("single")
    with pytest.raises(ValueError, match="go together"):
        report.table("{experiment}_more")
    report.figure("single")(lambda: None)  # a figure may be called as a table is


@pytest.mark.parametrize("name", ["scoring", "m1", "m2", "m3"])
def test_every_report_is_whole(name: str) -> None:
    """Each has its text, its numbers and exactly one preview, whatever its experiments."""
    report = load_report(name)
    experiments = specs("A", "B", "E", "F", "G", "H")
    figures = report.artifacts(experiments, "figure")
    assert {"text", "metrics"} <= set(report.single)
    assert sum(figure.preview for figure in figures) == 1
    assert len({figure.name for figure in figures}) == len(figures)
