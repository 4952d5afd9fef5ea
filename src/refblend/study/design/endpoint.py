"""Whether the runs of an experiment will have the measure that it is decided by."""

from pathlib import Path

from refblend.config.root import RefblendConfig
from refblend.errors import StudyError
from refblend.study.design.measures import MEASURES
from refblend.study.design.spec import ExperimentSpec

OF_THE_JUDGE = ("judge_auc", "nonzero_rate", "valid_rate", "judge_seconds")


def check_endpoint(spec: ExperimentSpec, arm: str, config: RefblendConfig, path: Path) -> None:
    """Refuse an experiment, before any training, whose report would be empty.

    Args:
        spec: the experiment.
        arm: one of its arms.
        config: the arm's resolved configuration.
        path: the experiment's file, for messages.

    Raises:
        StudyError: the endpoint is not a measure, has no better direction, or the arm lacks it.
    """
    names = [spec.endpoint, *map(spec.endpoint_of, spec.contrasts)]
    for endpoint in dict.fromkeys(names):
        _check(endpoint, spec, arm, config, path)


def _check(
    endpoint: str, spec: ExperimentSpec, arm: str, config: RefblendConfig, path: Path
) -> None:
    """Refuse one measure."""
    measure = MEASURES.get(endpoint)
    ordered = [name for name, known in MEASURES.items() if known.higher_is_better is not None]
    if measure is None or measure.higher_is_better is None:
        raise StudyError(
            f"{path}: endpoint: {endpoint} is not a measure that can be better or worse",
            f"Choose one of {', '.join(ordered)}.",
        )
    if spec.milestone == "m3" and endpoint == spec.endpoint and not measure.higher_is_better:
        raise StudyError(
            f"{path}: endpoint: of {endpoint} less is better, which M3 cannot confirm",
            "Choose an accuracy or a return.",
        )
    lacking = _lacking(endpoint, config)
    if lacking:
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
