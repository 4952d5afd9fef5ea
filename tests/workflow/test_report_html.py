"""The self-contained HTML of ``snakemake --report``, opened and clicked through in Chromium.

The browser is Debian's package ``chromium``, driven over its DevTools protocol. A finished study's
report is checked by ``python tests/workflow/test_report_html.py results/cpu/report.html``.
"""

import base64
import contextlib
import importlib.util
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FAKE = Path(__file__).with_name("fake_refblend.py")
CHROMIUM = shutil.which("chromium")
DEADLINE_S = 300.0

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's package chromium"),
    pytest.mark.skipif(
        importlib.util.find_spec("snakemake") is None, reason="needs the extra `workflow`"
    ),
    pytest.mark.skipif(
        importlib.util.find_spec("websockets") is None, reason="needs the package websockets"
    ),
]

WALK = """(async () => {
  const pause = ms => new Promise(done => setTimeout(done, ms));
  const until = async (what, name) => {
    for (let i = 0; i < 1200; i++) { const seen = what(); if (seen) return seen; await pause(50); }
    throw new Error("never seen: " + name);
  };
  const item = (text) => [...document.querySelectorAll("nav li a")].find(
    link => link.querySelector("span") && link.querySelector("span").textContent === text);
  const click = async text => { (await until(() => item(text), text)).click(); await pause(20); };
  const home = async () => {
    document.querySelector("nav nav ol li a").click();
    await until(() => item("About"), "the menu");
  };
  const look = async (row, opens) => {
    const view = row.querySelector("td:last-child a");
    if (view.hasAttribute("download")) {
      return {kind: "file", whole: view.href.startsWith("data:") && view.href.length > 30};
    }
    view.click();
    await pause(20);
    const shown = await until(
      () => document.querySelector("div.grow img, div.grow iframe"), "a result");
    if (shown.tagName === "IFRAME") return {kind: "frame", whole: shown.src.startsWith("data:")};
    await until(() => shown.complete, "a loaded figure");
    const inside = shown.src.startsWith("data:");
    return {kind: "figure", whole: inside && shown.naturalWidth > 0 && shown.clientWidth > 0};
  };
  await until(() => item("About"), "the menu");
  const found = [];
  for (const category of Object.keys(categories)) {
    const parts = Object.keys(categories[category]);
    for (const part of parts) {
      await home();
      // A report of one category calls it so.
      await click(Object.keys(categories).length === 1 ? 'Results' : category);
      if (parts.length > 1) await click(part);
      const rows = await until(() => {
        const all = [...document.querySelectorAll("nav tbody tr")];
        return all.length ? all : null;
      }, `results of ${category}, ${part}`);
      for (const row of rows) {
        const labels = [...row.querySelectorAll("td")].slice(0, -1).map(cell => cell.textContent);
        found.push({category, part, labels, ...await look(row)});
      }
    }
  }
  return {found, declared: Object.keys(results).length};
})()"""
"""Clicks every category, subcategory and result; a result is whole when it needs no network."""


@dataclass
class Page:
    """A page of the browser; ``errors`` fills with console errors and uncaught exceptions."""

    socket: Any
    errors: list[str] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a DevTools method and wait for its answer."""
        number = next(self.numbers)
        self.socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            message = json.loads(self.socket.recv(timeout=DEADLINE_S))
            self._note(message)
            if message.get("id") == number:
                assert "error" not in message, message
                return dict(message["result"])

    def _note(self, message: dict[str, Any]) -> None:
        method, params = message.get("method"), message.get("params", {})
        console = method == "Runtime.consoleAPICalled" and params["type"] in ("error", "assert")
        logged = method == "Log.entryAdded" and params["entry"]["level"] == "error"
        if console or logged or method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(params)[:500])

    def run(self, script: str) -> Any:
        """Evaluate JavaScript, wait for its promise, and return its value."""
        answer = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")


@contextlib.contextmanager
def opened(html: Path) -> Iterator[Page]:
    """A page in headless Chromium that has loaded ``html``; the network is switched off."""
    from websockets.sync.client import connect

    assert CHROMIUM is not None
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    flags += ["--no-first-run", "--disable-background-networking", "--remote-debugging-port=0"]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [CHROMIUM, *flags, f"--user-data-dir={profile}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            with connect(_page_address(Path(profile), process), max_size=None) as socket:
                page = Page(socket)
                for domain in ("Runtime", "Log", "Page", "Network"):
                    page.call(f"{domain}.enable")
                page.call("Network.emulateNetworkConditions", **OFFLINE)
                page.call("Page.navigate", url=html.resolve().as_uri())
                yield page
        finally:
            process.terminate()
            process.wait(timeout=30)


OFFLINE = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}


def _page_address(profile: Path, process: subprocess.Popen[bytes]) -> str:
    """Address of the browser's one page, as soon as it listens."""
    port_file, deadline = profile / "DevToolsActivePort", time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        assert process.poll() is None, "Chromium ended at once"
        if port_file.exists() and (lines := port_file.read_text().split()):
            with urllib.request.urlopen(f"http://127.0.0.1:{lines[0]}/json") as answer:
                pages = [entry for entry in json.load(answer) if entry["type"] == "page"]
            if pages:
                return str(pages[0]["webSocketDebuggerUrl"])
        time.sleep(0.1)
    raise AssertionError("Chromium never listened")


