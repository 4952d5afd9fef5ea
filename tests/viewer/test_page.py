"""The page of a run, in a real browser."""

import os
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner
from viewed_run import response, write_run

from refblend.cli.main import app
from refblend.viewer import page

BROWSER = os.environ.get("CHROMIUM") or next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
in_a_browser = pytest.mark.skipif(
    BROWSER is None, reason="no Chromium: install it (Debian: chromium) or name it in CHROMIUM"
)


class Shown(HTMLParser):
    """What a page shows: texts of cells by row, metrics that are drawn, and texts by id."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.metrics: list[str] = []
        self.paths: list[str] = []
        self.ids: dict[str, str] = {}
        self._open: list[str | None] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        named = dict(attributes)
        if tag == "tr" and named.get("class") == "response":
            self.rows.append([])
        if tag == "figure":
            self.metrics.append(str(named["data-metric"]))
        if tag == "path":
            self.paths.append(str(named["d"]))
        self._open.append(named.get("id") if tag != "td" else "td")

    def handle_endtag(self, tag: str) -> None:
        if tag == "td":
            self._open.append(None)

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] == "td" and self.rows:
            self.rows[-1].append(data)
        elif self._open and self._open[-1]:
            self.ids.setdefault(str(self._open[-1]), data)


def browse(file: Path, view: str = "", script: str = "") -> tuple[Shown, str]:
    """The page after its script has run, and what the browser's console says."""
    if script:
        text = file.read_text(encoding="utf-8")
        file = file.with_name("scripted.html")
        file.write_text(text.replace("</body>", f"<script>{{{script}}}</script></body>"), "utf-8")
    call = [
        str(BROWSER),
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--enable-logging=stderr",
        f"--user-data-dir={file.parent / 'profile'}",
        "--virtual-time-budget=3000",
        "--dump-dom",
        file.as_uri() + view,
    ]
    done = subprocess.run(call, capture_output=True, text=True, timeout=120, check=True)
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return Shown(done.stdout), "\n".join(console)


def write(run: Path, *arguments: object) -> Path:
    file = run.parent / "page.html"
    result = CliRunner().invoke(
        app, ["show", str(run), "--html", str(file), *map(str, arguments)], catch_exceptions=False
    )
    assert str(file) in result.output
    return file


@in_a_browser
def test_curves_and_responses(run_dir: Path) -> None:
    shown, console = browse(write(run_dir))
    assert console == ""
    assert shown.metrics == [
        "val-core/refblend/arithmetic/acc/mean@1",
        "critic/score/mean",
        "actor/ref_quality/weight",
    ]
    # from step 0 at the bottom left to step 2 at the top right
    assert shown.paths[0] == "M50.0 94.0L282.0 8.0"
    assert [row[4] for row in shown.rows[:2]] == ["answer 0", "answer 1"]
    first = ["2", "4", "3 + 4?", "7", "answer 0", "1", "0.5"]
    first += ["as written", r"\box{0.5}", "0.2", "0.9", "5"]
    assert shown.rows[0] == first
    assert shown.rows[2][8].startswith("</script><b>"), "a text is a text, whatever it contains"
    assert shown.ids["count"] == "4 of 4 responses"


@in_a_browser
def test_a_link_carries_a_search(run_dir: Path) -> None:
    shown, console = browse(write(run_dir), "#search=ANSWER+3&metric=weight")
    assert (console, shown.metrics) == ("", ["actor/ref_quality/weight"])
    assert [row[4] for row in shown.rows] == ["answer 3"]
    assert shown.ids["count"] == "1 of 4 responses"


@in_a_browser
def test_sorting_filters_details_and_the_cursor(run_dir: Path) -> None:
    script = """
      const press = key => document.querySelector(`button[data-key=${key}]`).click();
      press("blended");
      const answer = document.getElementById("answer");
      answer.value = "1";
      answer.dispatchEvent(new Event("input"));
      document.querySelector("tr.response").click();
      const svg = document.querySelector("svg"), box = svg.getBoundingClientRect();
      const at = { clientX: box.right - 5, clientY: box.top };
      svg.dispatchEvent(new PointerEvent("pointermove", at));
      const told = document.querySelector(".value").textContent;
      const detail = document.querySelector("tr.detail").innerText;
      document.getElementById("title").textContent = `${told} | ${detail.includes("judge_raw")}`;
    """
    shown, console = browse(write(run_dir), script=script)
    assert console == ""
    assert [row[4] for row in shown.rows] == ["answer 2", "answer 0"]
    assert shown.ids["title"] == "step 2: 0.5 | true"


@in_a_browser
def test_an_error_of_the_page_would_be_seen(run_dir: Path) -> None:
    _, console = browse(write(run_dir), script="missing();")
    assert "missing is not defined" in console
    _, console = browse(write(run_dir), script="fetch('http://127.0.0.1:9/');")
    assert "Content Security Policy" in console, "the page may not use the network"


def test_the_page_refers_to_nothing_outside(run_dir: Path) -> None:
    text = write(run_dir).read_text(encoding="utf-8")
    assert re.findall(r"""(?:src|href|url)\s*[=(]\s*["']?(?!data:)\w""", text) == []
    assert "</script><b>" not in text
    assert text.count("</script>") == 1


def test_what_is_not_a_number_is_null(tmp_path) -> None:
    run = write_run(tmp_path / "a", responses={2: [response(0, entropy=float("nan"))]})
    assert '"entropy":null' in write(run).read_text(encoding="utf-8")


def test_a_long_run_keeps_its_newest_responses(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(page, "MAX_RESPONSES", 5)
    steps = {step: [response(n, step=step) for n in range(2)] for step in (2, 4, 6, 8)}
    run = write_run(tmp_path / "a", responses=steps)
    text = write(run).read_text(encoding="utf-8")
    assert [int(n) for n in re.findall(r'"step":(\d+)', text)] == [2, 2, 8, 8]
    assert '"recorded":8' in text
