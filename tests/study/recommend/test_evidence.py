from pathlib import Path

from made_runs import collected, flat

from refblend.study.recommend.choose import recommend

PARAMS = Path(__file__).parents[3] / "params"


def test_evidence_says_when_nothing_can_be_told_apart() -> None:
    runs = collected({"off": flat(0.40, 0.50, 0.45), "linear": flat(0.48, 0.49, 0.50)})
    chosen = recommend(runs, "cpu", PARAMS)
    assert chosen.evidence.level == "none"
    assert "not distinguishable from off" in chosen.evidence.text


def test_equal_differences_are_no_evidence() -> None:
    runs = collected({"off": flat(0.25, 0.5, 0.375), "linear": flat(0.5, 0.75, 0.625)})
    chosen = recommend(runs, "cpu", PARAMS)
    assert (chosen.arm, chosen.evidence.level) == ("linear", "none")


def test_evidence_before_and_after_the_correction_for_the_choice() -> None:
    """The same differences among one candidate and among six."""
    gains = (0.030, 0.050, 0.047)
    best = {"off": flat(0.4, 0.4, 0.4), "linear": flat(*(0.4 + gain for gain in gains))}
    assert recommend(collected(best), "cpu", PARAMS).evidence.level == "clear"
    others = ("cosine", "exp", "constant", "inverse", "schedule")
    many = recommend(collected(best | {arm: flat(0.4, 0.4, 0.4) for arm in others}), "cpu", PARAMS)
    assert (many.arm, many.evidence.level) == ("linear", "weak")
    assert "only before correction" in many.evidence.text
