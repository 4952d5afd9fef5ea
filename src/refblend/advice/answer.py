"""The answer: should this reward be blended with this judge's score, where and how much?"""

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from refblend.advice.alignment import (
    TILTS,
    WEIGHTS,
    Array,
    Blend,
    Groups,
    Level,
    PromptSums,
    Samples,
    Where,
    auc_within_prompts,
    interval,
    map_headroom,
    resampled,
)
from refblend.errors import DataError
from refblend.scoring.measure.record import plain

MATTERS = 0.02
"""A gain in alignment below this is not worth a judge. Our choice: in our study with a noisy reward
a gain of 0.045 went with 0.03 of accuracy."""
NEAR_BEST = 0.005
"""Weights whose alignment is this close to the best are as good."""
SAME = (
    " The truth is the rule reward itself in every row: if the rule can be wrong, give another "
    "truth (--column truth=COLUMN)."
)
FEW_PROMPTS = 10
"""With fewer labelled prompts a bootstrap over prompts says nothing."""

Verdict = Literal["blend", "leave", "undecided"]


@dataclass(frozen=True)
class Curve:
    """Alignment over the weight for one placement and choice of groups."""

    placement: str
    groups: str
    weights: list[float]
    alignment: list[float]
    low: list[float]
    high: list[float]

    def peak(self) -> tuple[str, str]:
        """Its name and its highest point, for the report."""
        where = "last token" if self.placement == "terminal" else "every token"
        at = int(np.nanargmax(self.alignment))
        highest = f"{self.alignment[at]:.3f} at w = {self.weights[at]:g}"
        return f"  {where}, {self.groups} groups", highest


@dataclass(frozen=True)
class Advice:
    """What :func:`refblend.advise` found; ``str()`` is its report, ``to_dict()`` is for JSON."""

    verdict: Verdict
    sentence: str
    responses: int
    prompts: int
    labelled_responses: int
    labelled_prompts: int
    without_signal: float
    """Share of prompts whose rule rewards are all equal."""
    judge_auc: float | None
    """Of the judge, among responses to one prompt; ``reward_auc`` is the rule reward's."""
    reward_auc: float | None
    unblended: float
    """Alignment without a blend."""
    weight: float
    """The best weight above 0; those from ``weight_low`` to ``weight_high`` are as good."""
    weight_low: float
    weight_high: float
    placement: str
    groups: str
    gain: float
    """Alignment at this weight minus that without a blend, with its 95 % interval."""
    gain_low: float
    gain_high: float
    map_gain: float | None
    """What a weight that follows the entropy adds to the best constant; None: entropy unknown."""
    map_gain_low: float | None
    map_gain_high: float | None
    prompts_needed: int | None
    """Labelled prompts that would decide; None where it is decided."""
    curves: list[Curve]

    def to_dict(self) -> dict[str, Any]:
        """As JSON values; what is not a number is null."""
        values: dict[str, Any] = plain(asdict(self))
        return values

    def __str__(self) -> str:
        gain = (
            f"{self.gain:+.3f} [{self.gain_low:+.3f}, {self.gain_high:+.3f}] at w = {self.weight:g}"
        )
        if self.weight_low < self.weight_high:
            gain += f"; from {self.weight_low:g} to {self.weight_high:g} it is as good"
        rows = {
            "responses": f"{self.responses} to {self.prompts} prompts, "
            f"{self.labelled_responses} with a known truth",
            "prompts without signal": f"{self.without_signal:.0%} (all rule rewards equal)",
            "AUC within a prompt": f"rule reward {_shown(self.reward_auc)}, "
            f"judge {_shown(self.judge_auc)}",
            "alignment, no blend": f"{self.unblended:.3f}",
            **dict(curve.peak() for curve in self.curves),
            "gain of the best": gain,
            "entropy map adds": "unknown: the rollouts have no entropy"
            if self.map_gain is None
            else f"{self.map_gain:+.3f} [{self.map_gain_low:+.3f}, {self.map_gain_high:+.3f}]",
        }
        return "\n".join([*(f"{name:<30}{text}" for name, text in rows.items()), "", self.sentence])


