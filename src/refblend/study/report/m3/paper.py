"""What the write-up says beyond M3's own runs: the setting, M2's answers by question, regimes.

A contrast belongs to the question that its arms' configurations pose
(:mod:`refblend.study.report.questions`); no experiment's letter or arm's name is known here.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from refblend.embedded.recipe import EmbeddedConfig, load_recipe
from refblend.files import read_json
from refblend.study.design.arms import resolve_arms
from refblend.study.design.spec import ExperimentSpec, experiments_of
from refblend.study.report.m3.study import M3Study
from refblend.study.report.questions import by_question
from refblend.study.report.readable import listed
from refblend.study.report.registry import read_experiments
from refblend.study.report.verdicts import by_verdict, declared


def ablations(study: M3Study) -> dict[str, Any]:
    """M2's experiments at the scale, and the verdicts on its primary contrasts by question.

    ``experiments`` have name, specification, numbers of arms, seeds and primary contrasts, and what
    M2's table of answers says; ``questions`` are :func:`by_question`; ``limited`` are contrasts of
    a judge without a gain whose reference an oracle beats.
    """
    inputs = study.inputs
    names = tuple(experiments_of("m2", inputs.params, inputs.scale))
    specs = read_experiments(names, inputs.params)
    arms = resolve_arms(specs, inputs.scale, inputs.params)
    rows = [row for row in declared(study.m2_verdicts) if row["primary"]]
    found = by_question(rows, arms)
    beaten = {row["reference"] for row in found["oracle"]["better"]}
    flat = ("worse", "equivalent")
    return {
        "experiments": [described(study, name, spec, rows) for name, spec in specs.items()],
        "questions": found,
        "limited": [
            row
            for row in found["judge"]["rows"]
            if row["reference"] in beaten and row["verdict"] in flat
        ],
    } | by_verdict(rows)


def described(
    study: M3Study, name: str, spec: ExperimentSpec, rows: list[dict[Any, Any]]
) -> dict[str, Any]:
    """What the table of experiments has of one."""
    scale, answers = study.inputs.scale, study.m2_table("answers")
    said = [] if answers is None else answers[answers.experiment == name].to_dict("records")
    return {
        "name": name,
        "spec": spec,
        "arms": len(spec.arms_of(scale)),
        "seeds": listed(map(len, spec.seeds_by_arm(scale).values())),
        "primary": sum(row["experiment"] == name for row in rows),
        "answer": said[0] if said else None,
    }


def setting(study: M3Study) -> dict[str, Any]:
    """Configuration and recipe of the scale, steps of a run, and how the runs of M3 went.

    ``recipe`` is null where models and data are a user's own, ``course`` has each arm's mean of
    some measures.
    """
    inputs = study.inputs
    path = inputs.params / "embedded" / f"{inputs.scale}.yaml"
    recipe: EmbeddedConfig | None = load_recipe(path) if path.exists() else None
    means = study.values.groupby(["arm", "measure"])["value"].mean()
    steps = study.collected.finished["steps"]
    config = study.configs[study.confirmation.baseline]
    score = config.algorithm.ref_quality_score.scoring
    return {
        "config": config,
        "actor": Path(str(config.actor_rollout_ref.model.path)).name,
        "judge": Path(str(score.model_path)).name,
        "recipe": recipe,
        "steps": int(steps.max()) if len(steps) else config.trainer.total_training_steps,
        "course": {arm: part.droplevel("arm").to_dict() for arm, part in means.groupby("arm")},
    }


def judges(results: Path) -> list[dict[Any, Any]]:
    """The judges' quality with the full prompt, as the scoring study measured it, if it did."""
    path = results / "scoring" / "tables" / "judge_quality.csv"
    if not path.exists():
        return []
    table = pd.read_csv(path).reindex(
        columns=["model", "form", "auc", "auc_within", "ece_expected", "valid_rate"]
    )
    return table[table.form == "few_shot"].to_dict("records")


def regimes(study: M3Study) -> list[Mapping[str, Any]]:
    """Records of the recommendations for other regimes, by name."""
    folder = study.overlay.parent / "regimes"
    return [{"name": path.stem} | read_json(path) for path in sorted(folder.glob("*.json"))]
