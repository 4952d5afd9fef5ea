"""R's text: what its verdicts answer, and which of them carry over."""

from pathlib import Path
from typing import Any

from refblend.embedded.recipe import load_recipe
from refblend.study.design.arms import resolve_arms
from refblend.study.report.beside import beside_facts
from refblend.study.report.questions import by_question
from refblend.study.report.r.study import REPORT, RStudy
from refblend.study.report.registry import Tables
from refblend.study.report.shared import arm_row
from refblend.study.report.verdicts import decided, declared, headline_verdict
from refblend.study.runs.incidents import facts


@REPORT.text
def text(study: RStudy, tables: Tables) -> dict[str, Any]:
    """The variables of the template."""
    inputs, summary = study.inputs, tables["arm_summary"]
    arms = resolve_arms(inputs.experiments, study.scale, inputs.params)
    primary = [row for row in declared(tables["verdicts"]) if row["primary"]]
    baseline = (summary.measure == "test_greedy") & (summary.arm == study.baseline)
    return facts(study.collected) | {
        "experiment": study.experiment,
        "verdicts": decided(tables["verdicts"]),
        "questions": by_question(primary, arms),
        "without_judge": summary[baseline & (summary.n > 0)].to_dict("records"),
        "warm_start": study.warm_start,
        "warm_start_on": study.warm_start_on,
        "beside": beside_facts(inputs, tables["beside"]),
        "outside_task": outside_task(inputs.params / "embedded" / f"{study.scale}.yaml"),
        "arms": [
            arm_row(study.collected, *arm) for arm in study.experiment.arms_of(study.scale).items()
        ],
    }


def outside_task(recipe: Path) -> str | None:
    """The task of reasoning-gym that the sanity set is of; null where it is not one of those."""
    if not recipe.exists():
        return None
    pretrained = load_recipe(recipe).pretrained
    return pretrained.outside_task if pretrained else None


@REPORT.metrics
def metrics(study: RStudy, tables: Tables) -> dict[str, Any]:
    """Headline numbers for ``dvc metrics``: of the first primary contrast."""
    return headline_verdict(study, tables["verdicts"])