def advice_on(frame: pd.DataFrame, norm_by_std: bool = True, mixed_groups: bool = False) -> Advice:
    """Implements :func:`refblend.advise`; see there for arguments and errors."""
    samples = samples_of(frame)
    known = np.isfinite(samples.truth)
    kinds: list[tuple[Where, Groups]] = [("terminal", "all")]
    if mixed_groups:
        kinds += [("terminal", "mixed")]
    if samples.length is not None:
        kinds += [("per_token", "all")]
    blends = [Blend(w, placement, groups) for placement, groups in kinds for w in WEIGHTS]
    sums = samples.sums(blends, norm_by_std)
    _check_labels(samples, sums)
    counts = resampled(samples.prompts)
    point, drawn = sums.alignment(), sums.alignment(counts)
    gains = point - point[0]
    lows, highs = interval(drawn - drawn[:, :1])
    best = _best(gains)
    gain, low, high = (float(values[best]) for values in (gains, lows, highs))
    kind = best - best % len(WEIGHTS)
    alike = zip(WEIGHTS, gains[kind : kind + len(WEIGHTS)], strict=True)
    near = [w for w, value in alike if w and value >= gain - NEAR_BEST]
    decided: Verdict = "undecided"
    if np.nanmax(highs) < MATTERS:
        decided = "leave"
    elif low > 0 and max(gain, high) >= MATTERS:
        decided = "blend"
    labelled = _labelled_prompts(samples)
    needed = None if decided != "undecided" else _needed(samples, gains, lows, highs, best)
    map_gain, map_low, map_high = _headroom(samples, sums, counts, norm_by_std)
    bands = [point, *interval(drawn)]
    by_kind = zip(*(values.reshape(len(kinds), -1).tolist() for values in bands), strict=True)
    curves = [Curve(*kind, list(WEIGHTS), *own) for kind, own in zip(kinds, by_kind, strict=True)]
    return Advice(
        verdict=decided,
        sentence=_sentence(decided, blends[best], gain, (low, float(np.nanmax(highs))), needed)
        + (SAME if np.array_equal(samples.truth[known], samples.reward[known]) else ""),
        responses=len(samples.reward),
        prompts=samples.prompts,
        labelled_responses=int(known.sum()),
        labelled_prompts=labelled,
        without_signal=1 - float(pd.Series(samples.mixed).groupby(samples.group).any().mean()),
        judge_auc=auc_within_prompts(samples, samples.score),
        reward_auc=auc_within_prompts(samples, samples.reward),
        unblended=float(point[0]),
        weight=blends[best].weight,
        weight_low=min(near),
        weight_high=max(near),
        placement=blends[best].placement,
        groups=blends[best].groups,
        gain=gain,
        gain_low=low,
        gain_high=high,
        map_gain=map_gain,
        map_gain_low=map_low,
        map_gain_high=map_high,
        prompts_needed=needed,
        curves=curves,
    )


def samples_of(frame: pd.DataFrame) -> Samples:
    """The arrays of a frame as :func:`refblend.advise` takes it; DataError if it is none."""
    missing = {"prompt_id", "reward", "judge_score", "truth"} - set(frame.columns)
    if missing:
        raise DataError(
            f"the rollouts lack {', '.join(sorted(missing))}",
            "Give one row per response with prompt_id, reward, judge_score and truth.",
        )
    if frame["judge_score"].isna().all():
        raise DataError(
            "the rollouts have no judge's scores",
            "Judge a file of them with `refblend score --output judged.parquet`, then give advise "
            "judged.parquet and --column judge_score=score.",
        )
    whole = frame.dropna(subset=["prompt_id", "reward", "judge_score"])
    # As text, so that the same prompts are drawn however they are named.
    whole = whole.assign(prompt_id=whole["prompt_id"].astype(str))
    keys = [name for name in ("prompt_id", "step") if name in whole.columns]
    size = whole.groupby(keys, dropna=False).prompt_id.transform("size")
    whole = whole[size > 1].sort_values(keys, kind="stable")
    if whole.empty:
        raise DataError(
            "no prompt has two responses with a reward and a score",
            "Sample several responses per prompt.",
        )
    if np.isinf(whole["reward"].to_numpy(float)).any():
        raise DataError("reward holds an infinite value", "Use finite rewards.")
    for name in ("judge_score", "truth"):
        outside = ~whole[name].dropna().between(0, 1)
        if outside.any():
            raise DataError(
                f"{name} holds {whole[name].dropna()[outside].iloc[0]:g}", "Use values in [0, 1]."
            )

    def known(name: str) -> Any:
        complete = name in whole.columns and whole[name].notna().all()
        return whole[name].to_numpy(float) if complete else None

    return Samples(
        prompt=whole.groupby("prompt_id").ngroup().to_numpy(),
        group=whole.groupby(keys, dropna=False).ngroup().to_numpy(),
        reward=whole["reward"].to_numpy(float),
        score=whole["judge_score"].to_numpy(float),
        truth=whole["truth"].to_numpy(float),
        length=known("length"),
        entropy=known("entropy"),
    )


