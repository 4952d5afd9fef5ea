"""Accuracy of a trained actor on the test set, by the same code as the warm start's."""

from pathlib import Path
from typing import Any

from refblend.errors import StudyError
from refblend.files import read_json


def final_actor(run: Path) -> Path:
    """Directory of the actor in the run's last checkpoint.

    Raises:
        StudyError: the run has no checkpoint.
    """
    steps = {
        int(path.name.removeprefix("global_step_")): path
        for path in run.glob("checkpoints/global_step_*")
        if path.name.removeprefix("global_step_").isdigit()
    }
    if not steps:
        raise StudyError(
            f"{run}: no checkpoint to evaluate", "Set trainer.save_freq to -1 or more."
        )
    return steps[max(steps)] / "actor"


def evaluate_run(run: str | Path, recipe: str | Path, data: str | Path) -> dict[str, Any]:
    """Greedy and sampled accuracy, entropy and lengths of a run's final actor.

    A run that did not finish has no numbers: its report holds the status alone.
    """
    run = Path(run)
    status = str(read_json(run / "summary.json").get("status", "finished"))
    if status == "failed":
        return {"status": status}

    # torch is imported here only: the other study commands start fast.
    from refblend.data.schema import read_rows
    from refblend.data.tokenizer import load_tokenizer
    from refblend.models.architecture import load_model
    from refblend.models.quality import measure_actor
    from refblend.models.recipe import load_recipe

    settings = load_recipe(recipe).evaluation
    start = read_json(run / "config.json")["actor_rollout_ref"]["model"]["path"]
    quality = measure_actor(
        load_model(final_actor(run)),
        load_tokenizer(Path(start)),
        read_rows(data)[: settings.problems],
        samples=1,
        max_new_tokens=settings.max_new_tokens,
        seed=0,
    )
    return {"status": status, **quality.as_dict()}
