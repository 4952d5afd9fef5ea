"""``refblend evaluate``: trained actors on the test set."""

from pathlib import Path
from typing import Annotated, Any

import typer


def evaluate(
    runs: Annotated[list[Path], typer.Argument(help="Run directories.")],
    recipe: Annotated[Path, typer.Option(help="Recipe, e.g. params/embedded/cpu.yaml.")],
    data: Annotated[Path, typer.Option(help="Prompt file, e.g. data/cpu/test.parquet.")],
    out: Annotated[Path | None, typer.Option(help="File for all reports together.")] = None,
) -> None:
    """Measure the final actors of runs on the test set; each report is its run's test.json."""
    from refblend import runtime
    from refblend.files import write_json

    runtime.configure_process()
    from refblend.study.runs.evaluate import evaluate_run
    from refblend.study.runs.run_files import TEST_NAME

    reports = {}
    for run in runs:
        report = evaluate_run(run, recipe, data)
        write_json(run / TEST_NAME, report)
        typer.echo(f"{run / TEST_NAME}: {_summary(report)}")
        reports[run.name.removeprefix("seed_")] = report
    if out:
        write_json(out, reports)


def _summary(report: dict[str, Any]) -> str:
    """A report's main numbers on one line; the status of a run that has none."""
    if "greedy" not in report:
        return f"{report['status']}, nothing to measure"
    return (
        f"{report['greedy']:.1%} right greedily, {report['sampled']:.1%} sampled, "
        f"{report['problems']} problems"
    )
