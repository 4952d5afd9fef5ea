"""The blend in verl 0.9.1: its synchronous V1 trainer with R' = (1 − w)·R + w·Q before the KL.

``examples/verl/refblend.yaml`` is the configuration to copy; its two parts are here:

* :func:`compute_score` is the ``reward.custom_reward_function``. It gives verl's own rule reward R
  as the score, and the judge's score q of the same response beside it.
* :class:`BlendedPPOTrainer`, ``trainer.v1.trainer_mode: refblend``, reads both back before the
  advantages, takes w from the entropy of verl's old-log-prob stage, and gives the blended reward to
  verl's own stage, which subtracts the KL penalty and computes the advantages.

``trainer.v1.refblend`` has the keys of refblend's ``algorithm.ref_quality_score``. verl imports
this module, and with that registers the trainer, if ``VERL_USE_EXTERNAL_MODULES`` names it.

Metrics: ``critic/score/*`` stays the rule reward, ``critic/rewards/*`` is what the advantages see;
``actor/ref_quality/*`` are refblend's. verl scores one response at a time, so a judge behind HTTP
is asked concurrently; a judge in the reward workers' processes is asked one response after another.
"""

import functools
import json
import threading
from collections.abc import Callable, Mapping
from typing import Any

import torch
import transfer_queue as tq
from omegaconf import OmegaConf, open_dict
from tensordict import TensorDict
from torch import Tensor
from verl.protocol import DataProto
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils.reward_score import default_compute_score
from verl.workers.utils.padding import response_to_nested

from refblend.config.algorithm import RefQualityScoreConfig
from refblend.config.loading import checked
from refblend.errors import ConfigError, DataError
from refblend.lookup import get_strategy, load_function
from refblend.ppo.blending import blend_rewards, compute_avg_response_entropy, expand_quality
from refblend.ppo.metrics import roc_auc
from refblend.ppo.weights import WeightParams, weight_for
from refblend.scoring.judge import OF_TRAINING, Judge, check_judge, start_judge
from refblend.scoring.result import InvalidRateGuard, JudgeResult, score_metrics

SECTION = "trainer.v1.refblend"
USED = {"on_failure", "max_invalid_rate", "invalid_window"}
"""Those keys of training that this trainer has, too."""
PREFIX = "actor/ref_quality"


def read_settings(section: Any) -> RefQualityScoreConfig:
    """``trainer.v1.refblend``; ConfigError if it is not acceptable or needs our own trainer."""
    tree = (
        OmegaConf.to_container(section, resolve=True) if OmegaConf.is_config(section) else section
    )
    settings = checked(RefQualityScoreConfig, tree or {}, f"{SECTION}: ")
    own = {
        "strategy=replay": settings.strategy == "replay",
        f"method={settings.method}": settings.method != "blend",
        "entropy_level=response": settings.entropy_level == "response",
        "groups=mixed": settings.groups == "mixed",
        "weight_per_length=true": settings.weight_per_length,
        "entropy_high_threshold=auto": settings.entropy_high_threshold == "auto",
    }
    usual = type(settings.scoring)()
    for key in OF_TRAINING:
        value = getattr(settings.scoring, key)
        own[f"scoring.{key}={value}"] = key not in USED and value != getattr(usual, key)
    for setting, given in own.items():
        if given:
            raise ConfigError(
                f"{SECTION}.{setting}: only refblend's own trainer has it",
                "Choose another value, or train with refblend.",
            )
    return settings


# --- the reward function ---------------------------------------------------------------------


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: Mapping[str, Any] | None = None,
    *,
    judge: Mapping[str, Any],
    rule: str | None = None,
    **others: Any,
) -> dict[str, Any]:
    """verl's reward of one response: the rule's score, and the judge's beside it.

    Args:
        data_source: of the row, which chooses verl's rule.
        solution_str: the response.
        ground_truth: the gold answer.
        extra_info: of the row; ``question`` is what the judge reads.
        judge: the section ``trainer.v1.refblend``, from ``reward_kwargs``.
        rule: a rule of one's own as ``module:function``; None: verl's for the data source.
        others: what verl passes besides.

    Returns:
        What the rule gives, with ``judge_score``, ``judge_valid`` and ``judge_path`` if the blend
        is enabled.

    Raises:
        DataError: the row has no question, and the judge would read it.
    """
    extra = extra_info or {}
    function: Callable[..., Any] = (
        default_compute_score if rule is None else load_function(rule, "reward_kwargs.rule")
    )
    settings = read_settings(judge)
    question = extra.get("question") if settings.enable else ""
    if not isinstance(question, str):
        raise DataError(
            f"a row of {data_source} (index {extra.get('index', 'unknown')}) has no text in "
            "extra_info.question, which the judge reads",
            "Add it to the data.",
        )
    found = function(
        data_source=data_source,
        solution_str=solution_str,
        ground_truth=ground_truth,
        extra_info=extra_info,
    )
    scores = dict(found) if isinstance(found, Mapping) else {"score": found, "acc": found}
    if not settings.enable:
        return scores
    result = _ask(settings, question, solution_str)
    return scores | {
        "judge_score": result.score,
        "judge_valid": float(result.valid),
        "judge_path": result.path,
    }


def _ask(settings: RefQualityScoreConfig, question: str, response: str) -> JudgeResult:
    with _OPENING:
        judge = _judge_of(settings.model_dump_json())
    if settings.scoring.kind == "http":
        return judge.score([question], [response])[0]
    with _ONE_AT_A_TIME:
        return judge.score([question], [response])[0]


