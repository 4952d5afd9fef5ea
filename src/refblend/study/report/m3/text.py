"""M3's report: what is recommended, how sure that is, and what fresh seeds say of it.

The answer is the verdict on the primary contrasts that the experiment declares: better, worse,
equivalent or undecided, as everywhere (:mod:`refblend.study.report.verdicts`).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from refblend.files import read_json, sha256_file
from refblend.study.design.blocks import seed_ranges
from refblend.study.report.beside import beside_facts
from refblend.study.report.m3.arms import blend_text, outside_the_blend, rule_reward
from refblend.study.report.m3.paper import ablations, judges, regimes, setting, unrecommended
from refblend.study.report.m3.starts import starts
from refblend.study.report.m3.study import REPORT, M3Study
from refblend.study.report.registry import Tables
from refblend.study.report.shared import arm_row
from refblend.study.report.speed import speed_labels
from refblend.study.report.verdicts import declared, headline_verdict
from refblend.study.runs.incidents import facts


@REPORT.text
def text(study: M3Study, tables: Tables) -> dict[str, Any]:
    """The variables of the template."""
    roles, stated = study.confirmation, declared(tables["verdicts"])
    results, inputs = study.inputs.results, study.inputs
    usual, tested = study.configs[roles.baseline], challengers(study)
    primary = [row for row in stated if row["primary"]]
    return (
        facts(study.collected)
        | setting(study)
        | {
            "experiment": roles.experiment,
            "roles": roles,
            "blend": blend_text(study.recommended) if study.blends else None,
            "challengers": tested,
            "primary": primary,
            "fresh_seeds": seed_ranges(study.seeds),
            "chosen_seeds": seed_ranges(study.record["seeds"]),
            "speed": tables["speed"].to_dict("records"),
            "speed_declared": bool(speed_labels(roles.experiment)),
            "advantages": advantages(study, tested),
            "arms": [
                arm_row(study.collected, arm, overrides)
                | {"blend": blend_text(study.configs[arm], usual) + outside_the_blend(overrides)}
                for arm, overrides in roles.experiment.arms_of(inputs.scale).items()
            ],
            "record": study.record,
            "overlay_name": study.overlay.name,
            "overlay_hash": sha256_file(study.overlay)[:16],
            "m1": m1_text(results / "m1"),
            "stated": stated,
            "m2": ablations(study, primary),
            "starts": starts(study),
            "reward": rule_reward(usual),
            "calibrated": (inputs.params / "calibration" / f"{inputs.scale}.yaml").exists(),
            "unrecommended": unrecommended(study),
            "dropped": reasons(tables["dropped"]),
            "judged": judges(results),
            "other_regimes": regimes(study),
            "beside": beside_facts(inputs, tables["beside"]),
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
            "blend": blend_text(study.configs[arm], study.configs[roles.baseline]),
            "blends": study.configs[arm].algorithm.ref_quality_score.enable,
            "confirmed_by": ("better",) if record["enable"] else ("worse", "equivalent"),
        }
    return found


def reasons(dropped: pd.DataFrame) -> list[tuple[str, list[str]]]:
    """Why arms were not candidates, each reason with its arms, from the one with the most on."""
    groups = dropped.groupby("reason", sort=False)["arm"].agg(list)
    return sorted(groups.items(), key=lambda group: -len(group[1]))


def m1_text(folder: Path) -> str:
    """One sentence on M1 from its ``metrics.json``; says so where there is none."""
    path = folder / "metrics.json"
    if not path.exists():
        return "M1 has no record here."
    numbers = read_json(path)
    finished = numbers["runs"] - numbers["missing"]
    text = f"{finished} of {numbers['runs']} runs finished with {numbers['incidents']} incidents"
    rules = pd.read_csv(folder / "tables" / "verdict.csv").holds.value_counts()
    said = f"{text}; {rules.get('yes', 0)} of {rules.sum()} rules of stability were kept"
    return f"{said}, {rules['undecided']} undecided." if "undecided" in rules else f"{said}."


@REPORT.metrics
def metrics(study: M3Study, tables: Tables) -> dict[str, Any]:
    """Headline numbers for ``dvc metrics``: of the first primary contrast."""
    return headline_verdict(study, tables["verdicts"])


def advantages(study: M3Study, tested: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Of every recommended blend its advantage in M2, and what is left of it on fresh seeds.

    Both by the measure of the choice; without the challengers that have no pair of fresh runs.
    """
    found = []
    for arm, each in tested.items():
        fresh = study.late_difference(arm)
        if each["record"]["enable"] and fresh.n:
            chosen = next(row for row in each["record"]["candidates"] if row["recommended"])
            found.append({**each, "arm": arm, "chosen": chosen, "fresh": fresh})
    return found
