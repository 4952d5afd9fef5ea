"""``refblend score`` and ``refblend judge …``: a judge, what it scores, and what is written."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from refblend import runtime
from refblend.cli.options import Panels, example, with_options
from refblend.documents import show
from refblend.errors import ConfigError, DataError
from refblend.files import write_json
from refblend.progress import step_progress
from refblend.tables import check_results, check_storable, write_table

if TYPE_CHECKING:
    import pandas as pd

    from refblend.config.algorithm import RefQualityScoreConfig
    from refblend.scoring.generative import GenerativeJudge
    from refblend.scoring.judge import Judge

judge_app = typer.Typer(
    cls=Panels, help="Measure a judge: robustness, quality, attacks.", no_args_is_help=True
)
_JUDGE = "--judge models/smoke/judge_medium"
_DATA = f"{_JUDGE} --data data/smoke/test.parquet"

NO_VALID_SCORE = 3
"""Exit status of ``refblend score`` when the judge gave no valid score at all."""
GPU_SHARE = 0.65
"""Of the GPU's memory: a command that only judges shares the device with no training."""


@dataclass(frozen=True, kw_only=True)
class JudgeSetup:
    """The judge; what is not given is as in training, but for its share of a GPU's memory."""

    judge: Annotated[Path | None, Option(help="Model directory; not for --kind http.")] = None
    kind: Annotated[str, Option(help="vllm, hf, http, reward_model or your module:Class.")] = "vllm"
    templates: Annotated[
        str | None,
        Option(help="Prompt texts: default, embedded or a file; else the judge's own, or ours."),
    ] = None
    set_: Annotated[
        list[str] | None,
        Option(
            "--set",
            help="Another key of algorithm.ref_quality_score.scoring, e.g. max_new_tokens=32, or "
            "http.base_url=http://localhost:8000/v1; may be given several times.",
            metavar="KEY=VALUE",
        ),
    ] = None
    threads: Annotated[int, Option(min=1, help="CPU threads.")] = 2

    def open(self) -> "Judge":
        """The judge, ready to score as in training."""
        runtime.prepare_process(self.threads)
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
        from refblend.config.loading import overridden
        from refblend.config.scoring import JUDGES
        from refblend.rollout.model_dir import check_model_dir
        from refblend.scoring.judge import judge_config

        if self.judge is not None and self.kind != "http":
            check_model_dir(str(self.judge), "--judge")
        elif self.kind in JUDGES.keys() - {"http"}:
            raise ConfigError("--judge is missing", "Give the directory of the judge.")
        tree = overridden({"gpu_memory_utilization": GPU_SHARE}, self.set_ or [])
        return judge_config(self.judge, self.kind, self.templates, tree)


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """The labelled responses to measure on, of one of two files, and the files to write."""

    data: Annotated[Path | None, Option(help="Prompts with solutions, to make a corpus.")] = None
    corpus: Annotated[Path | None, Option(help="Labelled responses, or pairs.")] = None
    rows: Annotated[int | None, Option(min=1, help="Problems or responses, at most.")] = None
    report: Annotated[Path, Option(help="JSON report to write.")]
    samples: Annotated[Path | None, Option(help="Table of every scored response.")] = None
    provenance: Annotated[
        Path | None,
        Option(help="File for commit, machine and times; default: REPORT.provenance.json."),
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

    @property
    def beside(self) -> Path:
        """The file for what differs between two equal measurements."""
        return self.provenance or self.report.with_name(f"{self.report.stem}.provenance.json")

    def load(self, kinds: tuple[str, ...] | None = None) -> "pd.DataFrame":
        """The corpus, after it is sure that the files can be written.

        ``kinds`` is what the fixed one is to hold, all when None.
        """
        from refblend.data.schema import read_rows
        from refblend.scoring.measure.corpus import KINDS, corpus_from_rows, read_corpus, spread

        check_results([self.data, self.corpus], [self.report, self.beside], self.samples)
        source = self.source
        if source == self.data:
            return corpus_from_rows(read_rows(source), kinds=kinds or KINDS, max_rows=self.rows)
        frame = read_corpus(source)
        check_storable(self.samples, frame)
        return frame.iloc[spread(len(frame), self.rows)].reset_index(drop=True)

    def write(
        self,
        judge: "GenerativeJudge",
        responses: "pd.DataFrame",
        content: dict[str, Any],
        scored: "pd.DataFrame",
        times: dict[str, float] | None = None,
    ) -> None:
        """Report, samples, and beside the report its circumstances."""
        from refblend.provenance import circumstances
        from refblend.scoring.measure.record import measurement

        scoring = judge.config.scoring
        assert scoring.model_path is not None, "generative judges have a directory"
        content |= {"engine": scoring.kind, "max_new_tokens": scoring.max_new_tokens}
        if self.samples is not None:
            write_table(self.samples, scored)
            typer.echo(f"{self.samples}: {len(scored)} rows")
        write_json(
            self.report, measurement(Path(scoring.model_path), self.source, responses, content)
        )
        typer.echo(f"{self.report}: {len(responses)} responses")
        write_json(self.beside, circumstances() | {"seconds_per_response": times or {}})


@with_options
def score(
    setup: JudgeSetup,
    input_: Annotated[Path, Option("--input", help="jsonl or parquet of responses.")],
    output: Annotated[Path, Option(help="File to write: .parquet, .jsonl or .csv.")],
) -> None:
    """Score the responses of a file with a judge, on the path and with the defaults of training.

    Ends with status 3 when no response has a valid score.
    """
    from refblend.interface import score_responses

    scored = score_responses(input_, output, setup.open)
    paths = ", ".join(f"{path} {count}" for path, count in scored["path"].value_counts().items())
    typer.echo(
        f"{output}: {len(scored)} responses, mean score {scored['score'].mean():.3f}, "
        f"valid {scored['valid'].mean():.1%} ({paths})"
    )
    invalid = scored[~scored["valid"]]
    if invalid.empty:
        return
    first = invalid.iloc[0]
    typer.echo(
        f"warning: {len(invalid)} of {len(scored)} responses have no valid score; row "
        f"{scored.index.get_loc(invalid.index[0])} ({first['path']}): the judge wrote "
        f"{show(first['raw'], 300)}",
        err=True,
    )
    if len(invalid) == len(scored):
        raise typer.Exit(NO_VALID_SCORE)


@judge_app.command(
    epilog=example(f"judge quality {_JUDGE} --corpus labelled.jsonl --report q.json")
)
@with_options
def quality(setup: JudgeSetup, measured: Measurement) -> None:
    """Calibration and discrimination on held-out responses, few-shot and compact."""
    from refblend.scoring.measure.quality import FORMS, measure_quality

    frame = measured.load()
    told = step_progress("judge quality", len(FORMS) * len(frame))
    with setup.open_generative() as judge:
        forms, scored = measure_quality(judge, frame, progress=told)
    measured.write(judge, frame, {"forms": forms}, scored)
    for name, form in forms.items():
        auc = "unknown" if form["auc"] is None else f"{form['auc']:.3f}"
        typer.echo(f"{setup.judge} {name}: AUC {auc}, valid {form['valid_rate']:.1%}")


@judge_app.command(epilog=example(f"judge robustness {_DATA} --report r.json"))
@with_options
def robustness(setup: JudgeSetup, measured: Measurement) -> None:
    """Experiment D: few-shot or compact, 32 to 96 new tokens, clipping on or off."""
    from refblend.scoring.measure.robustness import ARMS, by_length, run_robustness

    frame = measured.load()
    told = step_progress("experiment D", len(ARMS) * len(frame))
    with setup.open_generative() as judge:
        table, scored = run_robustness(judge, frame, progress=told)
    times = table.set_index("arm").pop("seconds_per_response")
    content = {
        "score_mode": judge.config.scoring.score_mode,
        "arms": table.drop(columns=times.name),
        "by_length": by_length(scored),
    }
    measured.write(judge, frame, content, scored, times.to_dict())


@judge_app.command(epilog=example(f"judge attacks {_DATA} --report a.json"))
@with_options
def attacks(setup: JudgeSetup, measured: Measurement) -> None:
    """How much each attack raises the mean score of wrong answers."""
    frame = measured.load(("wrong",))
    from refblend.scoring.measure.attacks import ATTACKS, measure_attacks

    frame = frame[frame["label"] == 0]
    if frame.empty:
        raise DataError(
            f"{measured.source} has no wrong answer to try the attacks on",
            "Give a corpus with wrong answers.",
        )
    questions, responses = frame["question"].tolist(), frame["response"].tolist()
    told = step_progress("attacks", (len(ATTACKS) + 1) * len(frame))
    with setup.open_generative() as judge:
        table, scored = measure_attacks(judge, questions, responses, progress=told)
    content = {"score_mode": judge.config.scoring.score_mode, "attacks": table}
    measured.write(judge, frame, content, scored)
    first = table.iloc[0]
    typer.echo(f"{len(table)} attacks; the largest lift is {first.lift:+.3f} ({first.attack})")
