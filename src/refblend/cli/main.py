"""``refblend``: the command line. Errors meant for the user are one line and exit status 2 or 4."""

import contextlib
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from typer import Argument, Option

from refblend import __version__, runtime
from refblend.cli.advise import advise
from refblend.cli.data import app as data_app
from refblend.cli.models import app as models_app
from refblend.cli.options import STUDY, USE, Panels, example
from refblend.cli.runs import app as runs_app
from refblend.cli.runs import evaluate, show
from refblend.cli.scoring import judge_app, score
from refblend.cli.study import app as study_app
from refblend.cli.study import plan
from refblend.documents import shorten
from refblend.errors import ConfigError, ProblemsError, RefblendError, TrainingError
from refblend.lifecycle import supervision
from refblend.lifecycle.faults import explain
from refblend.lifecycle.folders import writable_home
from refblend.lifecycle.guardian import guard
from refblend.lifecycle.output import outlast_readers
from refblend.secret import mask, mask_output

app = typer.Typer(
    cls=Panels,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
_RUN = "--config params/ppo.yaml --config params/scale/smoke.yaml"


def _version(asked: bool) -> None:
    if asked:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """PPO with a reference model's quality score blended into the rewards."""


_CONFIG = Option("--config", help="YAML file; may be given several times, later wins.")
ConfigFiles = Annotated[list[Path], _CONFIG]
Overrides = Annotated[
    list[str] | None, Argument(help="key=value, e.g. trainer.seed=2", metavar="[KEY=VALUE]…")
]
Seeds = Annotated[str | None, Option(help="Seeds of runs on the same workers, e.g. 1,2,3.")]


@app.command(
    rich_help_panel=USE,
    epilog=example(f"train {_RUN} trainer.seed=2 trainer.default_local_dir=runs/mine"),
)
def train(
    config: ConfigFiles,
    overrides: Overrides = None,
    seeds: Seeds = None,
    overwrite: Annotated[bool, Option("--overwrite", help="Move another run there aside.")] = False,
) -> None:
    """Train one run, or one per seed; the same call again resumes."""
    runtime.configure_process(1)
    from refblend.config import load_config

    # The configuration is checked before torch, Ray and vLLM are imported.
    settings = load_config(config, overrides or [])
    numbers = parse_seeds(seeds) if seeds is not None else None
    with runtime.importing():
        from refblend.trainer import launch

    if numbers is None:
        launch.train(settings, overwrite)
        _show(settings.trainer.default_local_dir)
        return
    failed = []
    for run, summary in launch.train_seeds(settings, numbers, overwrite):
        if summary["status"] == "finished":
            _show(run.trainer.default_local_dir)
        else:
            _tell_error(f"seed {run.trainer.seed}: {summary['reason']}")
            failed.append(run.trainer.seed)
    if failed:
        raise TrainingError(
            f"{len(failed)} of {len(numbers)} seeds failed: {failed}",
            "See above and each run's summary.json; the same call tries them again.",
        )


def parse_seeds(text: str) -> list[int]:
    """Distinct seeds of a list with commas, or ConfigError."""
    parts = text.split(",")
    seeds = [int(part) for part in parts if part.isdecimal() and len(part) < 20]
    if len(set(seeds)) != len(parts) or max(seeds) >= 2**63:
        raise ConfigError(
            f"--seeds {shorten(text)} is not a list of distinct seeds", "Write it as in 1,2,3."
        )
    return seeds


def _show(run_dir: str) -> None:
    from refblend.viewer.console import show_end
    from refblend.viewer.run import Run

    show_end(Run.open(Path(run_dir)), Console())


@app.command(
    rich_help_panel=USE, epilog=example(f"check {_RUN} trainer.default_local_dir=runs/mine")
)
def check(
    config: ConfigFiles,
    overrides: Overrides = None,
    seeds: Seeds = None,
) -> None:
    """Check configuration, data and models as `train` would, and stop before any work."""
    runtime.configure_process(1)
    from refblend.config import load_config

    settings = load_config(config, overrides or [])
    numbers = parse_seeds(seeds) if seeds is not None else None
    from refblend.trainer.launch import check_runs, configs_of
    from refblend.trainer.preflight import describe, gold_counts, judge_prompts, notices, preflight
    from refblend.workers.placement import processes_of, totals

    runs = configs_of(settings, numbers)
    settings = runs[0]
    data = preflight(settings)
    check_runs(runs, data)
    cpus, gpus = totals(processes_of(settings))
    typer.echo(f"{describe(settings, data)}, {cpus:g} CPU slots, {gpus:g} GPUs")
    for told in (notices, gold_counts, judge_prompts):
        for sentence in told(settings, data):
            typer.echo(sentence)


@app.command(rich_help_panel=USE, epilog=example(f"config {_RUN} algorithm.adv_estimator=gae"))
def config(
    config: Annotated[list[Path] | None, _CONFIG] = None,
    overrides: Overrides = None,
    schema: Annotated[
        bool, Option("--schema", help="Print the JSON schema of all keys instead.")
    ] = False,
) -> None:
    """Print the resolved configuration as JSON."""
    import json

    from refblend.config import RefblendConfig, load_config

    if schema and (config or overrides):
        raise ConfigError("--schema reads no configuration", "Give --schema alone.")
    if not schema and not config:
        raise ConfigError("--config is missing", "Name a YAML file, or give --schema.")
    tree = (
        RefblendConfig.model_json_schema()
        if schema
        else load_config(config or [], overrides or []).resolved()
    )
    typer.echo(json.dumps(tree, indent=2))


for _command, _example in (
    (show, "runs/mine --compare runs/other"),
    (score, "--judge models/smoke/judge_medium --input answers.jsonl --output scores.csv"),
    (advise, "runs/cpu/noisy_judge/seed_237 --figure advice.svg"),
    (evaluate, "runs/mine --data data/smoke/test.parquet"),
):
    app.command(rich_help_panel=USE, epilog=example(f"{_command.__name__} {_example}"))(_command)
app.add_typer(data_app, name="data", rich_help_panel=USE)
app.add_typer(judge_app, name="judge", rich_help_panel=USE)
app.add_typer(runs_app, name="runs", rich_help_panel=USE)
app.command(rich_help_panel=STUDY, epilog=example("plan M1 --scale cpu --slots 2"))(plan)
app.add_typer(study_app, name="study", rich_help_panel=STUDY)
app.add_typer(models_app, name="models", rich_help_panel=STUDY)


UsageError: type[Any] = typer.BadParameter.__bases__[0]
"""A command line that does not fit its command; typer exports only this subclass of it."""


def run() -> None:
    """Run the command line; our errors become one line on standard error."""
    with _errors_told():
        try:
            status = app(prog_name="refblend", standalone_mode=False)
        except UsageError as error:
            message = error.format_message().replace(": Value error, ", ": ")
            if error.ctx is None or "\n" in message:  # the help of a group
                error.show()
            else:
                end = "" if message.endswith(("?", ".")) else "."
                option = getattr(error, "option_name", "")
                if "." in option:
                    end += f" Write {option.lstrip('-')}=VALUE without dashes."
                _tell_error(f"{message}{end} See `{error.ctx.command_path} --help`.")
            status = error.exit_code
        sys.exit(status if isinstance(status, int) else 0)


def main() -> None:
    """Entry point: as :func:`run`, with training in a supervised child process."""
    outlast_readers()
    logging.addLevelName(logging.WARNING, "warning")  # as errors are told
    mask_output("%(levelname)s: %(message)s")
    # The current directory may hold modules that a configuration names, as under `python -m`; it
    # comes last, so that no folder there hides a package. Ray adds it to its workers by itself.
    sys.path.append("")
    with _errors_told(), writable_home():
        if sys.argv[1:2] == ["train"]:
            guard()
        supervision.follow_supervisor()
        run()


@contextlib.contextmanager
def _errors_told() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        known = error if isinstance(error, RefblendError) else explain(error)
        if known is None:
            raise
        for problem in known.problems if isinstance(known, ProblemsError) else [known]:
            _tell_error(str(problem))
        sys.exit(known.exit_status)


def _tell_error(text: str) -> None:
    """One line on standard error, however the text is broken."""
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    console.print("error: " + " ".join(mask(text).split()), markup=False)
