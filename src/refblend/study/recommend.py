"""What a study recommends in each regime: the best blend if its verdict is *better*, else none.

An experiment declares its regimes: kinds of reward under which the advice may differ, each with the
arm that is trained there without a blend. Candidates are the blends that the experiment compares
with that arm by its own endpoint, without controls and replayed weights. The candidate with the
largest difference is chosen, and the verdict on that contrast decides. The best of several is ahead
partly by luck: confirm it on fresh seeds.
"""

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pandas as pd
import yaml

from refblend.config.loading import merge, nest
from refblend.errors import StudyError
from refblend.study.design.arms import SCORE, Arm
from refblend.study.design.measures import MEASURES
from refblend.study.design.spec import ExperimentSpec

BLEND = f"{SCORE}.enable"
FIXED = (
    "strategy", "method", "entropy_level", "max_weight", "placement", "groups",
    "weight_per_length", "max_weight_warmup_steps",
)  # fmt: skip
"""Keys that a recommended blend sets even where the arm leaves them at their defaults: a user's
configuration may have others."""
WIDTH = 98


@dataclass(frozen=True)
class Recommendation:
    """The best blend of a regime against no blend."""

    regime: str
    arm: str
    """The candidate with the largest difference."""
    verdict: str
    n: int
    estimate: float
    """Difference of the endpoint, arm − baseline, with its interval."""
    low: float
    high: float
    endpoint: str
    candidates: int
    experiment: str
    baseline: str

    @property
    def blends(self) -> bool:
        """Whether to blend: only a verdict of *better* is worth a judge."""
        return self.verdict == "better"


def recommendations(
    verdicts: pd.DataFrame,
    experiments: Mapping[str, ExperimentSpec],
    arms: Mapping[str, Arm],
    scale: str,
) -> list[Recommendation]:
    """The recommendation of every regime whose arms have been compared in ``verdicts.csv``.

    An arm with too few seeds at the scale for its experiment to rank it is no candidate. StudyError
    if two experiments declare the same regime.
    """
    found: dict[str, Recommendation] = {}
    for name, spec in experiments.items():
        own = verdicts[
            (verdicts.experiment == name)
            & (verdicts.endpoint == spec.endpoint)
            & verdicts.treated.isin([arm for arm in spec.ranked(scale) if _trainable(arms[arm])])
            & verdicts.estimate.notna()
        ]
        for regime, baseline in spec.regimes.items():
            candidates = own[own.reference == baseline]
            if candidates.empty:
                continue
            if regime in found:
                raise StudyError(
                    f"{found[regime].experiment} and {name} both declare the regime {regime}",
                    "Name one of them, or remove the regime from the other's file.",
                )
            best = candidates.loc[candidates.estimate.idxmax()]
            decided = best[["verdict", "n", "estimate", "low", "high", "endpoint"]].to_dict()
            decided |= {"candidates": len(candidates), "experiment": name, "baseline": baseline}
            found[regime] = Recommendation(regime, best.treated, **decided)
    return list(found.values())


def _trainable(arm: Arm) -> bool:
    """Whether a user can train it: a blend with real scores, and weights of its own."""
    return arm.score.enable and not arm.is_control and arm.blend != "replay"


def table(found: list[Recommendation]) -> pd.DataFrame:
    """One row per regime."""
    frame = pd.DataFrame(found).drop(columns=["experiment", "baseline"])
    frame.insert(1, "recommended", [each.arm if each.blends else each.baseline for each in found])
    return frame.rename(columns={"arm": "best blend"})


def overlay(chosen: Recommendation, spec: ExperimentSpec, scale: str, arm: Arm) -> str:
    """YAML that overrides a configuration; the comment above it says how sure it is.

    ``arm``: the chosen one, resolved.
    """
    arms = spec.arms_of(scale)
    settings: dict[str, Any] = {BLEND: chosen.blends}
    if chosen.blends:
        settings |= {f"{SCORE}.{key}": arm.settings[f"{SCORE}.{key}"] for key in FIXED}
        own = arms[chosen.arm].items()
        settings |= {key: value for key, value in own if key.startswith("algorithm.")}
    setting = [f"{key}={value}" for key, value in arms[chosen.baseline].items() if key != BLEND]
    paragraphs = [
        f"Regime {chosen.regime} ({', '.join(setting) or 'the reward as it is'}): "
        + (f"blend as in arm {chosen.arm}." if chosen.blends else "do not blend.")
        + " Written by `refblend study recommend`; do not edit.",
        f"How sure: {chosen.verdict}. {chosen.arm} − {chosen.baseline}: {chosen.estimate:+.3f} "
        f"[{chosen.low:+.3f}, {chosen.high:+.3f}], {MEASURES[chosen.endpoint].label}, "
        f"n = {chosen.n}; experiment {chosen.experiment} at scale {scale}, candidates: "
        f"{chosen.candidates}.",
    ]
    lines = [line for text in paragraphs for line in textwrap.wrap(text, WIDTH)]
    nested = (nest(key.split("."), value) for key, value in settings.items())
    tree = reduce(merge, nested, dict[str, Any]())
    return "".join(f"# {line}\n" for line in lines) + yaml.safe_dump(tree, sort_keys=False)
