from collections.abc import Callable
from pathlib import Path

import pytest

from refblend.config import RefblendConfig
from refblend.data.tokenizer import load_tokenizer
from refblend.errors import ScoringError
from refblend.scoring.prompt_lengths import prompt_shares
from refblend.scoring.prompts import PromptEncoder
from refblend.scoring.templates import load_templates

SCORING = "algorithm.ref_quality_score.scoring"
SHORT, LONG = ("1 + 1 = ?", "1+1=2\n#### 2"), ("1 + 1 = ?", "1+1=2\n" * 100)


@pytest.fixture
def shares_of(tiny_config: Callable[..., RefblendConfig]) -> Callable[..., tuple[float, ...]]:
    def shares(*overrides: str) -> tuple[float, ...]:
        config = tiny_config(*overrides).algorithm.ref_quality_score
        found = prompt_shares(config, [SHORT, SHORT, SHORT, LONG])
        return found.full, found.compact, found.clipped, found.allowed_length

    return shares


def test_every_share_is_that_of_the_guards(
    shares_of: Callable[..., tuple[float, ...]], tiny_model_dir: Path
) -> None:
    encoder = PromptEncoder(load_tokenizer(tiny_model_dir), load_templates("embedded"))
    spare = 16 + 16  # safety margin and new tokens
    full, compact = (len(encoder.encode(*SHORT, form)) for form in ("full", "compact"))
    longest = len(encoder.encode(*LONG, "compact"))
    assert compact < full < longest
    cap = f"{SCORING}.max_model_len={{}}"
    assert shares_of(cap.format(full + spare)) == (0.75, 0, 0.25, full)
    assert shares_of(cap.format(full + spare - 1)) == (0, 0.75, 0.25, full - 1)
    assert shares_of(cap.format(longest + spare)) == (0.75, 0.25, 0, longest)
    with pytest.raises(ScoringError):
        shares_of(cap.format(compact // 2))


def test_the_fallback_counts_only_where_the_user_set_no_length(
    shares_of: Callable[..., tuple[float, ...]],
) -> None:
    """The tiny model and its tokenizer have 1024 positions."""
    fallback = f"{SCORING}.fallback_max_length={{}}"
    unset = f"{SCORING}.max_model_len=null"
    assert shares_of(unset)[3] == 768 - 32
    assert shares_of(unset, fallback.format(700))[3] == 700 - 32
    assert shares_of(unset, fallback.format(4000))[3] == 1024 - 32
    assert shares_of(f"{SCORING}.max_model_len=1000", fallback.format(700))[3] == 1000 - 32
