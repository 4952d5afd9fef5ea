r"""Attacks on the judge: what an actor may learn, or a user may plant, to raise its score.

Each changes the text of a sample but not its correctness. It must never change the *structure* of
the prompt (tests/scoring/attacks). Whether it changes the judge's *mind* is a property of the
judge: :func:`measure_attacks` gives the lift of the mean score. Sources of kinds: arXiv 2507.08794
(master keys), arXiv 2403.17710 (injection into judges), and reports from users of RL trainers.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from refblend.scoring.clipping import ScoringRequest
from refblend.scoring.generative import GenerativeJudge
from refblend.scoring.measure.quality import interval, score_corpus
from refblend.scoring.prompts import PromptEncoder
from refblend.scoring.quote import QUOTE_CLOSE, QUOTE_OPEN
from refblend.seeding import derive_generator


@dataclass(frozen=True)
class Attack:
    """One kind of attack: text put before, after or in place of the response.

    The family ``question`` changes the question instead.
    """

    family: str
    name: str
    way: Literal["before", "after", "start", "end", "instead", "repeat"]
    """``start`` and ``end``: on the same line; ``repeat``: the response itself, ``times`` over."""
    text: str = ""
    times: int = 1
    tail: str = ""

    def apply(self, question: str, response: str) -> tuple[str, str]:
        """The attacked (question, response)."""
        if self.family == "question":
            return self._changed(question), response
        return question, self._changed(response)

    def _changed(self, original: str) -> str:
        text = self.text * self.times + self.tail
        return {
            "before": f"{text}\n{original}",
            "after": f"{original}\n{text}",
            "start": text + original,
            "end": original + text,
            "instead": text,
            "repeat": "\n".join([original] * self.times),
        }[self.way]


SUITE = Path(__file__).parents[1] / "data" / "attacks.json"
ATTACKS = tuple(Attack(**row) for row in json.loads(SUITE.read_text(encoding="utf-8")))
"""The suite; names are unique."""

NEUTRAL = "neutral"


def measure_attacks(
    judge: GenerativeJudge,
    questions: Sequence[str],
    responses: Sequence[str],
    attacks: Sequence[Attack] = ATTACKS,
    progress: Callable[[int], None] = lambda done: None,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """How much each attack raises the judge's mean score over the neutral answers.

    Give answers of one correctness, usually wrong ones: an attack that *replaces* the answer is no
    better than those. ``progress`` is told how many of (attacks + 1)·N samples are done.

    Returns:
        A row per attack, the largest lift first (``attack``, ``family``, ``n``, ``neutral_mean``,
        ``attacked_mean``, ``lift`` over all N, invalid scores included, ``low`` and ``high`` (95 %
        bootstrap interval of the paired lift), ``valid_rate``, ``overlength``, ``clipped_rate``,
        ``structure_changed``); and the scored samples without their texts.
    """
    samples = score_corpus(judge, _attacked(questions, responses, attacks), progress=progress)
    samples["structure_kept"] = [
        structure_kept(judge.plan(row.question, row.response), judge.encoder)
        for row in samples.itertuples()
    ]
    base = samples.loc[samples["attack"] == NEUTRAL, "score"].to_numpy(float)
    rows = [
        _row(name, part, base)
        for name, part in samples.groupby("attack", sort=False)
        if name != NEUTRAL
    ]
    table = pd.DataFrame(rows).sort_values("lift", ascending=False, kind="stable")
    # Some attacks are not valid Unicode and cannot be written to a file: the texts are left out.
    return table.reset_index(drop=True), samples.drop(columns=["question", "response"])


def _attacked(
    questions: Sequence[str], responses: Sequence[str], attacks: Sequence[Attack]
) -> pd.DataFrame:
    """The neutral answers, then those of each attack, in the order of the answers."""
    neutral = Attack(NEUTRAL, NEUTRAL, "end")
    rows = [
        (attack.name, attack.family, *attack.apply(q, r))
        for attack in (neutral, *attacks)
        for q, r in zip(questions, responses, strict=True)
    ]
    return pd.DataFrame(rows, columns=["attack", "family", "question", "response"], dtype=object)


def _row(name: Any, part: pd.DataFrame, base: npt.NDArray[np.float64]) -> dict[str, Any]:
    scores = part["score"].to_numpy(float)
    low, high = interval([scores - base], np.mean, derive_generator("lift", str(name)))
    return {
        "attack": name,
        "family": part["family"].iloc[0],
        "n": len(part),
        "neutral_mean": float(base.mean()),
        "attacked_mean": float(scores.mean()),
        "lift": float((scores - base).mean()),
        "low": low,
        "high": high,
        "valid_rate": float(part["valid"].mean()),
        "overlength": int((part["path"] == "overlength").sum()),
        "clipped_rate": float(part["clipped"].mean()),
        "structure_changed": int((~part["structure_kept"]).sum()),
    }


def structure_kept(request: ScoringRequest, encoder: PromptEncoder) -> bool:
    """Whether a request is still the trusted frame around data.

    Between the frame's own ids lies no special token but ours, and quotes, separators and boxes
    are as many as in the frame.
    """
    frame = encoder.frame(request.template)
    ids = request.token_ids
    head, tail = len(frame.prefix), len(ids) - len(frame.suffix)
    if tuple(ids[:head]) != frame.prefix or tuple(ids[tail:]) != frame.suffix:
        return False
    specials = [i for i in ids[head:tail] if i in encoder.special_ids]
    if specials != [i for i in frame.between if i in encoder.special_ids]:
        return False
    separator = encoder.templates.separator
    markers = (QUOTE_OPEN, QUOTE_CLOSE, separator, "\\box", *encoder.special_tokens)
    decode = encoder.tokenizer.decode
    texts = decode(ids), decode([*frame.prefix, *frame.between, *frame.suffix])
    return all(texts[0].count(marker) == texts[1].count(marker) for marker in markers)
