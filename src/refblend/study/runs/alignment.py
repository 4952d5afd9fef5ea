"""How well the advantages that a run used agreed with the truth, at every recorded step.

:mod:`refblend.advice.alignment` defines alignment. Here the reward is the recorded blended one.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from refblend.errors import DataError

METRIC = "rollouts/alignment"
_NAMES = {"uid": "prompt_id", "blended": "reward", "acc": "truth"}


def alignment_by_step(rows: Sequence[Mapping[str, Any]], norm_by_std: bool) -> dict[int, float]:
    """Alignment of the recorded responses of each step that has one.

    ``rows`` have step, uid, blended and acc; ``norm_by_std=False`` is Dr.GRPO.
    """
    from refblend.advice.alignment import Blend  # takes seconds, which reports save
    from refblend.advice.answer import samples_of

    frame = pd.DataFrame(rows, columns=["step", *_NAMES]).rename(columns=_NAMES)
    found = {}
    for step, part in frame.assign(judge_score=0.0).groupby("step"):
        try:
            sums = samples_of(part).sums([Blend(0.0)], norm_by_std)
        except DataError:  # no prompt has two responses
            continue
        value = float(sums.alignment()[0])
        if math.isfinite(value):
            found[int(str(step))] = value
    return found
