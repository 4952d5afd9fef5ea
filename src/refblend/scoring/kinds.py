"""The kinds of judges by name: training, ``refblend score`` and ``refblend judge`` start them here.

A new kind is one subclass of :class:`refblend.scoring.judge.Judge`, a line here, and its name in
:data:`refblend.config.algorithm.JudgeKind`.
"""

import importlib

from refblend.config.algorithm import JudgeKind, RefQualityScoreConfig
from refblend.scoring.judge import Judge

KINDS: dict[JudgeKind, str] = {
    "vllm": "refblend.scoring.generative:GenerativeJudge",
    "hf": "refblend.scoring.generative:GenerativeJudge",
    "http": "refblend.scoring.endpoint:EndpointJudge",
    "reward_model": "refblend.scoring.reward_model:RewardModelJudge",
}
"""Kind → module and class; a kind's libraries are imported only when it is used."""


def judge_class(kind: JudgeKind) -> type[Judge]:
    """The class of a kind."""
    module, name = KINDS[kind].split(":")
    found: type[Judge] = getattr(importlib.import_module(module), name)
    return found


def check_judge(config: RefQualityScoreConfig) -> None:
    """Refuse a judge that could not be started, before any process is.

    Raises:
        RefblendError: names the key or file and the remedy.
    """
    judge_class(config.scoring.kind).check(config)


def start_judge(config: RefQualityScoreConfig, seed: int = 0) -> Judge:
    """The judge of a configuration, ready to score; see :meth:`Judge.start`."""
    return judge_class(config.scoring.kind).start(config, seed)
