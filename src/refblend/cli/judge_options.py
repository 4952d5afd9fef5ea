"""Options that the judge commands share, and what they describe: a judge, a corpus."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refblend import runtime
from refblend.errors import ConfigError, DataError

if TYPE_CHECKING:
    import pandas as pd

    from refblend.config.algorithm import RefQualityScoreConfig
    from refblend.scoring.generative import GenerativeJudge
    from refblend.scoring.judge import Judge


@dataclass(frozen=True, kw_only=True)
class JudgeSetup:
    """The judge; what is not given is as training has it."""

    judge: Annotated[
        Path | None, typer.Option(help="Directory of the judge; not needed by --kind http.")
    ] = None
    kind: Annotated[
        str, typer.Option(help="vllm, hf, http, reward_model, or module:Class of your own.")
    ] = "vllm"
    templates: Annotated[
        str | None,
        typer.Option(
            help="Prompt texts: default, embedded or a file; "
            "default: scoring_templates.yaml of the judge, else ours."
        ),
    ] = None
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Another key of algorithm.ref_quality_score.scoring, e.g. max_new_tokens=32, or "
            "http.base_url=http://localhost:8000/v1; may be given several times.",
            metavar="KEY=VALUE",
        ),
    ] = None
    threads: Annotated[int, typer.Option(min=1, help="CPU threads.")] = 2

    def open(self) -> "Judge":
        """The judge, ready to score as in training."""
        runtime.configure_process(self.threads)
        from refblend.scoring.judge import check_judge, start_judge

        config = self.config()
        check_judge(config)
        return start_judge(config)

    def open_generative(self) -> "GenerativeJudge":
        """As :meth:`open`; ConfigError for a kind whose prompts are not ours."""
        from refblend.scoring.generative import GenerativeJudge
        from refblend.scoring.judge import judge_class

        if not issubclass(judge_class(self.kind), GenerativeJudge):
            raise ConfigError(
                f"--kind {self.kind}: this command measures the prompts of a language model "
                "that we hold",
                "Use --kind vllm or hf; `refblend score` takes every kind.",
            )
        judge = self.open()
        assert isinstance(judge, GenerativeJudge), "by its class"
        return judge

    def config(self) -> "RefQualityScoreConfig":
        """The configuration section that these options spell."""
        from refblend.config.loading import merge, nest, parse_override
        from refblend.config.scoring import JUDGES
        from refblend.rollout.model_dir import check_model_dir
        from refblend.scoring.judge import judge_config

        if self.judge is not None and self.kind != "http":
            check_model_dir(str(self.judge), "--judge")
        elif self.kind in JUDGES.keys() - {"http"}:
            raise ConfigError("--judge is missing", "Give the directory of the judge.")
        tree: dict[str, Any] = {"gpu_memory_utilization": _GPU_SHARE}
        for text in self.set_ or []:
            tree = merge(tree, nest(*parse_override(text)))
        return judge_config(self.judge, self.kind, self.templates, tree)


_GPU_SHARE = 0.65
"""Of the GPU's memory: a command that only judges shares the device with no training."""


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

    @property
    def source(self) -> Path:
        """The one file given; DataError if none is, or both are."""
        given = [file for file in (self.data, self.corpus) if file is not None]
        if len(given) == 1:
            return given[0]
        raise DataError(
            "give either --data or --corpus",
            "Name a prompt file (--data) or a file of labelled responses (--corpus).",
        )

    def load(self, kinds: tuple[str, ...] | None = None) -> "pd.DataFrame":
        """The corpus; ``kinds`` is what the fixed one is to hold, all when None."""
        from refblend.data.schema import read_rows
        from refblend.scoring.measure.corpus import KINDS, corpus_from_rows, read_corpus, spread

        source = self.source
        if source == self.data:
            return corpus_from_rows(read_rows(source), kinds=kinds or KINDS, max_rows=self.rows)
        frame = read_corpus(source)
        return frame.iloc[spread(len(frame), self.rows)].reset_index(drop=True)
