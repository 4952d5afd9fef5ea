"""The blending weight w: strategies, their parameters, and the weight of a step.

The functions behind them are in :mod:`refblend.ppo.entropy_maps`.
A strategy is one record (:class:`Strategy`). Whatever lists strategies (the configuration, the
recommendation, reports and figures) reads :data:`STRATEGIES`, so a new one is added by
:func:`register` alone.
"""

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, SupportsFloat

from refblend.ppo.choices import Ramp
from refblend.ppo.entropy_maps import (
    decay_weight,
    entropy_of,
    entropy_to_weight_constant,
    entropy_to_weight_cosine,
    entropy_to_weight_exp,
    entropy_to_weight_inverse,
    entropy_to_weight_linear,
    entropy_to_weight_piecewise,
    schedule_weight,
    share,
    warmed_ramp,
)


@dataclass(frozen=True)
class WeightParams:
    """The strategies' parameters, with the names and defaults of ``ref_quality_score``."""

    max_weight: float = 0.3
    entropy_high_threshold: float = 1.0
    entropy_low_threshold: float = 0.3
    exp_k: float = 3.0
    schedule: Ramp = "linear"
    schedule_warmup_share: float = 0.5
    max_weight_warmup_steps: int = 0
    replayed: tuple[float, ...] = ()
    """Weights of another run, step by step (contents of ``replay_file``)."""

    @classmethod
    def of(
        cls,
        settings: Any,
        initial_entropy: float | None = None,
        replayed: tuple[float, ...] = (),
    ) -> "WeightParams":
        """The parameters among the attributes of ``settings``, e.g. of ``ref_quality_score``.

        With ``entropy_high_threshold: auto``, τ is their ``entropy_high_threshold_factor`` times
        H₀, ``initial_entropy``, the actor's average before its first update in nats; ValueError
        without it. ``replayed`` are the weights of another run.
        """
        names = [field.name for field in fields(cls) if field.name != "replayed"]
        values = {name: getattr(settings, name) for name in names}
        if values["entropy_high_threshold"] == "auto":
            if initial_entropy is None or not 0.0 < initial_entropy < math.inf:
                raise ValueError(
                    f"entropy_high_threshold=auto is a multiple of the actor's entropy before "
                    f"training, which is {initial_entropy}: give a number of nats"
                )
            factor = settings.entropy_high_threshold_factor
            values["entropy_high_threshold"] = factor * initial_entropy
        return cls(**values, replayed=replayed)


@dataclass(frozen=True)
class StepContext:
    """The point in training for which a weight is computed."""

    step: int
    """1-based; 0 is before training."""
    total_steps: int


Weight = Callable[[float, WeightParams, StepContext], float]


@dataclass(frozen=True)
class Strategy:
    """One way to choose the weight; all that the rest of the package knows about it."""

    name: str
    """The value of ``algorithm.ref_quality_score.strategy``."""
    weight: Weight
    """Average entropy in nats (never NaN), parameters (``max_weight`` already warmed up) and step
    → w in [0, ``max_weight``]."""
    parameters: tuple[str, ...]
    """Fields of :class:`WeightParams` that the weight depends on."""
    reads_entropy: bool = True
    """Whether the weight is a function of the entropy that a figure can draw."""
    reads_total_steps: bool = False
    """Whether the weight of a step depends on the number of steps, so that a run cannot be
    extended."""
    check: Callable[[WeightParams], str] = lambda params: ""
    """Why the parameters do not fit together; empty where they do."""


STRATEGIES: dict[str, Strategy] = {}
"""Every blending strategy by name, in the order of tables, figures and colours."""


def register(strategy: Strategy) -> Strategy:
    """Add a strategy to :data:`STRATEGIES`, and with that to configuration and reports.

    ValueError if the name is taken, or a parameter is not a field of :class:`WeightParams`.
    """
    if strategy.name in STRATEGIES:
        raise ValueError(f"strategy {strategy.name!r} is registered already: choose another name")
    known = {field.name for field in fields(WeightParams)}
    if unknown := sorted(set(strategy.parameters) - known):
        raise ValueError(
            f"strategy {strategy.name!r} names {', '.join(unknown)}, not among the parameters "
            f"{', '.join(sorted(known))}: add it to WeightParams and ref_quality_score"
        )
    STRATEGIES[strategy.name] = strategy
    return strategy


