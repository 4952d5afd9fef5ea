"""The measures that arms may be compared by: names, labels and which direction is better."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Measure:
    """How a measure is named and read."""

    name: str
    label: str
    unit: str
    """Empty for counts and shares without a unit."""
    higher_is_better: bool | None
    """Null: neither direction is better in itself."""


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
        Measure("val_drawdown", "validation accuracy, largest fall", "share", False),
        Measure("train_acc", "training accuracy (sampled), mean", "share", True),
        Measure("train_acc_third", "training accuracy (sampled), mean, first third", "share", True),
        Measure("final_return", "training return (rule reward), last 5 steps", "reward", True),
        Measure("alignment", "alignment with the truth, first recorded step", "", True),
        Measure("loss_spikes", "loss spikes", "steps", False),
        Measure("grad_spikes", "gradient spikes", "steps", False),
        Measure("entropy_start", "entropy, first step", "nats", None),
        Measure("entropy_end", "entropy, last step", "nats", None),
        Measure("entropy_collapse", "entropy collapsed", "share of runs", False),
        Measure("length_end", "response length, last step", "tokens", None),
        Measure("weight_mean", "blending weight, mean", "", None),
        Measure("judge_auc", "judge AUC in training (pooled)", "", True),
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
ORDERED = {
    name: measure.higher_is_better
    for name, measure in MEASURES.items()
    if measure.higher_is_better is not None
}
"""Whether more is better, of every measure by which arms can be compared."""
ACCURACIES = {"test_greedy": "greedy test acc.", "test_sampled": "sampled test acc."}
"""Measures that pages show of every arm and contrast, always both, with their headings."""


def with_endpoint(endpoint: str, measures: Sequence[str]) -> list[str]:
    """The measures of a table, an experiment's endpoint first where they lack it."""
    return list(measures) if endpoint in measures else [endpoint, *measures]


PHYSICAL = ("s", "GiB", "tokens", "tokens/s", "nats", "steps")
"""Units that a label shows; shares and rewards are plain numbers."""


def label(measure: str) -> str:
    """Label of a measure, with its unit where a reader needs one."""
    known = MEASURES[measure]
    return f"{known.label} ({known.unit})" if known.unit in PHYSICAL else known.label
