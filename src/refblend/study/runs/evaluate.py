"""Accuracy of a trained actor on the test set, by the same code as the warm start's."""

from pathlib import Path
from typing import Any

from refblend.errors import StudyError
from refblend.files import read_object
from refblend.trainer.checkpoint import CheckpointManager


def final_actor(run: Path) -> Path:
    """Directory of the actor in the run's last complete checkpoint.

    Raises:
        StudyError: the run has none.
    """
    last = CheckpointManager(run / "checkpoints").latest_valid()
    if last is None:
        raise StudyError(
            f"{run}: no checkpoint to evaluate", "Set trainer.save_freq to -1 or more."
        )
    return last.actor


def evaluate_run(run: str | Path, recipe: str | Path, data: str | Path) -> dict[str, Any]:
    """Greedy and sampled accuracy, entropy and lengths of a run's final actor.

    A run that did not finish has no numbers: its report contains only the status.
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
    quality = measure_actor(
        load_model(final_actor(run)),
        load_tokenizer(start),
        read_rows(data)[: settings.problems],
        samples=1,
        max_new_tokens=settings.max_new_tokens,
        seed=0,
    )
    return {"status": status, **quality.as_dict()}


def _record(path: Path) -> dict[str, Any]:
    """What the run wrote there.

    Raises:
        StudyError: it is missing or damaged.
    """
    try:
        return read_object(path)
    except (OSError, ValueError) as error:
        raise StudyError(f"{path} cannot be read ({error})", "Train the run again.") from error
