"""README's quickstart and the tutorials, typed in a fresh clone; about 15 minutes."""

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```bash\n(.*?)^```", re.MULTILINE | re.DOTALL)

pytestmark = [pytest.mark.slow, pytest.mark.engine]


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The last commit, without anything that lies beside it."""
    place = tmp_path_factory.mktemp("stranger") / "refblend"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(place)], check=True)
    return place


def type_commands(clone: Path, page: str) -> str:
    """Type all shell blocks of a page into one shell that ends at the first failure."""
    text = (clone / page).read_text(encoding="utf-8")
    text = text.split("## Try it")[-1].split("\n## ")[0] if page == "README.md" else text
    commands = "\n".join(FENCE.findall(text))
    ours = ("PYTHONPATH", "VIRTUAL_ENV")
    environment = {name: value for name, value in os.environ.items() if name not in ours}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        cwd=clone,
        env=environment | {"COLUMNS": "100"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_the_readme(clone: Path) -> None:
    said = type_commands(clone, "README.md")
    assert (clone / "results" / "smoke" / "m1" / "report.md").is_file()
    assert "runs/smoke/linear/seed_1: finished, step 4" in said
    assert "highest blended reward: 3 of 32 responses" in said


def test_the_first_study(clone: Path) -> None:
    said = type_commands(clone, "docs/tutorial/first-study.md")
    assert "## M1: Stability of linear blending" in said


def test_the_first_own_run(clone: Path) -> None:
    said = type_commands(clone, "docs/tutorial/first-run.md")
    assert "runs/mine: finished, step 6" in said
    assert (clone / "runs" / "mine" / "run.html").stat().st_size > 20_000
    assert re.search(r"max_weight +0\.2 +0\.6", said)


def test_the_example_with_trl(clone: Path) -> None:
    said = type_commands(clone, "docs/how-to/trl.md")
    weights = re.findall(r"'actor/ref_quality/weight': '?([\d.e-]+)", said)
    assert len(weights) == 4
    assert {float(weight) for weight in weights} == {0.45}
