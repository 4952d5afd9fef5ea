"""refblend: PPO with a reference model's quality score blended into the rewards.

The public interface, the same on every release with the same first two numbers of the version::

    entropy = avg_response_entropy(token_entropy, response_mask)
    weight = weight_for("linear", entropy, step, total_steps, WeightParams(max_weight=0.3))
    with Judge.open("models/cpu/judge_medium") as judge:
        scores = [result.score for result in judge.score(questions, responses)]
    quality = expand_quality(torch.tensor(scores), response_mask, "terminal")
    rewards = blend_rewards(rewards, quality, response_mask, weight)

``train`` and ``score_file`` do whole jobs, as the commands of the same names. A name is imported
when it is first used: ``import refblend`` loads neither torch nor an engine.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from refblend.errors import RefblendError as RefblendError
    from refblend.interface import advise as advise
    from refblend.interface import score_file as score_file
    from refblend.interface import train as train
    from refblend.ppo.blending import blend_rewards as blend_rewards
    from refblend.ppo.blending import compute_avg_response_entropy as avg_response_entropy
    from refblend.ppo.blending import expand_quality as expand_quality
    from refblend.ppo.weights import WeightParams as WeightParams
    from refblend.ppo.weights import weight_for as weight_for
    from refblend.scoring.judge import Judge as Judge
    from refblend.scoring.result import JudgeResult as JudgeResult

__version__ = "1.0.0"

_PLACES = {
    "Judge": "scoring.judge:Judge",
    "JudgeResult": "scoring.result:JudgeResult",
    "RefblendError": "errors:RefblendError",
    "WeightParams": "ppo.weights:WeightParams",
    "advise": "interface:advise",
    "avg_response_entropy": "ppo.blending:compute_avg_response_entropy",
    "blend_rewards": "ppo.blending:blend_rewards",
    "expand_quality": "ppo.blending:expand_quality",
    "score_file": "interface:score_file",
    "train": "interface:train",
    "weight_for": "ppo.weights:weight_for",
}
"""Public name → module and name in it."""

__all__ = [
    "Judge",
    "JudgeResult",
    "RefblendError",
    "WeightParams",
    "advise",
    "avg_response_entropy",
    "blend_rewards",
    "expand_quality",
    "score_file",
    "train",
    "weight_for",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'refblend' has no attribute {name!r}")
    module, attribute = _PLACES[name].split(":")
    found = getattr(importlib.import_module(f"refblend.{module}"), attribute)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return [*globals(), *_PLACES]
