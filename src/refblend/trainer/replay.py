"""The strategy ``replay``: a dose-matched control blends with the weights that another run had."""

import hashlib
import json
import math
from dataclasses import replace
from pathlib import Path

from refblend.config import RefblendConfig
from refblend.errors import DataError
from refblend.provenance import InputHashes
from refblend.seeding import derive_generator
from refblend.trainer.tracking import read_metrics

METRIC = "actor/ref_quality/weight"


def read_weights(path: Path) -> tuple[float, ...]:
    """The weight w of each step 1, 2, … in a ``metrics.jsonl``; DataError outside [0, 1]."""
    frame = read_metrics(path).set_index("step").reindex(columns=[METRIC])
    steps = range(1, int((frame.index > 0).sum()) + 1)
    weights = frame[METRIC].reindex(steps)
    for step, weight in weights[~weights.between(0, 1)].items():
        raise DataError(
            f"replay_file {path}: step {step} has the weight {weight}",
            "Give the metrics.jsonl of a finished run that blends.",
        )
    return tuple(weights.tolist())


def replayed_weights_of(config: RefblendConfig, steps: int) -> tuple[float, ...]:
    """The weight of each step, none for other strategies.

    DataError if there are too few, or ``max_weight`` would cut one.
    """
    path = _file_of(config)
    if path is None:
        return ()
    weights = read_weights(path)
    if len(weights) < steps:
        raise DataError(
            f"replay_file {path} has weights of {len(weights)} steps, this run has {steps}",
            "Replay a run that is at least as long, or lower trainer.total_training_steps.",
        )
    most = config.algorithm.ref_quality_score.max_weight
    if (highest := max(weights[:steps], default=0.0)) > most:
        raise DataError(
            f"replay_file {path} has weights up to {highest:g}, and max_weight={most:g} would cut "
            "them",
            "Set algorithm.ref_quality_score.max_weight to that of the recorded run.",
        )
    order_of_use = config.algorithm.ref_quality_score.replay_order
    if order_of_use == "recorded":
        return weights[:steps]
    if order_of_use == "mean":
        return (math.fsum(weights[:steps]) / max(1, steps),) * steps
    order = derive_generator(config.trainer.seed, "replayed weights").permutation(steps)
    return tuple(weights[i] for i in order)


def replay_of_seed(config: RefblendConfig, seed: int) -> RefblendConfig:
    """The configuration with ``{seed}`` and ``{partner_seed}`` in ``replay_file`` replaced."""
    quality = config.algorithm.ref_quality_score
    if quality.replay_file is None:
        return config
    file = quality.replay_file.replace("{seed}", str(seed))
    changed = {"replay_file": file.replace("{partner_seed}", str(partner_seed(seed)))}
    algorithm = {"ref_quality_score": quality.model_copy(update=changed)}
    return config.model_copy(update={"algorithm": config.algorithm.model_copy(update=algorithm)})


def partner_seed(seed: int) -> int:
    """The other seed of the pair 1 and 2, 3 and 4, …; 0 is its own."""
    return ((seed - 1) ^ 1) + 1 if seed > 0 else seed


def with_replay(inputs: InputHashes, config: RefblendConfig) -> InputHashes:
    """The inputs with a hash of the replayed weights, not of the whole file with its timings."""
    path = _file_of(config)
    if path is None:
        return inputs
    digest = hashlib.sha256(json.dumps(read_weights(path)).encode()).hexdigest()
    return replace(inputs, data=inputs.data | {str(path): digest})


def _file_of(config: RefblendConfig) -> Path | None:
    quality = config.algorithm.ref_quality_score
    if not quality.enable or quality.strategy != "replay" or quality.replay_file is None:
        return None
    return Path(quality.replay_file)
