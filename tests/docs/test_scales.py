"""The sizes of the scales that docs/how-to/scale.md states are those of the grid."""

import re
from pathlib import Path

import pytest

from refblend.config.loading import read_yaml
from refblend.study.design.grid import build_grid, unique_runs
from refblend.study.design.jobs import blocks_of
from refblend.study.design.spec import experiments_of

ROOT = Path(__file__).parents[2]
TABLE = re.compile(r"^\| `(\w+)` \|.*\| (\d+) jobs, (\d+) runs \|", re.MULTILINE)
STATED = TABLE.findall((ROOT / "docs" / "how-to" / "scale.md").read_text())


def test_every_scale_is_stated() -> None:
    scales = {path.stem for path in (ROOT / "params" / "scale").glob("*.yaml")}
    assert {scale for scale, _, _ in STATED} == scales


@pytest.mark.parametrize(("scale", "jobs", "runs"), STATED)
def test_jobs_and_runs_of_a_scale(scale: str, jobs: str, runs: str) -> None:
    params = ROOT / "params"
    milestones = {m: experiments_of(m, params, scale=scale) for m in ("m1", "m2", "m3", "r")}
    names = [name for named in milestones.values() for name in named]
    grid = build_grid(names, scale, params)
    size = read_yaml(params / "workflow.yaml")["seeds_per_job"]
    blocks = blocks_of(grid, milestones, size, size)
    trained = {(arm, block) for (arm, _), block in blocks.items()}
    assert (len(trained), len(unique_runs(grid))) == (int(jobs), int(runs))
