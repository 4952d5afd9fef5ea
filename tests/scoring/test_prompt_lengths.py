from collections.abc import Callable
from pathlib import Path

import pytest

from refblend.config import RefblendConfig
from refblend.data.tokenizer import load_tokenizer
from refblend.errors import ScoringError
from refblend.scoring.judge import try_judge
from refblend.scoring.prompts import PromptEncoder
from refblend.scoring.templates import load_templates

SCORING = "algorithm.ref_quality_score.scoring"
SHORT, LONG = ("1 + 1 = ?", "1+1=2\n#### 2"), ("1 + 1 = ?", "1+1=2\n" * 100)


@pytest.fixture
def asked_of(tiny_config: Callable[..., RefblendConfig]) -> Callable[..., tuple[str, ...]]:
    """``asked_of(*overrides)`` → what the guards do to the short and to the long sample."""

    def asked(*overrides: str) -> tuple[str, ...]:
        config = tiny_config(*overrides).algorithm.ref_quality_score
        found = try_judge(config, [SHORT, LONG])
        return tuple("clipped" if request.clipped else request.template for request in found)

    return asked


@pytest.fixture
def longest_of(tiny_config: Callable[..., RefblendConfig]) -> Callable[..., int]:
    """``longest_of(*overrides)`` → tokens of a prompt that was clipped to the cap."""

    def longest(*overrides: str) -> int:
        config = tiny_config(*overrides).algorithm.ref_quality_score
        (request,) = try_judge(config, [(SHORT[0], "1+1=2\n" * 4000)])
        assert request.clipped
        return len(request.token_ids)

    return longest


def test_what_the_guards_do_by_length(
    asked_of: Callable[..., tuple[str, ...]], tiny_model_dir: Path
) -> None:
    encoder = PromptEncoder(load_tokenizer(tiny_model_dir), load_templates("embedded"))
    spare = 16 + 16  # safety margin and new tokens
    full, compact = (len(encoder.encode(*SHORT, form)) for form in ("full", "compact"))
    longest = len(encoder.encode(*LONG, "compact"))
    assert compact < full < longest
    cap = f"{SCORING}.max_model_len={{}}"
    assert asked_of(cap.format(full + spare)) == ("full", "clipped")
    assert asked_of(cap.format(full + spare - 1)) == ("compact", "clipped")
    assert asked_of(cap.format(longest + spare)) == ("full", "compact")
    with pytest.raises(ScoringError):
        asked_of(cap.format(compact // 2))


def test_the_fallback_counts_only_where_the_user_set_no_length(
    longest_of: Callable[..., int],
) -> None:
    """The tiny model and its tokenizer have 1024 positions."""
    fallback = f"{SCORING}.fallback_max_length={{}}"
    unset = f"{SCORING}.max_model_len=null"
    assert longest_of(unset) == 768 - 32
    assert longest_of(unset, fallback.format(700)) == 700 - 32
    assert longest_of(unset, fallback.format(4000)) == 1024 - 32
    assert longest_of(f"{SCORING}.max_model_len=1000", fallback.format(700)) == 1000 - 32