def wait_for(page: Page, condition: str) -> None:
    """Poll a condition while the page loads."""
    deadline = time.monotonic() + DEADLINE_S
    while not page.run(condition):
        assert time.monotonic() < deadline, f"never true: {condition}"
        time.sleep(0.1)


def walk(page: Page) -> list[dict[str, Any]]:
    """Click through everything: one entry a result, with its category, labels, kind and state."""
    ready = "document.readyState === 'complete' && location.protocol === 'file:'"
    wait_for(page, f"{ready} && !!document.querySelector('#app nav li a')")
    seen = page.run(WALK)
    assert len(seen["found"]) == seen["declared"], "a result stands in no category"
    return list(seen["found"])


SNAKEFILE = """
FIGURES = {"training curves": "svg", "forest": "png", "broken": "svg"}


rule all:
    input:
        expand("cpu/{name}.done", name=["m1", "m3"]),


rule milestone:
    output:
        *[
            report(
                f"{{scale}}/{{milestone}}/{name.replace(' ', '_')}.{suffix}",
                caption="workflow/report/table.rst",
                category=lambda wildcards: f"{wildcards.milestone} record",
                subcategory="figures",
                labels={"experiment": "A", "figure": name},
            )
            for name, suffix in FIGURES.items()
        ],
        table=report(
            "{scale}/{milestone}/numbers.csv",
            caption="workflow/report/table.rst",
            category=lambda wildcards: f"{wildcards.milestone} record",
            subcategory="tables",
            labels={"experiment": "A", "table": "numbers"},
        ),
        done="{scale}/{milestone}.done",
    shell:
        "cp sources/* {wildcards.scale}/{wildcards.milestone}/ && touch {output.done}"
"""
SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="20"><rect width="9" height="9"/>'
PNG = (  # one pixel
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg"
    "gg=="
)


def snakemake(project: Path, *arguments: str) -> None:
    function = f'() {{ {sys.executable} {FAKE} "$@"; }}'  # found before any program of this name
    done = subprocess.run(
        [sys.executable, "-m", "snakemake", *arguments],
        cwd=project,
        env=os.environ | {"BASH_FUNC_refblend%%": function},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def small_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report with our captions, two milestones, and in each one figure that is no image."""
    project = tmp_path_factory.mktemp("report")
    shutil.copytree(ROOT / "workflow" / "report", project / "workflow" / "report")
    (project / "Snakefile").write_text(SNAKEFILE)
    sources = project / "sources"
    sources.mkdir()
    (sources / "training_curves.svg").write_text(f"{SVG}</svg>")
    (sources / "broken.svg").write_text(SVG)
    (sources / "forest.png").write_bytes(base64.b64decode(PNG))
    (sources / "numbers.csv").write_text("arm,mean\noff,0.5\nlinear,0.6\n")
    snakemake(project, "--cores", "1", "--quiet")
    snakemake(project, "--report", "report.html", "--quiet")
    return project / "report.html"


def test_every_result_is_found_and_a_broken_figure_is_seen(small_report: Path) -> None:
    with opened(small_report) as page:
        found = walk(page)
        assert page.errors == []
        # The same page with errors: the check would have seen them.
        page.run("console.error('on the console')")
        page.run("setTimeout(() => { throw new Error('uncaught') }, 0)")
        page.run("new Promise(done => setTimeout(done, 200))")
        noted = " ".join(page.errors)
        assert "on the console" in noted
        assert "uncaught" in noted
    states = {
        (entry["category"], entry["part"], *entry["labels"]): (entry["kind"], entry["whole"])
        for entry in found
    }
    expected = {}
    for milestone in ("m1 record", "m3 record"):
        for name in ("training curves", "forest", "broken"):
            expected[(milestone, "figures", "A", name)] = ("figure", name != "broken")
        expected[(milestone, "tables", "A", "numbers")] = ("file", True)
    assert states == expected


@pytest.mark.slow
def test_the_study_has_one_whole_report(tmp_path: Path) -> None:
    """M1 at scale smoke, trained by a stand-in: every figure and table is shown."""
    from refblend.study.report.registry import load_report

    for name in ("params", "workflow", "src"):
        ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignore)
    shutil.copy(ROOT / "Snakefile", tmp_path)
    snakemake(tmp_path, "m1", "--cores", "2", "--config", "scale=smoke", "--quiet")
    target = ["--config", "scale=smoke", "--report", "report.html", "--quiet"]
    snakemake(tmp_path, "m1", *target)
    with opened(tmp_path / "report.html") as page:
        found = walk(page)
        assert page.errors == []
    broken = [entry for entry in found if not entry["whole"]]
    assert broken == []
    shown = {
        label.replace(" ", "_")
        for entry in found
        if entry["category"].startswith("M1")
        for label in entry["labels"]
    }
    report = load_report("m1")
    assert shown >= set(report.names("figure", {})) | set(report.names("table", {}))


def main(html: Path) -> None:
    """Check the report of a finished study and print what was found."""
    with opened(html) as page:
        found = walk(page)
        errors = page.errors
    for entry in found:
        state = "whole" if entry["whole"] else "BROKEN"
        print(entry["category"], entry["part"], *entry["labels"], entry["kind"], state, sep=" | ")
    broken = sum(not entry["whole"] for entry in found)
    print(f"{len(found)} results, {broken} broken, {len(errors)} errors on the console", *errors)
    sys.exit(1 if broken or errors else 0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
