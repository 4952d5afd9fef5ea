"""What a response without a valid score should get, from the attacks on the judge."""

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from refblend.config.root import RefblendConfig
from refblend.errors import StudyError

HALF = 0.5
"""Share of a lift that the invalid score must pay for in every attack that counts."""


@dataclass(frozen=True)
class OnFailure:
    """A value of ``scoring.on_failure``, and why."""

    value: str
    reason: str
    attacks: tuple[str, ...] = ()
    """Attacks whose lift has an interval above 0."""


COLUMNS = ("attack", "neutral_mean", "lift", "low", "valid_rate")


def read_attacks(path: str | Path) -> pd.DataFrame:
    """The table ``attacks.csv`` of the scoring study.

    Raises:
        StudyError: it cannot be read or lacks a column.
    """
    remedy = "Give results/<scale>/scoring/tables/attacks.csv, made by `snakemake scoring`."
    try:
        table = pd.read_csv(path)
    except (OSError, ValueError) as error:
        raise StudyError(f"{path}: cannot be read ({error})", remedy) from None
    missing = [name for name in COLUMNS if name not in table.columns]
    if missing:
        raise StudyError(f"{path}: no column {', '.join(missing)}", remedy)
    return table


def choose_on_failure(
    attacks: pd.DataFrame | None, invalid_score: float, present: str
) -> OnFailure:
    """``rule_reward`` where the attacks gain mostly by making verdicts unreadable.

    An attack counts when the interval of its lift lies above 0. The invalid score q₀ pays for
    (1 − v)·(q₀ − m₀) of the lift, with v the share of valid verdicts and m₀ the mean score of the
    answers without the attack. If that is more than half of the lift of every attack that counts,
    ``rule_reward`` removes most of what cheating gains; otherwise the present value stays.

    Args:
        attacks: the table ``attacks`` of the scoring study; null where there is none.
        invalid_score: q₀ of the configuration.
        present: the configuration's own value.
    """
    if attacks is None:
        return OnFailure(present, "kept: no table of attacks on the judge was given")
    certain = attacks[attacks["low"] > 0]
    if certain.empty:
        return OnFailure(
            present, f"kept: no attack of {len(attacks)} has a lift with an interval above 0"
        )
    paid = (1 - certain["valid_rate"]) * (invalid_score - certain["neutral_mean"])
    share = paid / certain["lift"]
    names = tuple(map(str, certain["attack"]))
    if (share > HALF).all():
        return OnFailure(
            "rule_reward",
            f"{len(names)} of {len(attacks)} attacks have a lift whose interval is above 0, and "
            f"the invalid score pays for at least {share.min():.0%} of each",
            names,
        )
    readable = ", ".join(certain.loc[share <= HALF, "attack"])
    return OnFailure(
        present, f"kept: readable verdicts pay for at least half the lift of {readable}", names
    )


def with_on_failure(config: RefblendConfig, value: str) -> RefblendConfig:
    """The configuration with another ``scoring.on_failure``, checked again."""
    tree = config.model_dump(mode="json")
    tree["algorithm"]["ref_quality_score"]["scoring"]["on_failure"] = value
    return RefblendConfig.model_validate(tree)
