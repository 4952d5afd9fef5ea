"""``refblend advise``: would a judge's score help here? Asked before training."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from refblend import runtime
from refblend.cli.options import with_options
from refblend.errors import ConfigError
from refblend.files import write_json
from refblend.tables import check_results, write_table

if TYPE_CHECKING:
    import pandas as pd

    from refblend.advice.rollouts import Columns


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Where rollouts come from if the command samples them itself."""

    model: Annotated[str | None, Option(help="Instead of ROLLOUTS: sample this model's.")] = None
    judge: Annotated[str | None, Option(help="With --model: directory of the judge.")] = None
    data: Annotated[Path | None, Option(help="With --model: prompt file.")] = None
    config: Annotated[list[Path] | None, Option(help="With --model: YAML files.")] = None
    set_: Annotated[
        list[str] | None, Option("--set", help="With --model: another key.", metavar="KEY=VALUE")
    ] = None
    prompts: Annotated[
        int | None, Option(min=10, help="With --model: prompts to sample, 64 unless given.")
    ] = None
    save: Annotated[Path | None, Option(help="With --model: table of them to write.")] = None

    def rollouts(self) -> "tuple[pd.DataFrame, bool]":
        """Sample them with the configuration that training would have; keep them if asked to.

        Also whether that configuration divides by a group's standard deviation, as GRPO does.
        """
        runtime.configure_process()
        from refblend.config import load_config

        given = {
            "actor_rollout_ref.model.path": self.model,
            "algorithm.ref_quality_score.scoring.model_path": self.judge,
            "data.train_files": self.data and [str(self.data)],
            "data.val_files": self.data and [str(self.data)],
        }
        named = [f"{key}={value!r}" for key, value in given.items() if value is not None]
        settings = load_config(self.config or [], [*named, *(self.set_ or [])])
        with runtime.importing():
            from refblend.advice.sampling import sample_rollouts
        frame = sample_rollouts(settings, self.prompts or 64)
        if self.save is not None:
            write_table(self.save, frame)
        algorithm = settings.algorithm
        return frame, algorithm.adv_estimator == "grpo" and algorithm.norm_adv_by_std_in_grpo


@with_options
def advise(
    sampling: Sampling,
    rollouts: Annotated[
        Path | None, Argument(help="A run, a folder, or a jsonl, csv or parquet file.")
    ] = None,
    column: Annotated[
        list[str] | None,
        Option(help="Name of a column, e.g. truth=human_label.", metavar="NAME=COLUMN"),
    ] = None,
    steps: Annotated[
        str | None,
        Option(help="Steps; default: the first of a run, else all.", metavar="FIRST-LAST"),
    ] = None,
    norm_by_std: Annotated[
        bool,
        Option(help="Whether advantages are divided by a group's deviation; not by Dr.GRPO, RLOO."),
    ] = True,
    figure: Annotated[Path | None, Option(help="Figure to write, .svg or .png.")] = None,
    report: Annotated[Path | None, Option(help="JSON file to write.")] = None,
) -> None:
    """Say from rollouts whether, where and how much to blend a judge's score into the reward."""
    if (rollouts is None) == (sampling.model is None):
        raise ConfigError("advise needs either rollouts or --model", "Give one of the two.")
    unused = vars(sampling) if rollouts else {"column": column, "steps": steps}
    if given := ", ".join(f"--{name.strip('_')}" for name, value in unused.items() if value):
        source = "rollouts" if rollouts else "--model"
        raise ConfigError(f"{given}: without effect beside {source}", "Leave that out.")
    check_results([rollouts, sampling.data], [figure, report], sampling.save)
    if figure is not None and figure.suffix not in (".svg", ".png", ".pdf"):
        raise ConfigError(f"--figure {figure} has no known ending", "Use .svg, .png or .pdf.")
    if rollouts is None:
        own = True
        frame, by_std = sampling.rollouts()
        norm_by_std = norm_by_std and by_std
    else:
        from refblend.advice.rollouts import read_rollouts

        found = read_rollouts(rollouts, _columns(column or []), _steps(steps))
        frame, own = found.frame, found.own
        if found.steps:
            typer.echo(f"{'steps':<30}{found.steps}")
    from refblend.advice.answer import advice_on

    advice = advice_on(frame, norm_by_std, mixed_groups=own)
    typer.echo(str(advice))
    if figure is not None:
        from refblend.advice.figure import draw

        draw(advice, figure)
    if report is not None:
        write_json(report, advice.to_dict())


def _steps(given: str | None) -> tuple[int, int] | None:
    if given is None:
        return None
    first, separator, last = given.partition("-")
    last = last if separator else first
    if not (first.isdecimal() and last.isdecimal()):
        raise ConfigError(f"--steps {given} names no steps", "Write 5, or 5-20.")
    return int(first), int(last)


def _columns(given: list[str]) -> "Columns":
    from refblend.advice.rollouts import PLAIN, Columns

    names = dict(text.partition("=")[::2] for text in given)
    if wrong := [name for name, column in names.items() if not column or name not in vars(PLAIN)]:
        raise ConfigError(
            f"--column {', '.join(wrong)} names no column of rollouts",
            f"Write NAME=COLUMN with a NAME of {', '.join(vars(PLAIN))}.",
        )
    return Columns(**names)
