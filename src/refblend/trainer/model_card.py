"""The model card of a checkpoint: what trained it, on what, with which scores."""

from collections.abc import Mapping
from pathlib import PurePath

import yaml

import refblend
from refblend.config import RefblendConfig
from refblend.trainer.console import accuracies


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
