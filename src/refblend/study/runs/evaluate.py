"""Accuracy of a trained actor on the test set, by the same code as the warm start's."""

from pathlib import Path
from typing import Any

from refblend.errors import StudyError
from refblend.files import read_object
from refblend.study.runs.run_files import bound_to
from refblend.trainer.checkpoint import CheckpointManager, CheckpointRef


def final_checkpoint(run: Path) -> CheckpointRef:
    """The run's last complete checkpoint.

    Raises:
        StudyError: the run has none.
    """
    last = CheckpointManager(run / "checkpoints").latest_valid()
    if last is None:
        raise StudyError(
            f"{run}: no checkpoint to evaluate", "Set trainer.save_freq to -1 or more."
        )
    return last


def evaluate_run(run: str | Path, recipe: str | Path, data: str | Path) -> dict[str, Any]:
    """Greedy and sampled accuracy, entropy and lengths of a run's final actor.

    The report says what it measured, see :func:`refblend.study.runs.run_files.bound_to`. A run that
    failed has no numbers: its report has its status only.
    """
    run = Path(run)
    status = str(_record(run / "summary.json").get("status", "finished"))
    if status == "failed":
        return {"status": status}

    # torch is imported here only: the other study commands start fast.
    from refblend.data.schema import read_rows
    from refblend.data.tokenizer import load_tokenizer
    from refblend.embedded.actor_quality import measure_actor
    from refblend.embedded.architecture import load_model
    from refblend.embedded.recipe import load_recipe

    settings = load_recipe(recipe).evaluation
    try:
        start = Path(_record(run / "config.json")["actor_rollout_ref"]["model"]["path"])
    except (KeyError, TypeError) as error:
        raise StudyError(
            f"{run / 'config.json'}: actor_rollout_ref.model.path is missing",
            "Train the run again.",
        ) from error
    last = final_checkpoint(run)
    quality = measure_actor(
        load_model(last.actor),
        load_tokenizer(start),
        read_rows(data)[: settings.problems],
        samples=1,
        max_new_tokens=settings.max_new_tokens,
        seed=0,
    )
    return {"status": status, "of": bound_to(run, last.step), **quality.as_dict()}


def _record(path: Path) -> dict[str, Any]:
    """What the run wrote there.

    Raises:
        StudyError: it is missing or damaged.
    """
    try:
        return read_object(path)
    except (OSError, ValueError) as error:
        raise StudyError(f"{path} cannot be read ({error})", "Train the run again.") from error
