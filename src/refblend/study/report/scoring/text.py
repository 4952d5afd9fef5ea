"""The text of the scoring report: the tables' findings, in sentences made from their numbers."""

from typing import Any

import pandas as pd

from refblend.study.report.registry import Tables
from refblend.study.report.scoring.study import REPORT, ScoringStudy, commits, judge_name

LISTED_ATTACKS = 5


@REPORT.text
def text(study: ScoringStudy, tables: Tables) -> dict[str, Any]:
    """The variables of the template."""
    made = study.circumstances.values()
    machines = sorted({str(entry["hardware"]["cpu"]) for entry in made})
    lengths = tables["robustness_by_length"].to_dict("records")
    return {
        "judge": judge_name(study.robustness["judge"]),
        "attacked_judge": judge_name(study.attacks["judge"]),
        "corpus": study.robustness["corpus"],
        "options": {key: study.robustness[key] for key in ("engine", "score_mode")},
        "arms": {row["arm"]: row for row in tables["robustness"].to_dict("records")},
        "lengths": {(row["arm"], row["length"]): row for row in lengths},
        "attack": attack_findings(tables["attacks"]),
        "judges": [
            row | {"name": judge_name(row["model"])}
            for row in tables["judge_quality"].to_dict("records")
        ],
        "held_out": [report["corpus"] for report in study.quality.values()],
        "misjudged": examples(tables["judge_misjudged"], study.robustness["judge"]),
        "commit": commits(study),
        "hardware": "; ".join(machines) or "a machine of which nothing is recorded here",
    }


def examples(misjudged: pd.DataFrame, judge: str) -> list[dict[str, Any]]:
    """The wrong answers that a judge likes best, few-shot, each part in one line.

    None where its quality was measured before they were recorded.
    """
    shown = misjudged[(misjudged["model"] == judge) & (misjudged["form"] == "few_shot")]
    return [
        {key: " ⏎ ".join(str(row[key]).splitlines()) for key in ("question", "response", "raw")}
        | {"score": row["expected"]}
        for row in shown.to_dict("records")
    ]


def attack_findings(attacks: pd.DataFrame) -> dict[str, Any]:
    """The report's findings on the attacks: the best, how many work, what broke the structure."""
    certain = attacks[attacks["low"] > 0]
    broken = attacks[attacks["structure_changed"] > 0]
    return {
        "count": len(attacks),
        "answers": int(attacks["n"].iloc[0]),
        "neutral": attacks["neutral_mean"].iloc[0],
        "best": attacks.iloc[0].to_dict(),
        "certain": certain.head(LISTED_ATTACKS).to_dict("records"),
        "n_certain": len(certain),
        "prompts": int(attacks["n"].sum()),
        "broken": broken.to_dict("records"),
        "unreadable": attacks[attacks["valid_rate"] < 1].to_dict("records"),
    }


@REPORT.metrics
def metrics(study: ScoringStudy, tables: Tables) -> dict[str, Any]:
    """Headline numbers for ``dvc metrics``: the studied judge's AUC by its expected
    score with few-shot prompts, and the lift of the most effective attack."""
    judges = tables["judge_quality"].query("form == 'few_shot'").set_index("model")
    return {
        "auc": rounded(judges["auc_expected"].get(study.robustness["judge"])),
        "lift": rounded(tables["attacks"]["lift"].max()),
    }


def rounded(value: Any) -> float | None:
    """Four decimals; null for a missing value."""
    return None if value is None or pd.isna(value) else round(float(value), 4)
