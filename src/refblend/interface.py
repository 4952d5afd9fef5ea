"""What a program calls for whole jobs. Imported by ``refblend`` itself.

Torch, Ray and vLLM are imported when a function is called, not before.
"""

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from refblend import runtime
from refblend.config import RefblendConfig, load_config
from refblend.config.loading import parse_config
from refblend.errors import DataError
from refblend.progress import step_progress
from refblend.scoring.judge import Judge
from refblend.tables import check_results, check_storable, write_table

if TYPE_CHECKING:
    import pandas as pd

    from refblend.advice.answer import Advice

StrPath = str | os.PathLike[str]


def train(
    config: StrPath | Sequence[StrPath] | Mapping[str, Any] | RefblendConfig,
    overrides: Sequence[str] = (),
    *,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Train one run to its end, or resume what an earlier call of the same run left.

    Example::

        summary = refblend.train("params/ppo.yaml", ["trainer.seed=2"])
        print(summary["validation"])

    Args:
        config: a YAML file, several (later ones win), the tree as a mapping, or a configuration.
        overrides: ``a.b.c=value``, applied last.
        overwrite: move another run that lies in ``trainer.default_local_dir`` aside.

    Returns:
        The content of the run's ``summary.json``.

    Raises:
        ConfigError: a file, key or value is not acceptable; names it and the remedy.
        RefblendError: training ended with an error that the user can fix; the run's directory holds
            the last checkpoint and all metrics up to it.
    """
    runtime.configure_process()
    if isinstance(config, RefblendConfig):
        settings = parse_config(config.resolved(), overrides) if overrides else config
    elif isinstance(config, Mapping):
        settings = parse_config(config, overrides)
    else:
        files = [config] if isinstance(config, str | os.PathLike) else config
        settings = load_config([Path(file) for file in files], overrides)
    with runtime.importing():
        from refblend.trainer import launch
    return launch.train(settings, overwrite)


def score_file(
    input: StrPath,
    output: StrPath,
    model: StrPath | None = None,
    *,
    engine: str = "vllm",
    templates: StrPath | None = None,
    batch_size: int = 256,
    **scoring: Any,
) -> "pd.DataFrame":
    """Score the responses of a file with a judge, as ``refblend score`` does.

    Example::

        frame = refblend.score_file("answers.jsonl", "scores.parquet", "models/cpu/judge_medium")
        print(frame["score"].mean(), frame["valid"].mean())

    Args:
        input: jsonl or parquet with columns ``question`` and ``response``; others are kept.
        output: table to write: ``.parquet``, ``.jsonl`` or ``.csv``.
        model: the judge, as for :meth:`Judge.open`; so are ``engine``, ``templates`` and
            ``scoring``.
        engine: what answers.
        templates: prompt texts.
        batch_size: samples per call of the judge.
        scoring: further keys of ``algorithm.ref_quality_score.scoring``.

    Returns:
        What was written: the input with ``score``, ``valid``, ``path``, ``raw`` and more.

    Raises:
        RefblendError: a file or the judge cannot be used; nothing is written.
    """
    opening = functools.partial(Judge.open, model, engine=engine, templates=templates, **scoring)
    return score_responses(Path(input), Path(output), opening, batch_size)


def score_responses(
    input: Path,
    output: Path,
    opening: Callable[[], AbstractContextManager[Judge]],
    batch_size: int = 256,
) -> "pd.DataFrame":
    """As :func:`score_file`; the judge is opened once both files are known to be usable."""
    from refblend.scoring.measure.corpus import read_responses
    from refblend.scoring.measure.quality import RESULT_COLUMNS, score_corpus

    check_results([input], [], output)
    frame = read_responses(input)
    taken = [column for column in RESULT_COLUMNS if column in frame.columns]
    if taken:
        raise DataError(
            f"{input}: the column {taken[0]!r} is one that scoring writes", "Rename it."
        )
    check_storable(output, frame)
    show = step_progress("score", len(frame))
    with opening() as judge:
        scored = score_corpus(judge, frame, batch_size, progress=show)
    write_table(output, scored)
    return scored


def advise(
    frame: "pd.DataFrame", *, norm_by_std: bool = True, mixed_groups: bool = False
) -> "Advice":
    """What blending a judge's score into the reward would do to the first updates.

    Example::

        print(refblend.advise(pd.read_json("rollouts.jsonl", lines=True)))

    Args:
        frame: one row per response: ``prompt_id`` (responses of equal ids form a group),
            ``reward`` (the rule's), ``judge_score`` (in [0, 1]), ``truth`` (in [0, 1]; missing
            where nobody checked), and where known ``length`` (tokens), ``entropy`` (mean of the
            response's tokens, nats) and ``step``: at each, a prompt has a group of its own. Rows
            without a reward or a score are left out.
        norm_by_std: whether GRPO divides by the group's standard deviation.
        mixed_groups: whether to try ``groups: mixed``, too, which refblend's own trainer alone has.

    Raises:
        DataError: a column is missing or too few responses have a truth to say anything.
    """
    from refblend.advice.answer import advice_on

    return advice_on(frame, norm_by_std, mixed_groups)
