"""``refblend study power``: how many seeds a planned comparison needs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from refblend.cli.options import with_options


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is to be found, and how surely."""

    effect: Annotated[float, typer.Option(min=0, help="Smallest difference of interest.")] = 0.03
    margin: Annotated[float, typer.Option(min=0, help="Within ± this arms are equivalent.")] = 0.02
    target: Annotated[float, typer.Option(min=0.01, max=0.99, help="Power wanted.")] = 0.8
    alpha: Annotated[float, typer.Option(min=0.0001, max=0.5, help="Level of each test.")] = 0.05
    test_problems: Annotated[
        list[int] | None,
        typer.Option(min=1, help="Size of the test set; repeat it to plan for others."),
    ] = None
    hours: Annotated[float | None, typer.Option(min=0, help="Hours per run.")] = None


@with_options
def power(
    runs: Annotated[Path, typer.Argument(help="Table of earlier runs, e.g. per_seed.csv.")],
    question: Question,
    measure: Annotated[str, typer.Option(help="Column with an accuracy.")] = "test_greedy",
    baseline: Annotated[str, typer.Option(help="Arm that the others are paired with.")] = "off",
) -> None:
    """Seeds per arm for a difference and for equivalence, from the variance of earlier runs."""
    import pandas as pd

    from refblend.errors import StudyError
    from refblend.study.planning.power import PowerQuestion, power_table, read_spread

    if not runs.is_file():
        raise StudyError(f"{runs} is not a file", "Name the table of runs of a finished study.")
    sizes = tuple(question.test_problems or ())
    asked = PowerQuestion(
        question.effect, question.margin, question.target, question.alpha, sizes, question.hours
    )
    table = power_table(read_spread(pd.read_csv(runs), measure, baseline), asked)
    typer.echo(table.to_string(index=False, float_format=lambda value: f"{value:.4g}"))
