"""The measures that arms may be compared by, and whether an experiment's runs will have them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from refblend.config.root import RefblendConfig
from refblend.errors import StudyError
from refblend.study.design.spec import ExperimentSpec


@dataclass(frozen=True)
class Measure:
    """How a measure is named and read."""

    name: str
    label: str
    unit: str
    """Empty for counts and shares without a unit."""
    higher_is_better: bool | None
    """Null: neither direction is better in itself."""


ACCURACIES = (10, 20, 30, 40, 50, 60, 70, 80)
"""Validation accuracies, in per cent, to which the steps are counted."""

MANY_STEPS = 4
"""Test problems whose solutions have so many steps or more count as one difficulty."""

MEASURES: dict[str, Measure] = {
    measure.name: measure
    for measure in (
        Measure("test_greedy", "test accuracy (greedy)", "share", True),
        Measure("test_sampled", "test accuracy (sampled)", "share", True),
        Measure("val_final", "validation accuracy, final", "share", True),
        Measure("val_best", "validation accuracy, best", "share", True),
        Measure("val_gain", "validation accuracy, final − start", "share", True),
        Measure("val_auc", "validation accuracy, mean height of the curve", "share", True),
        Measure("val_auc_third", "validation accuracy, mean height, first third", "share", True),
        *(
            Measure(
                f"steps_to_{percent}", f"steps to {percent} % validation accuracy", "steps", False
            )
            for percent in ACCURACIES
        ),
        Measure("val_drawdown", "validation accuracy, largest fall", "share", False),
        Measure("final_return", "training return (rule reward), last 5 steps", "reward", True),
        Measure("loss_spikes", "loss spikes", "steps", False),
        Measure("grad_spikes", "gradient spikes", "steps", False),
        Measure("entropy_start", "entropy, first step", "nats", None),
        Measure("entropy_end", "entropy, last step", "nats", None),
        Measure("entropy_collapse", "entropy collapsed", "share of runs", False),
        Measure("length_end", "response length, last step", "tokens", None),
        Measure("weight_mean", "blending weight, mean", "", None),
        Measure("judge_auc", "judge AUC in training", "", True),
        Measure("nonzero_rate", "valid, non-zero judge scores", "share", True),
        Measure("valid_rate", "valid judge scores", "share", True),
        Measure("step_seconds", "step time, median", "s", False),
        Measure("throughput", "throughput, median", "tokens/s", True),
        Measure("memory_gb", "host memory, peak", "GiB", False),
        Measure("gpu_memory_gb", "GPU memory, peak", "GiB", False),
        Measure("judge_seconds", "judge time a step, median", "s", False),
    )
}
"""Every measure by its name; tables and figures keep this order."""


def with_endpoint(endpoint: str, measures: Sequence[str]) -> list[str]:
    """The measures of a table, an experiment's endpoint first where they lack it."""
    return list(measures) if endpoint in measures else [endpoint, *measures]


PHYSICAL = ("s", "GiB", "tokens", "tokens/s", "nats", "steps")
"""Units that a label shows; shares and rewards are plain numbers."""


def label(measure: str) -> str:
    """Label of a measure, with its unit where a reader needs one."""
    known = MEASURES[measure]
    return f"{known.label} ({known.unit})" if known.unit in PHYSICAL else known.label


OF_THE_JUDGE = ("judge_auc", "nonzero_rate", "valid_rate", "judge_seconds")


def check_endpoint(spec: ExperimentSpec, arm: str, config: RefblendConfig, path: Path) -> None:
    """Refuse an experiment, before any training, whose report would be empty.

    ``config`` is that of ``arm``, one of the experiment's; ``path`` names its file in messages.

    Raises:
        StudyError: an endpoint is not a measure, has no better direction, or the arm lacks it.
    """
    ordered = [name for name, known in MEASURES.items() if known.higher_is_better is not None]
    for endpoint in dict.fromkeys([spec.endpoint, *map(spec.endpoint_of, spec.contrasts)]):
        if endpoint not in ordered:
            raise StudyError(
                f"{path}: endpoint: {endpoint} is not a measure that can be better or worse",
                f"Choose one of {', '.join(ordered)}.",
            )
        less_is_better = not MEASURES[endpoint].higher_is_better
        if spec.milestone == "m3" and endpoint == spec.endpoint and less_is_better:
            raise StudyError(
                f"{path}: endpoint: of {endpoint} less is better, which M3 cannot confirm",
                "Choose an accuracy or a return.",
            )
        if lacking := _lacking(endpoint, config):
            raise StudyError(
                f"{path}: endpoint: no run of arm {arm} would have {endpoint}: {lacking}",
                "Change that setting, or the experiment's endpoint.",
            )


def _lacking(endpoint: str, config: RefblendConfig) -> str:
    """Why runs of a configuration lack a measure; empty where they have it."""
    trainer, sampled = config.trainer, config.actor_rollout_ref.rollout.val_kwargs
    if endpoint.startswith("test_") and trainer.save_freq == 0:
        return "trainer.save_freq=0 leaves no actor to test"
    if endpoint == "test_sampled" and not (sampled.do_sample and sampled.n):
        return "rollout.val_kwargs samples no answers"
    if endpoint == "val_gain" and not trainer.val_before_train:
        return "trainer.val_before_train=false"
    if endpoint in OF_THE_JUDGE and not config.use_judge:
        return "it has no judge"
    return ""
