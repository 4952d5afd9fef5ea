"""What the write-up says beyond M3's own runs: the setting, M2's answers by question, regimes.

No experiment's letter or arm's name is known here.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from refblend.embedded.recipe import EmbeddedConfig, load_recipe
from refblend.files import read_json
from refblend.study.design.arms import Arm, resolve_arms
from refblend.study.design.spec import ExperimentSpec
from refblend.study.recommend.candidates import regimes_at
from refblend.study.report.m3.answers import answered
from refblend.study.report.m3.study import M3Study
from refblend.study.report.questions import follows_entropy
from refblend.study.report.readable import listed
from refblend.study.report.shared import arm_and_start
from refblend.study.report.verdicts import by_verdict, declared
from refblend.study.runs.curves import validation_frame

EXACT = 1e-6
"""Numbers closer than this are equal."""


def ablations(study: M3Study, own: list[dict[Any, Any]]) -> dict[str, Any]:
    """M2's experiments at the scale, and the verdicts on its primary contrasts by question.

    ``own`` are M3's. ``experiments`` have name, specification, numbers of arms, seeds and primary
    contrasts, and what M2's table of answers says; ``gae`` is whether an arm was trained with it;
    ``ranges`` are :func:`weight_ranges`, ``same`` is :func:`one_value`. The rest is
    :func:`..answers.answered`.
    """
    inputs = study.inputs
    specs = study.m2_experiments
    arms = resolve_arms(specs, inputs.scale, inputs.params)
    rows = [row for row in declared(study.m2_verdicts) if row["primary"]]
    return (
        {
            "experiments": [described(study, name, spec, rows) for name, spec in specs.items()],
            "ranges": weight_ranges(study, arms),
            "same": one_value(arms),
            "gae": any(arms[arm].estimator == "gae" for arm in study.m2_arms),
            "margins": sorted({f"{row['margin']:g}" for row in rows}),
        }
        | by_verdict(rows)
        | answered(study, rows, own, arms)
    )


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

    ``recipe`` is null where models and data are a user's own, ``validated`` is
    :func:`validation_problems`, ``course`` has each arm's mean of some measures.
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
        "validated": validation_problems(study, recipe.data.validation_rows) if recipe else None,
        "steps": int(steps.max()) if len(steps) else config.trainer.total_training_steps,
        "course": {arm: part.droplevel("arm").to_dict() for arm, part in means.groupby("arm")},
    }


def judges(results: Path) -> list[dict[Any, Any]]:
    """The judges' quality with the full prompt, as the scoring study measured it, if it did: all of
    the expected score, the one that is blended."""
    path = results / "scoring" / "tables" / "judge_quality.csv"
    if not path.exists():
        return []
    table = pd.read_csv(path).reindex(
        columns=["model", "form", "auc_expected", "auc_within", "ece_expected", "valid_rate"]
    )
    return table[table.form == "few_shot"].to_dict("records")


def regimes(study: M3Study) -> list[Mapping[str, Any]]:
    """Records of the recommendations for other regimes, by name."""
    folder = study.overlay.parent / "regimes"
    paths = sorted(folder.glob("*.json"))
    return [{"name": path.stem} | read_json(path) for path in paths]


def unrecommended(study: M3Study) -> list[str]:
    """Regimes that M2's experiments run at the scale, and that have no recommendation yet."""
    made = {each["name"] for each in regimes(study)}
    run = {name for spec in study.m2_experiments.values() for name in spec.regimes}
    known = regimes_at(study.inputs.scale, study.inputs.params)
    return [name for name in known if name in run - made]


def weight_ranges(study: M3Study, arms: Mapping[str, Arm]) -> list[dict[str, Any]]:
    """Over which part of 0 to its largest weight the weight of an arm moved in M2's runs, by the
    means over seeds: of arms whose weight follows the entropy, with the real judge, and that
    primary contrasts compare.

    An arm whose runs began from several warm starts has a row for each ``start``, which is empty
    otherwise.
    """
    path = study.inputs.results / "m2" / "plots" / "weight_entropy.csv"
    if not path.exists():
        return []
    primary = study.m2_verdicts[study.m2_verdicts.primary]
    compared = dict.fromkeys([*primary.treated, *primary.reference])
    wanted = [
        name
        for name in compared
        if name in arms and arms[name].control == "none" and follows_entropy(arms[name])
    ]
    table = pd.read_csv(path)
    curves = [
        (*arm_and_start(str(curve)), float(weight.min()), float(weight.max()))
        for curve, weight in table.groupby("arm", sort=False)["weight"]
    ]
    return [
        {"arm": arm, "start": start, "low": low, "high": high, "share": (high - low) / most}
        for name in wanted
        for most in [arms[name].config.algorithm.ref_quality_score.max_weight]
        for arm, start, low, high in curves
        if arm == name and most > 0
    ]


def one_value(arms: Mapping[str, Arm]) -> dict[str, float]:
    """Learning rate and temperature, each as far as all arms train with the same one."""
    seen = {
        "learning rate": {arm.config.actor_rollout_ref.actor.optim.lr for arm in arms.values()},
        "temperature": {arm.config.actor_rollout_ref.rollout.temperature for arm in arms.values()},
    }
    return {name: values.pop() for name, values in seen.items() if len(values) == 1}


def validation_problems(study: M3Study, at_most: int) -> int:
    """How many problems the greedy validation accuracies are shares of: the largest such number
    that is not above what the recipe makes, as duplicates are left out of it."""
    frame = validation_frame(study.metrics)
    shares = frame[frame.measure == "acc"]["value"].to_numpy(dtype="float64")
    counts = (
        count
        for count in range(at_most, 1, -1)
        if np.abs(shares * count - np.round(shares * count)).max(initial=0.0) < EXACT
    )
    return next(counts, at_most)
