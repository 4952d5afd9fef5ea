"""``refblend score`` and ``refblend judge …``: argument parsing and calls, nothing else."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from refblend.cli.judge_options import CorpusSetup, JudgeSetup
from refblend.cli.options import Panels, example, with_options
from refblend.documents import show
from refblend.errors import DataError
from refblend.files import write_json
from refblend.progress import step_progress
from refblend.tables import check_distinct, check_table, check_writable, write_table

if TYPE_CHECKING:
    import pandas as pd

    from refblend.scoring.generative import GenerativeJudge

judge_app = typer.Typer(
    cls=Panels, help="Measure a judge: robustness, quality, attacks.", no_args_is_help=True
)
_JUDGE = "--judge models/smoke/judge_medium"
_DATA = f"{_JUDGE} --data data/smoke/test.parquet"

NO_VALID_SCORE = 3
"""Exit status of ``refblend score`` when the judge gave no valid score at all."""


@dataclass(frozen=True, kw_only=True)
class Results:
    """The files that a measuring command writes."""

    report: Annotated[Path, typer.Option(help="JSON report to write.")]
    samples: Annotated[
        Path | None,
        typer.Option(
            help="File for every scored response (.parquet, .jsonl, .csv); default: none."
        ),
    ] = None
    provenance: Annotated[
        Path | None,
        typer.Option(help="File for commit, machine and times; default: REPORT.provenance.json."),
    ] = None

    def load(self, corpus: CorpusSetup, kinds: tuple[str, ...] | None = None) -> "pd.DataFrame":
        """The corpus, after it is sure that the files can be written."""
        from refblend.scoring.measure.record import circumstances_file

        beside = self.provenance or circumstances_file(self.report)
        samples = [] if self.samples is None else [self.samples]
        check_distinct([corpus.data, corpus.corpus], [self.report, beside, *samples])
        check_writable(self.report)
        check_writable(beside)
        if self.samples is not None:
            check_table(self.samples)
        return corpus.load(kinds)

    def write(
        self,
        setup: JudgeSetup,
        corpus: CorpusSetup,
        responses: "pd.DataFrame",
        content: dict[str, Any],
        scored: "pd.DataFrame",
        times: dict[str, float] | None = None,
    ) -> None:
        """Report, circumstances (what differs between two equal measurements) and samples."""
        from refblend.provenance import circumstances
        from refblend.scoring.measure.record import circumstances_file, measurement

        assert setup.judge is not None, "generative judges have a directory"
        content = {"engine": setup.kind} | content
        if self.samples is not None:
            write_table(self.samples, scored)
            typer.echo(f"{self.samples}: {len(scored)} rows")
        write_json(self.report, measurement(setup.judge, corpus.source, responses, content))
        typer.echo(f"{self.report}: {len(responses)} responses")
        origin = circumstances() | {"seconds_per_response": times or {}}
        write_json(self.provenance or circumstances_file(self.report), origin)


@with_options
def score(
    setup: JudgeSetup,
    input_: Annotated[Path, typer.Option("--input", help="jsonl or parquet of responses.")],
    output: Annotated[Path, typer.Option(help="File to write: .parquet, .jsonl or .csv.")],
) -> None:
    """Score the responses of a file with a judge, on the path and with the defaults of training.

    Ends with status 3 when no response has a valid score.
    """
    from refblend.interface import score_responses

    _tell(output, score_responses(input_, output, setup.open))


def _tell(output: Path, scored: "pd.DataFrame") -> None:
    """The outcome in one line; invalid scores are told on standard error, with an example."""
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
    epilog=example(f"refblend judge quality {_JUDGE} --corpus labelled.jsonl --report q.json")
)
@with_options
def quality(setup: JudgeSetup, corpus: CorpusSetup, results: Results) -> None:
    """Calibration and discrimination on held-out responses, few-shot and compact."""
    from refblend.scoring.measure.quality import FORMS, measure_quality

    frame = results.load(corpus)
    total = len(FORMS) * len(frame)
    told = step_progress("judge quality", total)
    with setup.open_generative() as judge:
        forms, scored = measure_quality(judge, frame, progress=told)
        content = {"max_new_tokens": judge.config.scoring.max_new_tokens, "forms": forms}
    results.write(setup, corpus, frame, content, scored)
    for name, form in forms.items():
        auc = "unknown" if form["auc"] is None else f"{form['auc']:.3f}"
        typer.echo(f"{setup.judge} {name}: AUC {auc}, valid {form['valid_rate']:.1%}")


@judge_app.command(epilog=example(f"refblend judge robustness {_DATA} --report r.json"))
@with_options
def robustness(setup: JudgeSetup, corpus: CorpusSetup, results: Results) -> None:
    """Experiment D: few-shot or compact, 32 to 96 new tokens, clipping on or off."""
    from refblend.scoring.measure.robustness import ARMS, by_length, run_robustness

    frame = results.load(corpus)
    told = step_progress("experiment D", len(ARMS) * len(frame))
    with setup.open_generative() as judge:
        table, scored = run_robustness(judge, frame, progress=told)
        content = _asked(judge)
    times = table.set_index("arm").pop("seconds_per_response")
    content |= {"arms": table.drop(columns=times.name), "by_length": by_length(scored)}
    results.write(setup, corpus, frame, content, scored, times.to_dict())


@judge_app.command(epilog=example(f"refblend judge attacks {_DATA} --report a.json"))
@with_options
def attacks(setup: JudgeSetup, corpus: CorpusSetup, results: Results) -> None:
    """How much each attack raises the mean score of wrong answers."""
    frame = results.load(corpus, ("wrong",))
    from refblend.scoring.measure.attacks import ATTACKS, measure_attacks

    frame = frame[frame["label"] == 0]
    if frame.empty:
        raise DataError(
            f"{corpus.source} has no wrong answer to try the attacks on",
            "Give a corpus with wrong answers.",
        )
    total = (len(ATTACKS) + 1) * len(frame)
    questions, responses = frame["question"].tolist(), frame["response"].tolist()
    told = step_progress("attacks", total)
    with setup.open_generative() as judge:
        table, scored = measure_attacks(judge, questions, responses, progress=told)
        content = _asked(judge) | {"attacks": table}
    results.write(setup, corpus, frame, content, scored)
    first = table.iloc[0]
    typer.echo(f"{len(table)} attacks; the largest lift is {first.lift:+.3f} ({first.attack})")


def _asked(judge: "GenerativeJudge") -> dict[str, Any]:
    scoring = judge.config.scoring
    return {"max_new_tokens": scoring.max_new_tokens, "score_mode": scoring.score_mode}
