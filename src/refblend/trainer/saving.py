"""What a run writes: checkpoints with state and model card, its metrics, and its rollouts."""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

import yaml

import refblend
from refblend.config import RefblendConfig
from refblend.data.dataset import PromptSampler
from refblend.files import write_text
from refblend.ppo.kl import KLController
from refblend.ppo.masking import masked_mean
from refblend.scoring.result import InvalidRateGuard, JudgeResult
from refblend.secret import mask
from refblend.trainer.batch import Experience, PromptBatch, Rollout
from refblend.trainer.checkpoint import CheckpointManager, CheckpointRef, write_state
from refblend.trainer.console import accuracies, validation_accuracy
from refblend.trainer.guards import DriftGuard
from refblend.trainer.shaping import Blended
from refblend.trainer.trackers import Trackers
from refblend.trainer.tracking import MetricsLog, encode_line
from refblend.workers.worker_set import WorkerSet


@dataclass
class RunState:
    """Everything that changes over a run and is neither a weight nor an optimiser's moment."""

    sampler: PromptSampler
    kl_controller: KLController
    drift: DriftGuard
    invalid_window: InvalidRateGuard
    lost_updates: dict[str, int] = field(default_factory=dict)
    """How many updates each role has lost in a row."""
    step: int = 0
    """The last finished step."""
    initial_entropy: float | None = None
    """Average entropy of the first batch, in nats."""

    @classmethod
    def initial(cls, config: RefblendConfig, num_prompts: int) -> "RunState":
        """The state before the first step; DataError if there is no whole batch of prompts."""
        data, kl = config.data, config.algorithm.kl_ctrl
        scoring = config.algorithm.ref_quality_score.scoring
        target = kl.target_kl if kl.type == "adaptive" else None
        return cls(
            PromptSampler(num_prompts, data.train_batch_size, data.shuffle, config.trainer.seed),
            KLController(kl.kl_coef, target, kl.horizon),
            DriftGuard(config.trainer.drift_guard),
            InvalidRateGuard(scoring.max_invalid_rate, scoring.invalid_window),
        )

    def _parts(self) -> dict[str, Any]:
        """Whatever has a state of its own."""
        return {name: part for name, part in vars(self).items() if hasattr(part, "state_dict")}

    def state_dict(self) -> dict[str, Any]:
        """JSON values, independent of what happens later."""
        parts = {name: part.state_dict() for name, part in self._parts().items()}
        own = {"step": self.step, "initial_entropy": self.initial_entropy}
        return own | {"lost_updates": dict(self.lost_updates)} | parts

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore :meth:`state_dict`."""
        self.step = int(state["step"])
        self.initial_entropy = state.get("initial_entropy")
        self.lost_updates = dict(state["lost_updates"])
        for name, part in self._parts().items():
            part.load_state_dict(state[name])


logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunOutputs:
    """The outputs of one run, which the trainer fills and does not own."""

    checkpoints: CheckpointManager
    log: MetricsLog
    """The canonical metrics."""
    trackers: Trackers
    """Views of the metrics, and messages for the user."""

    def write(self, step: int, metrics: dict[str, float]) -> None:
        """Record the metrics of a step, and show them."""
        non_finite = self.log.append(step, metrics)
        if non_finite:
            logger.warning("step %d: not finite, recorded as null: %s", step, ", ".join(non_finite))
        self.trackers.log(step, metrics)


def snapshot(state: RunState, metrics: dict[str, float]) -> dict[str, Any]:
    """What the last finished step leaves besides weights; ``record`` is its line of metrics."""
    return state.state_dict() | {"record": encode_line(state.step, metrics)}


def save(
    outputs: RunOutputs,
    workers: WorkerSet,
    tokenizer: Any,
    config: RefblendConfig,
    state: dict[str, Any],
) -> None:
    """Write a checkpoint of the workers' present weights and of a snapshot, atomically."""
    metrics = json.loads(state["record"])
    with outputs.checkpoints.staging(state["step"]) as staged:
        workers.save(staged)
        tokenizer.save_pretrained(staged / "actor")
        write_text(staged / "actor" / "README.md", model_card(config, metrics))
        write_state(staged, state, metric=validation_accuracy(metrics))


