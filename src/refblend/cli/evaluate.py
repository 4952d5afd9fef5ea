"""``refblend evaluate``: trained actors on the test set."""

from pathlib import Path
from typing import Annotated, Any

import typer


def evaluate(
    runs: Annotated[list[Path], typer.Argument(help="Run directories, e.g. all seeds of an arm.")],
    data: Annotated[Path, typer.Option(help="Prompt file, e.g. data/cpu/test.parquet.")],
    out: Annotated[Path | None, typer.Option(help="File for all reports together.")] = None,
) -> None:
    """Test the final actors of runs with the engine of training; each run gets its test.json."""
    from refblend import runtime
    from refblend.files import write_json

    runtime.configure_process()
    from refblend.study.runs.evaluate import evaluate_runs
    from refblend.study.runs.run_files import TEST_NAME

    reports = {}
    for run, report in evaluate_runs(runs, data):
        write_json(run / TEST_NAME, report)
        typer.echo(f"{run / TEST_NAME}: {summary(report)}")
        reports[run.name.removeprefix("seed_")] = report
    if out:
        write_json(out, reports)


def summary(report: dict[str, Any]) -> str:
    """A report's main numbers on one line; the status of a run that has none."""
    if "greedy" not in report:
        return f"{report['status']}, nothing to measure"
    sampled = f", {report['sampled']:.1%} sampled" if "sampled" in report else ""
    return f"{report['greedy']:.1%} right greedily{sampled}, {report['problems']} problems"
