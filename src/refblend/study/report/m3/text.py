"""M3's report: what is recommended, how sure that is, and what fresh seeds say of it.

The answer is the verdict on the primary contrasts that the experiment declares: better, worse,
equivalent or undecided, as everywhere (:mod:`refblend.study.report.verdicts`).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from refblend.config.root import RefblendConfig
from refblend.files import read_json, sha256_file
from refblend.ppo.weights import STRATEGIES
from refblend.study.design.spec import OVERLAY
from refblend.study.report.beside import beside_facts
from refblend.study.report.m3.paper import ablations, judges, regimes, setting
from refblend.study.report.m3.study import REPORT, M3Study
from refblend.study.report.registry import Tables
from refblend.study.report.shared import arm_row
from refblend.study.report.verdicts import declared, headline_verdict
from refblend.study.runs.incidents import facts

PLACEMENTS = {
    "per_token": "Q_t = q on every response token",
    "terminal": "Q_t = q on the last response token, 0 before",
    "per_token_mean": "Q_t = q/L on every response token",
}


@REPORT.text
def text(study: M3Study, tables: Tables) -> dict[str, Any]:
    """The variables of the template."""
    roles, stated = study.confirmation, declared(tables["verdicts"])
    results = study.inputs.results
    return (
        facts(study.collected)
        | setting(study)
        | {
            "experiment": roles.experiment,
            "roles": roles,
            "blend": blend_text(study.recommended) if study.blends else None,
            "challengers": challengers(study),
            "primary": [row for row in stated if row["primary"]],
            "shrunk": shrinkage(study),
            "arms": [
                arm_row(study.collected, arm, overrides)
                | {"blend": blend_text(study.configs[arm]) + outside_the_blend(overrides)}
                for arm, overrides in roles.experiment.arms_of(study.inputs.scale).items()
            ],
            "record": study.record,
            "overlay": study.overlay.read_text(encoding="utf-8").rstrip(),
            "overlay_name": study.overlay.name,
            "overlay_hash": sha256_file(study.overlay)[:16],
            "m1": m1_text(results / "m1"),
            "stated": stated,
            "m2": ablations(study),
            "judged": judges(results),
            "other_regimes": regimes(study),
            "beside": beside_facts(study.inputs, tables["beside"]),
        }
    )


def challengers(study: M3Study) -> dict[str, dict[str, Any]]:
    """Of each challenger: its regime and baseline, and what M2 recommends there.

    ``confirmed_by`` are the verdicts against the baseline that confirm the recommendation.
    """
    roles, others = study.confirmation, {each["name"]: each for each in regimes(study)}
    found = {}
    for arm, regime in roles.challengers.items():
        record = study.record if regime is None else others[regime]
        found[arm] = {
            "regime": regime,
            "against": roles.experiment.baseline_of(arm),
            "record": record,
            "blend": blend_text(study.configs[arm]),
            "blends": study.configs[arm].algorithm.ref_quality_score.enable,
            "confirmed_by": ("better",) if record["enable"] else ("worse", "equivalent"),
        }
    return found


def m1_text(folder: Path) -> str:
    """One sentence on M1 from its ``metrics.json``; says so where there is none."""
    path = folder / "metrics.json"
    if not path.exists():
        return "M1 has no record here."
    numbers = read_json(path)
    finished = numbers["runs"] - numbers["missing"]
    text = f"{finished} of {numbers['runs']} runs finished with {numbers['incidents']} incidents"
    rules = pd.read_csv(folder / "tables" / "verdict.csv").holds
    return f"{text}; {int((rules == 'yes').sum())} of {len(rules)} rules of stability were kept."


@REPORT.metrics
def metrics(study: M3Study, tables: Tables) -> dict[str, Any]:
    """Headline numbers for ``dvc metrics``: of the first primary contrast."""
    return headline_verdict(study, tables["verdicts"])


def blend_text(config: RefblendConfig) -> str:
    """A configuration's blend with its formula and the values of its parameters."""
    blend = config.algorithm.ref_quality_score
    if not blend.enable:
        return "no blend, w = 0"
    strategy = STRATEGIES[blend.strategy]
    values = ", ".join(f"`{name}` {getattr(blend, name)}" for name in strategy.parameters)
    return (
        f"strategy `{strategy.name}`, {strategy.formula}, with {values}; placement "
        f"`{blend.placement}`, {PLACEMENTS[blend.placement]}"
    )


def outside_the_blend(overrides: Mapping[str, Any]) -> str:
    """The other settings in which an arm differs from the scale's, to stand behind its blend."""
    return "".join(
        f"; `{key}` {value}"
        for key, value in sorted(overrides.items())
        if key != OVERLAY and not key.startswith("algorithm.ref_quality_score.")
    )


def shrinkage(study: M3Study) -> dict[str, Any] | None:
    """The chosen blend's advantage in M2, and the smaller one that remains on fresh seeds.

    By the measure of the choice; null unless a blend was chosen and its advantage shrank.
    """
    chosen = next((row for row in study.record["candidates"] if row["recommended"]), None)
    fresh = study.late_difference()
    if not study.blends or chosen is None or fresh.n == 0 or fresh.estimate >= chosen["diff"]:
        return None
    return {"before": chosen["diff"], "fresh": fresh}
