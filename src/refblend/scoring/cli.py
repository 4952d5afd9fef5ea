"""``refblend score`` and ``refblend judge …``: argument parsing and calls, nothing else."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refblend import runtime
from refblend.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

    from refblend.scoring.judge import Judge

judge_app = typer.Typer(help="Measure a judge: robustness, quality, attacks.", no_args_is_help=True)


class Mode(StrEnum):
    """How a score is read."""

    text = "text"
    expected = "expected"


class Engine(StrEnum):
    """What generates."""

    vllm = "vllm"
    hf = "hf"


JudgeDir = Annotated[Path, typer.Option("--judge", help="Directory of the judge.")]
Templates = Annotated[
    Path | None,
    typer.Option(help="Prompt texts; default: scoring_templates.yaml of the judge, else ours."),
]
FewShot = Annotated[bool, typer.Option(help="Show examples; off: the compact form only.")]
NewTokens = Annotated[int, typer.Option(help="Tokens that the judge may write.")]
HardClip = Annotated[bool, typer.Option(help="Cut long prompts; off: count them as overlength.")]
ScoreModeOption = Annotated[Mode, typer.Option(help="As written, or expected value of digits.")]
MaxModelLen = Annotated[int | None, typer.Option(help="Longest sequence; default: the model's.")]
EngineOption = Annotated[Engine, typer.Option(help="Generation engine.")]
BatchSize = Annotated[int, typer.Option(min=1, help="Samples an engine call.")]
Threads = Annotated[int, typer.Option(min=1, help="CPU threads.")]
Data = Annotated[Path, typer.Option(help="Prompt file with worked solutions (parquet).")]
Corpus = Annotated[
    Path | None, typer.Option(help="Labelled responses instead of the fixed corpus (jsonl).")
]
Rows = Annotated[int, typer.Option(min=1, help="Problems of the data file to use, at most.")]
OutDir = Annotated[Path, typer.Option("--out", help="Directory of the tables.")]
Seed = Annotated[int, typer.Option(help="Seed of the corpus.")]


@dataclass(frozen=True)
class _Setup:
    judge: Path
    templates: Path | None
    few_shot: bool = True
    max_new_tokens: int = 64
    hard_clip: bool = True
    score_mode: Mode = Mode.text
    max_model_len: int | None = None
    engine: Engine = Engine.vllm
    threads: int = 2
    invalid_score: float = 0.5


@contextmanager
def _open_judge(setup: _Setup) -> Iterator["Judge"]:
    """The judge on a started engine, which is shut down at the end."""
    runtime.configure_process(setup.threads)
    from refblend.data.tokenizer import load_tokenizer
    from refblend.rollout.base import EngineOptions, check_model_dir, start_engine
    from refblend.scoring.clipping import ScoringLimits
    from refblend.scoring.judge import Judge, JudgeOptions
    from refblend.scoring.templates import find_templates, load_templates

    check_model_dir(str(setup.judge), "--judge")
    templates = load_templates(setup.templates or find_templates(setup.judge))
    tokenizer = load_tokenizer(setup.judge)
    engine = start_engine(
        setup.engine.value,
        EngineOptions(model_path=str(setup.judge), max_model_len=setup.max_model_len),
    )
    try:
        limits = ScoringLimits(
            model_cap=engine.max_model_len,
            tokenizer_cap=tokenizer.model_max_length,
            max_new_tokens=setup.max_new_tokens,
        )
        options = JudgeOptions(
            limits,
            few_shot=setup.few_shot,
            hard_clip=setup.hard_clip,
            score_mode=setup.score_mode.value,
            invalid_score=setup.invalid_score,
        )
        yield Judge(engine, tokenizer, templates, options)
    finally:
        engine.shutdown()


def score(
    judge: JudgeDir,
    input_: Annotated[Path, typer.Option("--input", help="jsonl or parquet of responses.")],
    output: Annotated[Path, typer.Option(help="Parquet file to write.")],
    templates: Templates = None,
    few_shot: FewShot = True,
    max_new_tokens: NewTokens = 64,
    hard_clip: HardClip = True,
    score_mode: ScoreModeOption = Mode.text,
    invalid_score: Annotated[float, typer.Option(min=0.0, max=1.0)] = 0.5,
    max_model_len: MaxModelLen = None,
    engine: EngineOption = Engine.vllm,
    batch_size: BatchSize = 256,
    threads: Threads = 2,
) -> None:
    """Score the responses of a file with a judge, on the path that training uses."""
    from refblend.files import atomic_path
    from refblend.models.progress import step_progress
    from refblend.scoring.calibration import RESULT_COLUMNS, score_corpus
    from refblend.scoring.corpus import read_responses

    frame = read_responses(input_)
    taken = [column for column in RESULT_COLUMNS if column in frame.columns]
    if taken:
        raise DataError(
            f"{input_}: the column {taken[0]!r} is one that scoring writes", "Rename it."
        )
    setup = _Setup(
        judge,
        templates,
        few_shot,
        max_new_tokens,
        hard_clip,
        score_mode,
        max_model_len,
        engine,
        threads,
        invalid_score,
    )
    with _open_judge(setup) as opened, step_progress("score", 0, len(frame)) as show:
        scored = score_corpus(opened, frame, batch_size, progress=lambda n: show(n, ""))
    with atomic_path(output) as temporary:
        scored.to_parquet(temporary, index=False)
    paths = ", ".join(f"{path} {count}" for path, count in scored["path"].value_counts().items())
    typer.echo(
        f"{output}: {len(scored)} responses, mean score {scored['score'].mean():.3f}, "
        f"valid {scored['valid'].mean():.1%} ({paths})"
    )


@judge_app.command()
def robustness(
    judge: JudgeDir,
    data: Data,
    out: OutDir,
    corpus: Corpus = None,
    rows: Rows = 60,
    seed: Seed = 0,
    templates: Templates = None,
    score_mode: ScoreModeOption = Mode.text,
    max_model_len: MaxModelLen = None,
    engine: EngineOption = Engine.vllm,
    batch_size: BatchSize = 256,
    threads: Threads = 2,
) -> None:
    """Experiment D: few-shot or compact, 32 to 96 new tokens, clipping on or off."""
    from refblend.models.progress import step_progress
    from refblend.scoring.robustness import robustness_arms, run_robustness

    frame = _corpus(data, corpus, rows, seed)
    setup = _Setup(
        judge,
        templates,
        score_mode=score_mode,
        max_model_len=max_model_len,
        engine=engine,
        threads=threads,
    )
    with _open_judge(setup) as opened:
        arms = robustness_arms(opened.options)
        names = {(arm.experiment, arm.name): i for i, arm in enumerate(arms)}
        with step_progress("experiment D", 0, len(arms) * len(frame)) as show:
            table, samples = run_robustness(
                opened.engine,
                opened.tokenizer,
                opened.templates,
                frame,
                opened.options,
                arms,
                batch_size,
                lambda arm, n: show(names[arm.experiment, arm.name] * len(frame) + n, arm.name),
            )
    _write_tables(out, {"robustness": table})
    _write_parquet(out / "samples.parquet", samples)


@judge_app.command()
def quality(
    judge: JudgeDir,
    data: Data,
    out: OutDir,
    corpus: Corpus = None,
    rows: Rows = 200,
    seed: Seed = 0,
    templates: Templates = None,
    few_shot: FewShot = True,
    max_new_tokens: NewTokens = 64,
    score_mode: ScoreModeOption = Mode.expected,
    max_model_len: MaxModelLen = None,
    engine: EngineOption = Engine.vllm,
    batch_size: BatchSize = 256,
    threads: Threads = 2,
) -> None:
    """Calibration and discrimination on held-out responses, by length and difficulty."""
    from refblend.models.progress import step_progress
    from refblend.scoring.calibration import calibration_report, score_corpus

    frame = _corpus(data, corpus, rows, seed)
    setup = _Setup(
        judge,
        templates,
        few_shot,
        max_new_tokens,
        True,
        score_mode,
        max_model_len,
        engine,
        threads,
    )
    with _open_judge(setup) as opened, step_progress("judge quality", 0, len(frame)) as show:
        scored = score_corpus(opened, frame, batch_size, progress=lambda n: show(n, ""))
    _write_tables(out, calibration_report(scored).tables())
    _write_parquet(out / "samples.parquet", scored)


@judge_app.command()
def attacks(
    judge: JudgeDir,
    data: Data,
    out: OutDir,
    rows: Rows = 60,
    seed: Seed = 0,
    templates: Templates = None,
    score_mode: ScoreModeOption = Mode.text,
    max_model_len: MaxModelLen = None,
    engine: EngineOption = Engine.vllm,
    threads: Threads = 2,
) -> None:
    """How much each attack raises the mean score of wrong answers."""
    from refblend.models.progress import step_progress
    from refblend.scoring.attacks import ATTACKS, measure_attacks

    frame = _corpus(data, None, rows, seed, ("wrong",))
    setup = _Setup(
        judge,
        templates,
        score_mode=score_mode,
        max_model_len=max_model_len,
        engine=engine,
        threads=threads,
    )
    done = iter(range(len(ATTACKS) + 1))
    with _open_judge(setup) as opened, step_progress("attacks", 0, len(ATTACKS)) as show:
        table = measure_attacks(
            opened,
            frame["question"].tolist(),
            frame["response"].tolist(),
            progress=lambda name: show(next(done), name),
        )
    _write_tables(out, {"attacks": table})


def _corpus(
    data: Path, corpus: Path | None, rows: int, seed: int, kinds: tuple[str, ...] | None = None
) -> "pd.DataFrame":
    from refblend.data.schema import read_rows
    from refblend.scoring.calibration import check_corpus
    from refblend.scoring.corpus import KINDS, corpus_from_rows, read_responses

    if corpus is not None:
        frame = read_responses(corpus)
        check_corpus(frame)
        return frame
    return corpus_from_rows(read_rows(data), seed, kinds or KINDS, rows)


def _write_tables(out: Path, tables: dict[str, Any]) -> None:
    from refblend.files import write_text

    for name, table in tables.items():
        write_text(out / f"{name}.csv", table.to_csv(index=False))
        typer.echo(f"{out / name}.csv: {len(table)} rows")


def _write_parquet(path: Path, frame: Any) -> None:
    from refblend.files import atomic_path

    with atomic_path(path) as temporary:
        frame.to_parquet(temporary, index=False)
    typer.echo(f"{path}: {len(frame)} rows")
