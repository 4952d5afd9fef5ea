"""R's report: that of M1 on other arms, scale and experiment."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd

from refblend.study.design.grid import read_grid
from refblend.study.report.registry import load_report
from refblend.study.runs.collect import collect, write_collected

ARMS = ("off", "linear", "constant_terminal", "constant_terminal_shuffled")


def test_the_report_of_the_pretrained_model(
    tmp_path: Path,
    make_run: Callable[..., Path],
    quality_paths: list[Path],
    render: Callable[..., Path],
) -> None:
    lines = [f"R\t{arm}\t{seed}\t{{}}\n" for arm in ARMS for seed in (1, 2, 3)]
    (tmp_path / "grid.tsv").write_text("experiment\tarm\tseed\toverrides\n" + "".join(lines))
    for place, arm in enumerate(ARMS):
        for seed in (1, 2, 3):
            run = tmp_path / "runs" / "smollm" / arm / f"seed_{seed}"
            make_run(run, seed, 10, 0.1 + 0.1 * place, arm != "off")
    frames = collect(read_grid(tmp_path / "grid.tsv"), "smollm", tmp_path / "runs")
    write_collected(frames, tmp_path / "runs" / "smollm" / "_collected" / "r")
    written = render(tmp_path, "r", scale="smollm")
    text = (written / "report.md").read_text()
    assert text.startswith("# R: A real pretrained model (scale `smollm`)")
    assert "12 of 12 runs finished" in text
    summary = pd.read_csv(written / "tables" / "arm_summary.csv").query("measure == 'val_gain'")
    assert summary.set_index("arm")["n"].to_dict() == dict.fromkeys(ARMS, 3)
    assert summary.set_index("arm")["diff"][ARMS[2]].round(6) == 0.2
    assert load_report("m1").name == "m1", "which keeps its own name"