_ONE_AT_A_TIME = threading.Lock()
"""verl calls a reward function from several threads; an engine serves one."""
_OPENING = threading.Lock()


@functools.lru_cache(maxsize=1)
def _judge_of(settings: str) -> Judge:
    """The judge of this process."""
    config = RefQualityScoreConfig.model_validate(json.loads(settings))
    check_judge(config)
    return start_judge(config)


# --- the trainer -----------------------------------------------------------------------------


@register_trainer("refblend")
class BlendedPPOTrainer(PPOTrainerSync):
    """verl's synchronous trainer whose rewards are blended with the judge's score.

    Raises:
        ConfigError: ``trainer.v1.refblend`` is not acceptable, or the rollout correction's bypass
            mode is on, in which verl computes no entropy.
    """

    def __init__(self, config: Any) -> None:
        self.settings = read_settings(config.trainer.v1.get("refblend"))
        correction = config.algorithm.get("rollout_correction")
        if self.settings.enable and correction and correction.get("bypass_mode", False):
            raise ConfigError(
                "algorithm.rollout_correction.bypass_mode=true skips the pass that gives the "
                f"entropy, which {SECTION} reads",
                "Set it to false.",
            )
        scoring = self.settings.scoring
        self.guard = InvalidRateGuard(scoring.max_invalid_rate, scoring.invalid_window)
        with open_dict(config):  # verl asks for the mode by name: everything else is as in sync
            config.trainer.v1.trainer_mode = "sync"
        super().__init__(config)

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        """verl's stage on the blended rewards; ``rm_scores`` is the rule reward again after it."""
        if not self.settings.enable:
            return super()._compute_advantage(batch, metrics)
        data = tq.kv_batch_get(
            keys=batch.keys,
            partition_id=batch.partition_id,
            select_fields=["response_mask", "rm_scores", "entropy", "extra_fields"],
        )
        lengths, rule = data["response_mask"], data["rm_scores"]
        extra = data.pop("extra_fields").tolist()
        padded = DataProto(batch=data.to_padded_tensor()).batch
        real = [not tag.get("is_padding", False) for tag in batch.tags]
        blended = self._blend(padded, [_judged(fields) for fields in extra], real, metrics)
        nested = response_to_nested(blended, lengths)
        self._put(batch, rm_scores=nested)
        batch = super()._compute_advantage(batch, metrics)
        restored = {"rm_scores": rule}
        if not self.config.algorithm.use_kl_in_reward:  # else verl has written what is left of it
            restored["token_level_rewards"] = nested
        return self._put(batch, **restored)

    def _blend(
        self,
        padded: Any,
        judged: list[tuple[JudgeResult, float]],
        real: list[bool],
        metrics: dict[str, Any],
    ) -> Tensor:
        """R' (B, T); rows that verl added to fill its batches count nowhere."""
        settings, mask = self.settings, padded["response_mask"]
        # verl puts it on the last position, which may be a tool's and not the model's.
        rule = expand_quality(padded["rm_scores"].sum(dim=-1), mask, "terminal")
        kept = torch.tensor(real)
        entropy = float(compute_avg_response_entropy(padded["entropy"][kept], mask[kept]))
        params = WeightParams.of(settings)
        total = max(self.total_training_steps, self.global_steps)
        weight = weight_for(
            get_strategy(settings.strategy), entropy, self.global_steps, total, params
        )
        results = [result for (result, _), is_real in zip(judged, real, strict=True) if is_real]
        right = [label for (_, label), is_real in zip(judged, real, strict=True) if is_real]
        self.guard.update(results)
        metrics.update(_metrics(results, right), **{f"{PREFIX}/weight": weight})
        metrics[f"{PREFIX}/avg_entropy"] = entropy
        scores = torch.tensor([result.score for result, _ in judged])
        weights: float | Tensor = weight
        if settings.scoring.on_failure == "rule_reward":
            weights = weight * torch.tensor([float(result.valid) for result, _ in judged])
        quality = expand_quality(scores, mask, settings.placement)
        return blend_rewards(rule, quality, mask, weights)

    @staticmethod
    def _put(batch: Any, **fields: Tensor) -> Any:
        content = TensorDict(fields, batch_size=len(batch))
        return tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=content)


def _judged(extra_fields: Mapping[str, Any]) -> tuple[JudgeResult, float]:
    """What :func:`compute_score` noted of a response: the judge's result and the rule's verdict."""
    info = extra_fields.get("reward_extra_info") or {}
    if "judge_score" not in info:
        raise ConfigError(
            "the rewards have no judge_score",
            "Name refblend.integrations.verl's compute_score as reward.custom_reward_function.",
        )
    result = JudgeResult(info["judge_score"], bool(info["judge_valid"]), info["judge_path"])
    return result, float(info.get("acc", info["score"]))


def _metrics(results: list[JudgeResult], right: list[float]) -> dict[str, float]:
    """refblend's metrics of the judge that need nothing but scores."""
    found = score_metrics(results)
    for name in ("compact_rate", "clipped_rate", "new_tokens_mean"):
        del found[f"{PREFIX}/{name}"]
    valid = [i for i, result in enumerate(results) if result.valid]
    auc = roc_auc([results[i].score for i in valid], torch.tensor([right[i] for i in valid]))
    return found if auc is None else found | {f"{PREFIX}/auc": auc}
