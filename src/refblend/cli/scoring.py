"""``refblend score`` and ``refblend judge …``: argument parsing and calls, nothing else."""

from pathlib import Path
from typing import Annotated, Any

import typer

from refblend.cli.judge_options import CorpusSetup, JudgeSetup, Mode, with_options
from refblend.errors import DataError

judge_app = typer.Typer(help="Measure a judge: robustness, quality, attacks.", no_args_is_help=True)

ScoreMode = Annotated[Mode, typer.Option(help="As written, or expected value of the digits.")]
Report = Annotated[Path, typer.Option(help="JSON report to write.")]
Samples = Annotated[
    Path | None, typer.Option(help="Parquet file for every scored response; default: none.")
]


@with_options
def score(
    setup: JudgeSetup,
    input_: Annotated[Path, typer.Option("--input", help="jsonl or parquet of responses.")],
    output: Annotated[Path, typer.Option(help="Parquet file to write.")],
    few_shot: Annotated[bool, typer.Option(help="Show examples; off: the compact form.")] = True,
    hard_clip: Annotated[
        bool, typer.Option(help="Cut long prompts; off: count them as overlength.")
    ] = True,
    score_mode: ScoreMode = Mode.text,
    invalid_score: Annotated[float, typer.Option(min=0.0, max=1.0)] = 0.5,
) -> None:
    """Score the responses of a file with a judge, on the path that training uses."""
    from refblend.progress import step_progress
    from refblend.scoring.measure.calibration import RESULT_COLUMNS, score_corpus
    from refblend.scoring.measure.corpus import read_responses

    frame = read_responses(input_)
    taken = [column for column in RESULT_COLUMNS if column in frame.columns]
    if taken:
        raise DataError(
            f"{input_}: the column {taken[0]!r} is one that scoring writes", "Rename it."
        )
    options = {"few_shot": few_shot, "hard_clip": hard_clip, "invalid_score": invalid_score}
    with (
        setup.open(**options, score_mode=score_mode.value) as judge,
        step_progress("score", 0, len(frame)) as show,
    ):
        scored = score_corpus(judge, frame, setup.batch_size, progress=lambda n: show(n, ""))
    _write_samples(output, scored)
    paths = ", ".join(f"{path} {count}" for path, count in scored["path"].value_counts().items())
    typer.echo(
        f"{output}: {len(scored)} responses, mean score {scored['score'].mean():.3f}, "
        f"valid {scored['valid'].mean():.1%} ({paths})"
    )


@judge_app.command()
@with_options
def quality(
    setup: JudgeSetup, corpus: CorpusSetup, report: Report, samples: Samples = None
) -> None:
    """Calibration and discrimination on held-out responses, few-shot and compact."""
    from refblend.progress import step_progress
    from refblend.scoring.measure.quality import FORMS, measure_quality

    frame = corpus.load()
    total = len(FORMS) * len(frame)
    with setup.open() as judge, step_progress("judge quality", 0, total) as show:
        forms, scored = measure_quality(judge, frame, setup.batch_size, lambda n: show(n, ""))
    _write_report(report, setup, corpus, frame, {"forms": forms})
    _write_samples(samples, scored)
    for name, form in forms.items():
        typer.echo(f"{setup.judge} {name}: AUC {form['auc']}, valid {form['valid_rate']:.1%}")


@judge_app.command()
@with_options
def robustness(
    setup: JudgeSetup,
    corpus: CorpusSetup,
    report: Report,
    samples: Samples = None,
    score_mode: ScoreMode = Mode.expected,
) -> None:
    """Experiment D: few-shot or compact, 32 to 96 new tokens, clipping on or off."""
    from refblend.progress import step_progress
    from refblend.scoring.measure.robustness import by_length, robustness_arms, run_robustness

    frame = corpus.load()
    with setup.open(score_mode=score_mode.value) as judge:
        arms = robustness_arms(judge.options)
        places = {(arm.experiment, arm.name): i * len(frame) for i, arm in enumerate(arms)}
        with step_progress("experiment D", 0, len(arms) * len(frame)) as show:
            table, scored = run_robustness(
                judge.engine,
                judge.tokenizer,
                judge.templates,
                frame,
                judge.options,
                arms,
                setup.batch_size,
                lambda arm, n: show(places[arm.experiment, arm.name] + n, arm.name),
            )
    content = {"arms": table, "by_length": by_length(scored)}
    _write_report(report, setup, corpus, frame, content | {"score_mode": score_mode.value})
    _write_samples(samples, scored)


@judge_app.command()
@with_options
def attacks(
    setup: JudgeSetup,
    corpus: CorpusSetup,
    report: Report,
    samples: Samples = None,
    score_mode: ScoreMode = Mode.expected,
) -> None:
    """How much each attack raises the mean score of wrong answers."""
    from refblend.progress import step_progress
    from refblend.scoring.measure.attacks import ATTACKS
    from refblend.scoring.measure.lift import measure_attacks

    frame = corpus.load(("wrong",))
    frame = frame[frame["label"] == 0]
    total = (len(ATTACKS) + 1) * len(frame)
    with (
        setup.open(score_mode=score_mode.value) as judge,
        step_progress("attacks", 0, total) as show,
    ):
        table, scored = measure_attacks(
            judge,
            frame["question"].tolist(),
            frame["response"].tolist(),
            batch_size=setup.batch_size,
            progress=lambda n: show(n, ""),
        )
    content = {"attacks": table, "score_mode": score_mode.value}
    _write_report(report, setup, corpus, frame, content)
    _write_samples(samples, scored)
    first = table.iloc[0]
    typer.echo(f"{len(table)} attacks; the largest lift is {first.lift:+.3f} ({first.attack})")


def _write_report(
    path: Path, setup: JudgeSetup, corpus: CorpusSetup, frame: Any, content: dict[str, Any]
) -> None:
    from refblend.files import write_json
    from refblend.scoring.measure.record import measurement

    content |= {"engine": setup.engine.value, "max_new_tokens": setup.max_new_tokens}
    write_json(path, measurement(setup.judge, corpus.source, frame, content))
    typer.echo(f"{path}: {len(frame)} responses")


def _write_samples(path: Path | None, frame: Any) -> None:
    from refblend.files import atomic_path

    if path is None:
        return
    with atomic_path(path) as temporary:
        frame.to_parquet(temporary, index=False)
    typer.echo(f"{path}: {len(frame)} rows")