def _of_entropy(
    name: str,
    function: Callable[..., float],
    check: Callable[[WeightParams], str] = lambda params: "",
) -> Strategy:
    """The strategy of a function whose arguments after the entropy are named as the parameters."""
    names = tuple(inspect.signature(function).parameters)[1:]

    def weight(entropy: float, params: WeightParams, at: StepContext) -> float:
        return function(entropy, **{each: getattr(params, each) for each in names})

    return Strategy(name, weight, names, check=check)


def _of_steps(name: str, function: Callable[..., float]) -> Strategy:
    """The strategy of a function of the step, the number of steps, w_max, ramp and its share."""

    def weight(entropy: float, params: WeightParams, at: StepContext) -> float:
        ramp = (params.max_weight, params.schedule, params.schedule_warmup_share)
        return function(at.step, at.total_steps, *ramp)

    names = ("max_weight", "schedule", "schedule_warmup_share")
    return Strategy(name, weight, names, reads_entropy=False, reads_total_steps=True)


def _replayed(entropy: float, params: WeightParams, at: StepContext) -> float:
    """w of this step in the weights of another run; 0 before training."""
    if at.step > len(params.replayed):
        told = f"replay_file has weights of {len(params.replayed)} steps, none for step {at.step}"
        raise ValueError(told)
    return min(params.replayed[at.step - 1], params.max_weight) if at.step > 0 else 0.0


def _thresholds_in_order(params: WeightParams) -> str:
    if params.entropy_low_threshold < params.entropy_high_threshold:
        return ""
    return (
        f"entropy_low_threshold={params.entropy_low_threshold} must lie below "
        f"entropy_high_threshold={params.entropy_high_threshold}: lower it"
    )


for _strategy in (
    _of_entropy("linear", entropy_to_weight_linear),
    _of_entropy("cosine", entropy_to_weight_cosine),
    _of_entropy("exp", entropy_to_weight_exp),
    _of_entropy("piecewise", entropy_to_weight_piecewise, _thresholds_in_order),
    _of_entropy("constant", entropy_to_weight_constant),
    _of_entropy("inverse", entropy_to_weight_inverse),
    _of_steps("schedule", schedule_weight),
    _of_steps("decay", decay_weight),
    Strategy(
        "replay",
        _replayed,
        ("max_weight", "replayed"),
        reads_entropy=False,
        check=lambda params: "" if params.replayed else "replay_file is needed by replay: set it",
    ),
):
    register(_strategy)


def weight_for(
    strategy: str | Strategy,
    avg_entropy: SupportsFloat,
    step: int,
    total_steps: int,
    params: WeightParams | None = None,
) -> float:
    """The weight w in [0, max_weight] that a strategy gives at this step.

    Args:
        strategy: a key of :data:`STRATEGIES`, or a user's.
        avg_entropy: of :func:`refblend.ppo.blending.compute_avg_response_entropy`, in nats.
        step: 1-based training step.
        total_steps: steps of the run.
        params: thresholds and maxima; the defaults if None.

    Raises:
        ValueError: an unknown strategy, parameters out of range, or a NaN entropy.
    """
    if isinstance(strategy, str):
        if strategy not in STRATEGIES:
            names = ", ".join(STRATEGIES)
            raise ValueError(f"strategy={strategy!r} is unknown: use one of {names}")
        strategy = STRATEGIES[strategy]
    params = params or WeightParams()
    warmed = share(params.max_weight) * warmed_ramp(step, params.max_weight_warmup_steps)
    return strategy.weight(
        entropy_of(avg_entropy), replace(params, max_weight=warmed), StepContext(step, total_steps)
    )


def counterfactual_weights(
    avg_entropy: SupportsFloat, step: int, total_steps: int, params: WeightParams | None = None
) -> dict[str, float]:
    """The weight that each strategy would give on this batch, by strategy name.

    A strategy whose parameters do not fit together is left out: a run of another strategy may have
    set τ below the default τ_low of ``piecewise``.
    """
    params = params or WeightParams()
    return {
        name: weight_for(name, avg_entropy, step, total_steps, params)
        for name, strategy in STRATEGIES.items()
        if not strategy.check(params)
    }