def _best(gains: Array) -> int:
    """The best weight above 0 of the simplest kind of blend that is as good as any.

    None is as good as one whose gain matters unless its own does.
    """
    kinds = gains.reshape(-1, len(WEIGHTS))[:, 1:]
    peaks = np.nanmax(kinds, axis=1)
    least = np.nanmax(peaks) - NEAR_BEST
    if np.nanmax(peaks) >= MATTERS:
        least = max(least, MATTERS)
    kind = int(np.argmax(peaks >= least))
    return kind * len(WEIGHTS) + 1 + int(np.nanargmax(kinds[kind]))


def _check_labels(samples: Samples, sums: PromptSums) -> None:
    informative = int((sums.truth > 0).sum())
    if informative < FEW_PROMPTS:
        raise DataError(
            f"{informative} prompts have both right and wrong responses with a known truth; "
            f"{FEW_PROMPTS} are the least",
            "Read more steps (--steps), or label all responses of more prompts, first of those "
            "whose answers differ.",
        )
    if not np.isfinite(sums.alignment()[0]):
        raise DataError(
            "the rule reward never differs within a prompt, so it trains nothing by itself",
            "Give rollouts of a reward that does, or of more prompts.",
        )


def _needed(samples: Samples, gains: Array, lows: Array, highs: Array, best: int) -> int:
    """Labelled prompts for an interval above 0, or for all intervals below a gain that matters.

    Whichever takes fewer, if the gains stay and the intervals shrink with the root of the prompts.
    """
    to_blend = to_leave = math.inf
    if lows[best] <= 0 < gains[best]:
        to_blend = (gains[best] - lows[best]) / gains[best]
    if np.nanmax(gains) < MATTERS:
        to_leave = float(np.nanmax((highs - gains) / (MATTERS - gains)))
    return math.ceil(_labelled_prompts(samples) * max(min(to_blend, to_leave), 1.0) ** 2)


def _labelled_prompts(samples: Samples) -> int:
    return len(np.unique(samples.prompt[np.isfinite(samples.truth)]))


def _sentence(
    decided: Verdict,
    best: Blend,
    gain: float,
    bounds: tuple[float, float],
    needed: int | None,
) -> str:
    if decided == "leave":
        return (
            "Do not blend: no weight brings the updates closer to the truth by as much as "
            f"{MATTERS:g}."
        )
    where = "on the last token" if best.placement == "terminal" else "on every token"
    groups = " in groups of unequal rewards" if best.groups == "mixed" else ""
    if decided == "blend":
        return (
            f"Blend: a constant weight of {best.weight:g} {where}{groups} brings the updates "
            f"closer to the truth ({gain:+.3f}, at least {bounds[0]:+.3f})."
        )
    return (
        f"Undecided: a blend's gain may lie between {bounds[0]:+.3f} and {bounds[1]:+.3f}. About "
        f"{needed} labelled prompts would tell."
    )


def _headroom(
    samples: Samples, constant: PromptSums, counts: Array, norm_by_std: bool
) -> tuple[float, float, float] | tuple[None, None, None]:
    if samples.entropy is None:
        return None, None, None
    levels: tuple[Level, ...] = ("response", "prompt")
    maps = [
        Blend(w, tilt=tilt, level=level) for level in levels for tilt in TILTS for w in WEIGHTS if w
    ]
    terminal = slice(0, len(WEIGHTS))
    constants = PromptSums(constant.cross[terminal], constant.own[terminal], constant.truth)
    return map_headroom(constants, samples.sums(maps, norm_by_std), counts)


def _shown(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3f}"
