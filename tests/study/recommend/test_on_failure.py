from pathlib import Path

import pandas as pd
import pytest

from refblend.errors import StudyError
from refblend.study.recommend.on_failure import choose_on_failure, read_attacks

PARAMS = Path(__file__).parents[3] / "params"


def attacks(*rows: tuple[str, float, float, float]) -> pd.DataFrame:
    """Rows (name, lift, low, valid rate) over answers with a mean score of 0.1."""
    frame = pd.DataFrame(rows, columns=["attack", "lift", "low", "valid_rate"])
    return frame.assign(neutral_mean=0.1)


def test_on_failure_follows_the_attacks() -> None:
    flood = ("flood", 0.4, 0.3, 0.0)  # all of the lift: (1 − 0)(0.5 − 0.1)
    mixed = ("mixed", 0.3, 0.2, 0.5)  # two thirds of it: 0.5 · 0.4 / 0.3
    persuades = ("persuades", 0.3, 0.2, 0.9)  # 0.04 of 0.3
    unclear = ("unclear", 0.3, -0.1, 1.0)
    kept = "invalid_score"
    chosen = choose_on_failure(attacks(flood, mixed, unclear), 0.5, kept)
    assert (chosen.value, chosen.attacks) == ("rule_reward", ("flood", "mixed"))
    assert "at least 67%" in chosen.reason
    chosen = choose_on_failure(attacks(flood, persuades), 0.5, kept)
    assert (chosen.value, "persuades" in chosen.reason) == (kept, True)
    assert choose_on_failure(attacks(unclear), 0.5, kept).value == kept
    assert choose_on_failure(None, 0.5, kept).value == kept
    # An invalid score no higher than what the answers get pays for nothing.
    assert choose_on_failure(attacks(flood), 0.1, kept).value == kept


def test_a_file_that_is_not_the_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("attack,lift\nx,1\n")
    with pytest.raises(StudyError, match="no column neutral_mean, low, valid_rate"):
        read_attacks(tmp_path / "a.csv")
    with pytest.raises(StudyError, match="cannot be read"):
        read_attacks(tmp_path / "b.csv")
