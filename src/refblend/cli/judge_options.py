"""Options that the judge commands share, and what they describe: a judge on an engine, a corpus."""

import functools
import inspect
from collections.abc import Callable, Iterator
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


class Mode(StrEnum):
    """How a score is read."""

    text = "text"
    expected = "expected"


class Engine(StrEnum):
    """What generates."""

    vllm = "vllm"
    hf = "hf"


@dataclass(frozen=True, kw_only=True)
class JudgeSetup:
    """The judge to measure and the engine that holds it."""

    judge: Annotated[Path, typer.Option(help="Directory of the judge.")]
    templates: Annotated[
        Path | None,
        typer.Option(help="Prompt texts; default: scoring_templates.yaml of the judge, else ours."),
    ] = None
    engine: Annotated[Engine, typer.Option(help="Generation engine.")] = Engine.vllm
    max_model_len: Annotated[
        int | None, typer.Option(help="Longest sequence; default: the model's.")
    ] = None
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Tokens that the judge may write.")] = (
        64
    )
    batch_size: Annotated[int, typer.Option(min=1, help="Samples per engine call.")] = 256
    threads: Annotated[int, typer.Option(min=1, help="CPU threads.")] = 2

    @contextmanager
    def open(self, **options: Any) -> Iterator["Judge"]:
        """The judge on a started engine, which is shut down at the end.

        Args:
            options: fields of :class:`refblend.scoring.judge.JudgeOptions` other than ``limits``.

        Raises:
            ModelError: the directory holds no model.
            ScoringError: the templates cannot be used.
        """
        runtime.configure_process(self.threads)
        from refblend.data.tokenizer import load_tokenizer
        from refblend.rollout.base import EngineOptions, check_model_dir, start_engine
        from refblend.scoring.clipping import ScoringLimits
        from refblend.scoring.judge import Judge, JudgeOptions
        from refblend.scoring.templates import find_templates, load_templates

        check_model_dir(str(self.judge), "--judge")
        templates = load_templates(self.templates or find_templates(self.judge))
        tokenizer = load_tokenizer(self.judge)
        engine = start_engine(
            self.engine.value,
            EngineOptions(model_path=str(self.judge), max_model_len=self.max_model_len),
        )
        try:
            limits = ScoringLimits(
                model_cap=engine.max_model_len,
                tokenizer_cap=tokenizer.model_max_length,
                max_new_tokens=self.max_new_tokens,
            )
            yield Judge(engine, tokenizer, templates, JudgeOptions(limits, **options))
        finally:
            engine.shutdown()


@dataclass(frozen=True, kw_only=True)
class CorpusSetup:
    """The labelled responses to measure on; one of the two files is given."""

    data: Annotated[
        Path | None,
        typer.Option(help="Prompt file with worked solutions, to make the fixed corpus from."),
    ] = None
    corpus: Annotated[
        Path | None,
        typer.Option(help="Labelled responses of your own (jsonl, parquet), or judge pairs."),
    ] = None
    rows: Annotated[
        int | None, typer.Option(min=1, help="Problems (--data) or responses to use, at most.")
    ] = None
    seed: Annotated[int, typer.Option(help="Seed of the fixed corpus.")] = 0

    @property
    def source(self) -> Path:
        """The one file given.

        Raises:
            DataError: none is given, or both are.
        """
        if self.data is not None and self.corpus is None:
            return self.data
        if self.corpus is not None and self.data is None:
            return self.corpus
        raise DataError(
            "give either --data or --corpus",
            "Name a prompt file (--data) or a file of labelled responses (--corpus).",
        )

    def load(self, kinds: tuple[str, ...] | None = None) -> "pd.DataFrame":
        """The corpus (see :mod:`refblend.scoring.measure.corpus`).

        Args:
            kinds: what the fixed corpus is to hold; all kinds when None.

        Raises:
            DataError: a file cannot be used.
        """
        from refblend.data.schema import read_rows
        from refblend.scoring.measure.corpus import KINDS, corpus_from_rows, read_corpus, spread

        source = self.source
        if source == self.data:
            return corpus_from_rows(read_rows(source), self.seed, kinds or KINDS, self.rows)
        frame = read_corpus(source)
        return frame.iloc[spread(len(frame), self.rows)].reset_index(drop=True)


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of each parameter that is one of the dataclasses above.

    Typer sees one option a field; the command receives the objects.
    """
    own = inspect.signature(command).parameters.values()
    groups = {p.name: p.annotation for p in own if p.annotation in (JudgeSetup, CorpusSetup)}
    fields = {name: inspect.signature(group).parameters for name, group in groups.items()}

    @functools.wraps(command)
    def run(**values: Any) -> None:
        objects = {
            name: group(**{field: values.pop(field) for field in fields[name]})
            for name, group in groups.items()
        }
        command(**objects, **values)

    shown = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for p in own
        for parameter in (fields[p.name].values() if p.name in fields else [p])
    ]
    run.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
    return run
