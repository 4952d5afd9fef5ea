"""The measures that arms may be compared by: names, labels and which direction is better."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Measure:
    """How a measure is shown and read."""

    label: str
    unit: str
    """Empty for counts and shares without a unit."""
    higher_is_better: bool | None
    """Null: neither direction is better in itself."""


MEASURES = {
    "test_greedy": Measure("test accuracy (greedy)", "share", True),
    "test_sampled": Measure("test accuracy (sampled)", "share", True),
    "val_final": Measure("validation accuracy, final", "share", True),
    "val_best": Measure("validation accuracy, best", "share", True),
    "val_gain": Measure("validation accuracy, final − start", "share", True),
    "val_auc": Measure("validation accuracy, mean height of the curve", "share", True),
    "val_auc_third": Measure("validation accuracy, mean height, first third", "share", True),
    "val_drawdown": Measure("validation accuracy, largest fall", "share", False),
    "train_acc": Measure("training accuracy (sampled), mean", "share", True),
    "train_acc_third": Measure("training accuracy (sampled), mean, first third", "share", True),
    "final_return": Measure("training return (rule reward), last 5 steps", "reward", True),
    "alignment": Measure("alignment with the truth, first recorded step", "", True),
    "loss_spikes": Measure("loss spikes", "steps", False),
    "grad_spikes": Measure("gradient spikes", "steps", False),
    "entropy_start": Measure("entropy, first step", "nats", None),
    "entropy_end": Measure("entropy, last step", "nats", None),
    "entropy_collapse": Measure("entropy collapsed", "share of runs", False),
    "length_end": Measure("response length, last step", "tokens", None),
    "weight_mean": Measure("blending weight, mean", "", None),
    "judge_auc": Measure("judge AUC in training (pooled)", "", True),
    "nonzero_rate": Measure("valid, non-zero judge scores", "share", True),
    "valid_rate": Measure("valid judge scores", "share", True),
    "step_seconds": Measure("step time, median", "s", False),
    "throughput": Measure("throughput, median", "tokens/s", True),
    "memory_gb": Measure("host memory, peak", "GiB", False),
    "gpu_memory_gb": Measure("GPU memory, peak", "GiB", False),
    "judge_seconds": Measure("judge time a step, median", "s", False),
}
"""Every measure by its name; tables and figures keep this order."""
ORDERED = {
    name: measure.higher_is_better
    for name, measure in MEASURES.items()
    if measure.higher_is_better is not None
}
"""Every measure by which arms can be compared, and whether more is better."""
ACCURACIES = {"test_greedy": "greedy test acc.", "test_sampled": "sampled test acc."}
"""Measures that pages show of every arm and contrast, always both, with their headings."""


def with_endpoint(endpoint: str, measures: Sequence[str]) -> list[str]:
    """The measures of a table, after an experiment's endpoint if it is not among them."""
    return list(measures) if endpoint in measures else [endpoint, *measures]


PHYSICAL = ("s", "GiB", "tokens", "tokens/s", "nats", "steps")
"""Units that a label shows; shares and rewards are plain numbers."""


def label(measure: str) -> str:
    """Label of a measure, with its unit where a reader needs one."""
    known = MEASURES[measure]
    return f"{known.label} ({known.unit})" if known.unit in PHYSICAL else known.label
