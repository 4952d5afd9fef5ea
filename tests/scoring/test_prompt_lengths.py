from refblend.scoring.judge import try_judge

SCORING = "algorithm.ref_quality_score.scoring"


def test_the_fallback_counts_only_where_the_user_set_no_length(tiny_config) -> None:
    """The tiny model and its tokenizer have 1024 positions."""

    def longest_of(*overrides: str) -> int:
        config = tiny_config(*overrides).algorithm.ref_quality_score
        (request,) = try_judge(config, [("1 + 1 = ?", "1+1=2\n" * 4000)])
        assert request.clipped
        return len(request.token_ids)

    fallback = f"{SCORING}.fallback_max_length={{}}"
    unset = f"{SCORING}.max_model_len=null"
    assert longest_of(unset) == 768 - 32
    assert longest_of(unset, fallback.format(700)) == 700 - 32
    assert longest_of(unset, fallback.format(4000)) == 1024 - 32
    assert longest_of(f"{SCORING}.max_model_len=1000", fallback.format(700)) == 1000 - 32
