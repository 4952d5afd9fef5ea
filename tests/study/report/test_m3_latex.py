"""`make paper`: M3's report as LaTeX, the same bytes every time, that compiles."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from environments import python_of
from m3_project import PARAMS, MakeRun, make_project

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "scripts" / "paper.sh"
WIDEST = 30.0
"""Points by which a line may stick out."""


def paper(pandoc: str, folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SCRIPT, pandoc, folder], capture_output=True, text=True, env=os.environ | more
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A report with one figure, and a directory of programs without a TeX."""
    (tmp_path / "figures").mkdir()
    (tmp_path / "report.md").write_text("# Title\n\n![curve](figures/curve.svg)\n\n*What.*\n")
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("bash", "cat", "dirname", "env", "mktemp", "mv", "rm", "sed"):
        (programs / name).symlink_to(shutil.which(name) or "")
    pandoc = programs / "pandoc"
    pandoc.write_text('#!/usr/bin/env bash\ncat "$1" > "${@: -1}"\n')
    pandoc.chmod(0o755)
    return tmp_path


def test_what_is_missing_is_named(folder: Path) -> None:
    done = paper("pandoc", folder)
    assert done.returncode == 2
    assert f"{folder} has no figures/curve.pdf: make the report anew" in done.stderr
    assert not (folder / "report.tex").exists()
    (folder / "report.md").unlink()
    done = paper("pandoc", folder)
    assert done.returncode == 2
    assert f"{folder} has no report.md" in done.stderr


def test_without_a_tex_there_is_no_pdf(folder: Path) -> None:
    (folder / "figures" / "curve.pdf").touch()
    programs = folder / "programs"
    done = paper(str(programs / "pandoc"), folder, PATH=str(programs))
    assert (done.returncode, done.stdout) == (0, f"{folder}/report.tex\n")
    assert "No pdflatex here" in done.stderr
    assert (folder / "report.tex").read_text().startswith("# Title")


@pytest.mark.slow
def test_the_report_compiles(
    tmp_path: Path, make_run: MakeRun, render: Callable[..., Path]
) -> None:
    python = python_of("paper")
    found = "import pypandoc; print(pypandoc.get_pandoc_path())"
    pandoc = subprocess.check_output([python, "-c", found], text=True).strip()
    out = render(make_project(tmp_path, make_run), "m3", params=PARAMS)
    done = paper(pandoc, out)
    assert done.returncode == 0, done.stderr
    first = (out / "report.tex").read_bytes()
    assert paper(pandoc, out).returncode == 0
    assert (out / "report.tex").read_bytes() == first
    text = first.decode()
    shown = re.findall(r"\\includegraphics\[[^]]*\]\{(.+?)\}", text)
    assert sorted(shown) == sorted(
        f"figures/{path.name}" for path in (out / "figures").glob("*.pdf")
    )
    assert text.count("\\caption{") == len(shown)
    if shutil.which("pdflatex") is None:
        pytest.skip("no pdflatex here: the LaTeX was written, but not compiled")
    assert (out / "report.pdf").read_bytes().startswith(b"%PDF")
    log = tmp_path / "log"
    log.mkdir()
    subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", f"-output-directory={log}", "report.tex"],
        cwd=out, capture_output=True, check=True,
    )  # fmt: skip
    said = (log / "report.log").read_text(encoding="latin-1")
    wide = [float(points) for points in re.findall(r"Overfull \\hbox \((\S+)pt too wide", said)]
    assert [points for points in wide if points > WIDEST] == []
