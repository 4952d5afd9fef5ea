from collections.abc import Callable

import pytest

from refblend.config import RefblendConfig
from refblend.scoring.judge import try_judge

SCORING = "algorithm.ref_quality_score.scoring"
SHORT, LONG = ("1 + 1 = ?", "1+1=2\n#### 2"), ("1 + 1 = ?", "1+1=2\n" * 100)


@pytest.fixture
def longest_of(tiny_config: Callable[..., RefblendConfig]) -> Callable[..., int]:
    """``longest_of(*overrides)`` → tokens of a prompt that was clipped to the cap."""

    def longest(*overrides: str) -> int:
        config = tiny_config(*overrides).algorithm.ref_quality_score
        (request,) = try_judge(config, [(SHORT[0], "1+1=2\n" * 4000)])
        assert request.clipped
        return len(request.token_ids)

    return longest


def test_the_fallback_counts_only_where_the_user_set_no_length(longest_of) -> None:
    """The tiny model and its tokenizer have 1024 positions."""
    fallback = f"{SCORING}.fallback_max_length={{}}"
    unset = f"{SCORING}.max_model_len=null"
    assert longest_of(unset) == 768 - 32
    assert longest_of(unset, fallback.format(700)) == 700 - 32
    assert longest_of(unset, fallback.format(4000)) == 1024 - 32
    assert longest_of(f"{SCORING}.max_model_len=1000", fallback.format(700)) == 1000 - 32
