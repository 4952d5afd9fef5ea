"""The report of the scoring study: what the tables show, in sentences made from their numbers."""

from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd

from refblend.files import write_json, write_text
from refblend.study.report.m1.tables import to_markdown, write_table
from refblend.study.report.scoring.figures import commits, write_scoring_figures
from refblend.study.report.scoring.tables import ScoringData

LISTED_ATTACKS = 5


def write_scoring_report(data: ScoringData, scale: str, out: str | Path) -> None:
    """Write ``tables/``, ``figures/``, ``report.md`` and ``metrics.json`` below ``out``."""
    out = Path(out)
    tables = data.tables
    for name, frame in tables.items():
        write_table(frame, name, out / "tables")
    captions = write_scoring_figures(data, out / "figures")
    write_text(out / "report.md", render(data, tables, captions, scale))
    write_json(out / "metrics.json", headline_numbers(tables))


def render(
    data: ScoringData, tables: dict[str, pd.DataFrame], captions: dict[str, str], scale: str
) -> str:
    """The Markdown text of the report."""
    template = resources.files("refblend.study.report").joinpath("templates", "scoring.md.j2")
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
    environment.filters |= {"share": share, "number": number, "signed": signed}
    hardware = [report["provenance"]["hardware"] for report in data.reports]
    return environment.from_string(template.read_text(encoding="utf-8")).render(
        scale=scale,
        judge=data.robustness["judge"].removeprefix("judge_"),
        attacked_judge=data.attacks["judge"].removeprefix("judge_"),
        corpus=data.robustness["corpus"],
        options={key: data.robustness[key] for key in ("engine", "score_mode")},
        arms={row["arm"]: row for row in tables["robustness"].to_dict("records")},
        lengths={
            (row["arm"], row["length"]): row
            for row in tables["robustness_by_length"].to_dict("records")
        },
        attack=attack_findings(tables["attacks"]),
        judges=[
            row | {"name": row["model"].removeprefix("judge_")}
            for row in tables["judge_quality"].to_dict("records")
        ],
        held_out=[report["corpus"] for report in data.quality.values()],
        tables={name: to_markdown(frame) for name, frame in tables.items()},
        figure=lambda name: (
            f"![{name.replace('_', ' ')}](figures/{name}.png)\n\n*{captions[name]}*\n"
        ),
        commit=commits(data.reports),
        hardware="; ".join(sorted({str(entry["cpu"]) for entry in hardware})),
    )


def attack_findings(attacks: pd.DataFrame) -> dict[str, Any]:
    """What the report says on the attacks: the best, how many work, what broke the structure."""
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


def headline_numbers(tables: dict[str, pd.DataFrame]) -> dict[str, Any]:
    """Nested numbers for ``dvc metrics``."""
    attacks = tables["attacks"]
    shown = ("nonzero_rate", "valid_rate", "auc", "overlength")
    return {
        "robustness": {
            row["arm"]: {name: _plain(row[name]) for name in shown}
            for row in tables["robustness"].to_dict("records")
        },
        "attacks": {
            "largest_lift": _plain(attacks["lift"].max()),
            "mean_lift": _plain(attacks["lift"].mean()),
            "structure_changed": int(attacks["structure_changed"].sum()),
        },
        "judges": {
            f"{row['model']} {row['form']}": {
                name: _plain(row[name]) for name in ("auc", "auc_expected", "ece", "valid_rate")
            }
            for row in tables["judge_quality"].to_dict("records")
        },
    }


def share(value: float | None) -> str:
    """A share as a percentage."""
    return "–" if value is None or pd.isna(value) else f"{value:.1%}"


def number(value: float | None) -> str:
    """A number with three decimals."""
    return "–" if value is None or pd.isna(value) else f"{value:.3f}"


def signed(value: float | None) -> str:
    """A difference with its sign."""
    return "–" if value is None or pd.isna(value) else f"{value:+.3f}"


def _plain(value: Any) -> float | None:
    return None if value is None or pd.isna(value) else round(float(value), 6)
