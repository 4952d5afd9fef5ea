"""Arms in words: what of a blend, and outside of it, sets one apart."""

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from refblend.config.root import RefblendConfig
from refblend.ppo.weights import described
from refblend.study.design.spec import OVERLAY

PLACEMENTS = {
    "per_token": "Q_t = q on every response token",
    "terminal": "Q_t = q on the last response token, 0 before",
    "per_token_mean": "Q_t = q/L on every response token",
}
CONTROLS = {
    "shuffled": "scores shuffled within the batch",
    "random": "uniform random scores in place of the judge's",
    "oracle": "partial credit from the gold solution in place of the judge's scores",
}


def blend_text(config: RefblendConfig, usual: RefblendConfig | None = None) -> str:
    """A configuration's blend with its formula and the values of its parameters.

    ``usual`` has the judge that need not be named.
    """
    blend = config.algorithm.ref_quality_score
    if not blend.enable:
        return "no blend, w = 0"
    strategy = described(blend.strategy)
    values = ", ".join(f"`{name}` {getattr(blend, name)}" for name in strategy.parameters)
    told = [
        f"strategy `{strategy.name}`, {strategy.formula}, with {values}",
        f"placement `{blend.placement}`, {PLACEMENTS[blend.placement]}",
    ]
    if blend.weight_per_length:
        told.append("the weight divided by the response's length")
    if blend.groups == "mixed":
        told.append("blended in mixed groups only (some responses right, some wrong)")
    if blend.scoring.control != "none":
        told.append(CONTROLS[blend.scoring.control])
    elif usual and blend.scoring.model_path != usual.algorithm.ref_quality_score.scoring.model_path:
        told.append(f"judge `{PurePath(str(blend.scoring.model_path)).name}`")
    return "; ".join(told)


def outside_the_blend(overrides: Mapping[str, Any]) -> str:
    """The other settings in which an arm differs from the scale's, to stand behind its blend."""
    return "".join(
        f"; `{key}` {value}"
        for key, value in sorted(overrides.items())
        if key != OVERLAY and not key.startswith("algorithm.ref_quality_score.")
    )


def rule_reward(config: RefblendConfig) -> str:
    """What is amiss with the rule reward: ``exact``, ``sparse``, ``noisy``, or both of these."""
    verifier = config.reward.verifier
    amiss = (("sparse", verifier.checked_share < 1), ("noisy", verifier.flip_rate > 0))
    return " and ".join(name for name, is_so in amiss if is_so) or "exact"
