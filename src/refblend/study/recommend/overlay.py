"""``recommended.yaml``, a configuration to lay over a scale's, and beside it its record as JSON and
the challenger, the blend that M3 trains on fresh seeds."""

import math
import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from pydantic import ValidationError

from refblend.config.algorithm import RefQualityScoreConfig
from refblend.config.loading import read_yaml
from refblend.config.root import RefblendConfig
from refblend.errors import StudyError
from refblend.files import read_json, write_json, write_text
from refblend.study.design.blocks import seed_ranges
from refblend.study.recommend.choose import MEASURE, RULE, Recommendation

COVERED = ("adv_estimator", "norm_adv_by_std_in_grpo", "ref_quality_score")
"""Sections of ``algorithm`` that the choice covers; the overlay holds them whole."""

WRITTEN = "Written by `refblend study recommend`; do not edit."

REPORTED = ("scale", "arm", "enable", "baseline", "best", "regime", "challenger")


def overlay(config: RefblendConfig) -> dict[str, Any]:
    """The tree to lay over a scale's configuration."""
    algorithm = config.algorithm.model_dump(mode="json")
    return {"algorithm": {name: algorithm[name] for name in COVERED}}


def render_recommended(chosen: Recommendation) -> str:
    """YAML with the rule, the seeds and the evidence in comments above it."""
    shares = "" if math.isnan(chosen.stability) else f" ({chosen.stability:.0%} of resamples agree)"
    best = f"the best mean has {chosen.best}"
    regime = f", regime {chosen.regime}" if chosen.regime else ""
    paragraphs = [
        f"Recommended configuration at scale {chosen.scale}{regime}: arm {chosen.arm} of M2. "
        f"{WRITTEN}",
        f"Use: refblend train --config params/ppo.yaml --config params/scale/{chosen.scale}.yaml "
        "--config <this file>",
        f"Rule. {RULE}",
        f"Choice. {chosen.arm} among {len(chosen.candidates)} candidates, seeds "
        f"{seed_ranges(chosen.seeds)}; {best}{shares}.",
        f"Evidence. {chosen.evidence.text}",
        f"on_failure. {chosen.on_failure.value}; {chosen.on_failure.reason}.",
    ]
    return _render(paragraphs, chosen.config)


def render_challenger(chosen: Recommendation) -> str:
    """YAML of the challenger, with what it is in a comment above it."""
    regime = f", regime {chosen.regime}" if chosen.regime else ""
    what = "a blend that is recommended" if chosen.enable else "the best of the blends"
    if chosen.challenger == chosen.baseline:
        what = "no blend, as no arm was a candidate"
    paragraphs = [
        f"Tested against {chosen.baseline} on fresh seeds at scale {chosen.scale}{regime}: arm "
        f"{chosen.challenger} of M2, {what}. {WRITTEN}",
    ]
    return _render(paragraphs, chosen.challenger_config)


def _render(paragraphs: Sequence[str], config: RefblendConfig) -> str:
    """The paragraphs as comments, and the overlay of a configuration."""
    head = "\n".join(
        textwrap.fill(
            text,
            98,
            initial_indent="# ",
            subsequent_indent="# ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        for text in paragraphs
    )
    body = yaml.safe_dump(overlay(config), sort_keys=False, allow_unicode=True)
    return f"{head}\n{body}"


def record(chosen: Recommendation) -> dict[str, Any]:
    """Everything about the choice as JSON: numbers, the rule, and what was dropped and why."""
    table = chosen.candidates.astype(object)
    return {name: getattr(chosen, name) for name in REPORTED} | {
        "evidence": chosen.evidence.text,
        "level": chosen.evidence.level,
        "rule": RULE,
        "measure": MEASURE,
        "seeds": list(chosen.seeds),
        "stability": None if math.isnan(chosen.stability) else chosen.stability,
        "candidates": table.where(table.notna(), None).to_dict("records"),
        "dropped": chosen.dropped,
        "judge_invalid_rate": chosen.judge_invalid_rate,
        "on_failure": asdict(chosen.on_failure) | {"attacks": list(chosen.on_failure.attacks)},
    }


def record_path(recommended: str | Path) -> Path:
    """``recommended.json`` beside ``recommended.yaml``."""
    return Path(recommended).with_suffix(".json")


def challenger_path(recommended: str | Path) -> Path:
    """``recommended.challenger.yaml`` beside ``recommended.yaml``."""
    return Path(recommended).with_suffix(".challenger.yaml")


def regime_path(recommended: str | Path, regime: str | None) -> Path:
    """The file of a regime's recommendation, for null that of the one that it is named for."""
    path = Path(recommended)
    return path if regime is None else path.parent / "regimes" / f"{regime}.yaml"


def write_recommendation(chosen: Recommendation, out: str | Path) -> None:
    """Write the overlay and, beside it, its record and the challenger's overlay."""
    document = record(chosen)
    write_text(out, render_recommended(chosen))
    write_text(challenger_path(out), render_challenger(chosen))
    write_json(record_path(out), document)


def read_record(recommended: str | Path) -> dict[str, Any]:
    """The record beside an overlay.

    Raises:
        StudyError: it is missing or not a record.
    """
    path = record_path(recommended)
    try:
        document = read_json(path)
    except (OSError, ValueError) as error:
        raise StudyError(
            f"{path}: cannot be read ({error})", "Run `refblend study recommend`."
        ) from None
    if not isinstance(document, dict) or not {"arm", "candidates", "rule"} <= document.keys():
        raise StudyError(
            f"{path}: not the record of a recommendation", "Run `refblend study recommend`."
        )
    return document


def candidates_table(document: dict[str, Any], columns: tuple[str, ...]) -> pd.DataFrame:
    """The candidates of a record as a frame, empty where there are none."""
    return pd.DataFrame(document["candidates"], columns=list(columns))


def read_enable(recommended: str | Path) -> bool:
    """Whether the overlay blends.

    Raises:
        StudyError: its ``algorithm.ref_quality_score`` is missing or not acceptable.
        ConfigError: it is missing or not a YAML mapping.
    """
    tree: Any = read_yaml(recommended)
    for key in ("algorithm", "ref_quality_score"):
        tree = tree.get(key) if isinstance(tree, dict) else None
    try:
        return RefQualityScoreConfig.model_validate(tree).enable
    except ValidationError:
        raise StudyError(
            f"{recommended}: algorithm.ref_quality_score is missing or not acceptable",
            "Give the file that `refblend study recommend` wrote.",
        ) from None


def invalid_when_chosen(recommended: str | Path) -> float:
    """The usual share of invalid scores in M2, from the record beside the overlay; 0 without one.

    Raises:
        StudyError: the record cannot be read.
    """
    if not record_path(recommended).exists():
        return 0.0
    return float(read_record(recommended)["judge_invalid_rate"])