def model_card(config: RefblendConfig, metrics: Mapping[str, float | None]) -> str:
    """README.md of a checkpoint's actor; it shows file names but no paths."""
    algorithm, quality = config.algorithm, config.algorithm.ref_quality_score
    base = PurePath(config.actor_rollout_ref.model.path).name
    data = ", ".join(PurePath(path).name for path in config.data.train_files)
    estimator = f"PPO with the advantage estimator `{algorithm.adv_estimator}`"
    blend = "The reward is the rule reward alone."
    if quality.enable:
        scoring = quality.scoring
        path = scoring.http.model if scoring.kind == "http" else scoring.model_path
        judge = scoring.kind if ":" in scoring.kind else PurePath(path or "").name
        blend = (
            f"The score of the judge `{judge}` was blended into the reward: strategy "
            f"`{quality.strategy}`, method `{quality.method}`, placement `{quality.placement}`, "
            f"maximum weight {quality.max_weight:g}."
        )
    scores = [
        f"| {source} | {value:.3f} |"
        for name, source in accuracies(metrics).items()
        if (value := metrics[name]) is not None
    ]
    table = ["", "| validation | greedy accuracy |", "|---|--:|", *scores] if scores else []
    head = {"library_name": "transformers", "pipeline_tag": "text-generation"}
    front = yaml.safe_dump(head | {"tags": ["refblend", "ppo"]}, sort_keys=False)
    lines = [
        f"---\n{front}---",
        f"# {base}, step {int(metrics['step'] or 0)}",
        "",
        f"Trained by refblend {refblend.__version__} from `{base}` on {data}: {estimator}, seed "
        f"{config.trainer.seed}. {blend}",
        *table,
        "",
        "Every setting is in `config.json` of the run, every number of every step in its "
        "`metrics.jsonl`. The model was made to study rewards. Measure it before you use it.",
    ]
    return "\n".join(lines) + "\n"


def restore(
    outputs: RunOutputs, workers: WorkerSet, state: RunState, start: CheckpointRef | None
) -> None:
    """Continue from a checkpoint, or at step 0 if None; what was recorded later is removed."""
    begun = start.step if start else 0
    if start is None:
        outputs.log.truncate_after(-1)
    else:
        saved = outputs.checkpoints.load_state(start)
        state.load_state_dict(saved)
        workers.load(start.path)
        workers.push_weights(version=state.step)
        outputs.trackers.message(f"resumed from step {state.step}")
        outputs.log.truncate_after(state.step)
        outputs.log.complete(state.step, saved["record"])
    # Responses of later steps: another branch need not dump at the same ones.
    for path in (outputs.log.path.parent / "rollouts").glob("*.jsonl"):
        if path.stem.isdecimal() and int(path.stem) > begun:
            path.unlink()


JUDGED = ("score", "valid", "path", "raw")
"""What ``rollouts/<step>.jsonl`` has of a judge's result, as ``judge_score`` and so on."""


def write_rollouts(
    path: Path,
    step: int,
    prompts: PromptBatch,
    rollout: Rollout,
    experience: Experience,
    blended: Blended,
) -> None:
    """Write the file atomically, secrets masked; without a judge or a blend its fields are null."""
    judged: Sequence[JudgeResult | None] = experience.quality or [None] * len(rollout.texts)
    entropies = masked_mean(experience.entropy, rollout.response_mask, dim=-1).tolist()
    lines = [
        {
            "step": step,
            "uid": prompts.uids[i],
            "sample": prompts.sample_index[i],
            "question": prompts.rows[i].question,
            "ground_truth": prompts.rows[i].ground_truth,
            "response": rollout.texts[i],
            "reward": float(experience.rule[i]),
            "acc": float(experience.accuracy[i]),
            "length": rollout.sequences.response_lengths[i],
            "entropy": entropies[i],
            **{f"judge_{key}": getattr(result, key, None) for key in JUDGED},
            "quality": None if blended.quality is None else float(blended.quality[i]),
            "weight": None if blended.weights is None else float(blended.weights[i]),
            "blended": float(blended.rewards[i].sum()),
        }
        for i, result in enumerate(judged)
    ]
    shown = [{k: mask(v) if isinstance(v, str) else v for k, v in line.items()} for line in lines]
    text = "\n".join(json.dumps(line, ensure_ascii=False) for line in shown)
    write_text(path, text + "\n")
