import json
from pathlib import Path

import pandas as pd
import pytest
from made_runs import grid_of, write_lines, write_run

from refblend.study.runs.collect import collect
from refblend.study.runs.measures import accuracy_by_step, stability


def test_validation_sources_are_averaged_without_the_sanity_set() -> None:
    names = {
        "val-core/openai/gsm8k/acc/mean@1": 0.2,
        "val-core/my/sanity_checks/acc/mean@1": 0.6,
        "val-core/refblend/sanity/acc/mean@1": 0.9,
    }
    row = {"arm": "off", "seed": 1, "step": 0} | names
    assert accuracy_by_step(pd.DataFrame([row])).value.tolist() == [pytest.approx(0.4)]


def edited(run: Path, changes: dict[int, dict[str, float | None]]) -> None:
    """Overwrite metrics of some steps of a run; None is a value that was not finite."""
    path = run / "metrics.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    write_lines(path, [line | changes.get(line["step"], {}) for line in lines])


def measured(root: Path) -> pd.Series:
    return pd.Series(stability(collect(grid_of(("linear", 1)), "cpu", root).metrics))


def test_a_step_without_a_finite_value_is_a_spike(tmp_path) -> None:
    run = write_run(tmp_path / "cpu" / "linear" / "seed_1", 1, steps=20)
    before = measured(tmp_path)
    edited(run, {7: {"actor/pg_loss": None}, 20: {"actor/pg_loss": None, "actor/grad_norm": None}})
    after = measured(tmp_path)
    assert after.loss_spikes == before.loss_spikes + 2
    assert after.grad_spikes == before.grad_spikes + 1


@pytest.mark.parametrize(("gap", "collapse"), [({}, 1), ({14: None}, 1), ({14: None, 18: None}, 0)])
def test_a_step_without_an_entropy_breaks_the_collapse(tmp_path, gap, collapse) -> None:
    run = write_run(tmp_path / "cpu" / "linear" / "seed_1", 1, steps=20)
    entropies = dict.fromkeys(range(12, 21), 0.01) | gap
    name = "actor/ref_quality/avg_entropy"
    edited(run, {step: {name: value} for step, value in entropies.items()})
    row = measured(tmp_path)
    assert row.entropy_collapse == collapse
    assert row.entropy_end == 0.01


def test_a_metric_that_begins_late_or_never_is_not_missing(tmp_path) -> None:
    run = write_run(tmp_path / "cpu" / "linear" / "seed_1", 1, steps=20)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        line.pop("actor/grad_norm", None)
        if line["step"] < 6:  # the critic alone is trained at first
            line.pop("actor/pg_loss", None)
    write_lines(run / "metrics.jsonl", lines)
    row = measured(tmp_path)
    assert (row.loss_spikes, row.grad_spikes) == (0, 0)
