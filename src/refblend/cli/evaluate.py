"""``refblend evaluate``: trained actors on the test set."""

from pathlib import Path
from typing import Annotated

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

    reports = {}
    for run in runs:
        report = evaluate_run(run, recipe, data)
        write_json(run / "test.json", report)
        typer.echo(f"{run / 'test.json'}: {report}")
        reports[run.name.removeprefix("seed_")] = report
    if out:
        write_json(out, reports)
