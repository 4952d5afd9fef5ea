import numpy as np
import pandas as pd
import pytest
from made_runs import collected, equal_seeds, flat, with_metric

from refblend.errors import StudyError
from refblend.study.recommend.candidates import regimes_at
from refblend.study.recommend.choose import recommend, weigh
from refblend.study.recommend.overlay import record

PARAMS = equal_seeds()


def test_a_clearly_better_blend_is_chosen() -> None:
    runs = collected(
        {
            "off": flat(0.40, 0.42, 0.41),
            "linear": flat(0.41, 0.42, 0.42),
            "constant_terminal": flat(0.60, 0.63, 0.61),
        }
    )
    chosen = recommend(runs, "gpu", PARAMS)
    assert (chosen.arm, chosen.best, chosen.enable) == (
        "constant_terminal",
        "constant_terminal",
        True,
    )
    assert chosen.config.algorithm.ref_quality_score.strategy == "constant"
    assert chosen.config.algorithm.ref_quality_score.placement == "terminal"
    assert chosen.evidence.level == "clear"
    assert chosen.seeds == (1, 2, 3)


def test_the_simplest_within_one_standard_error_of_the_best() -> None:
    """The rule against a loop written from its words."""
    rng = np.random.default_rng(5)
    simple_first = ["linear", "constant", "cosine", "linear_terminal", "constant_terminal"]
    levels = {arm: 0.5 + rng.normal(0, 0.02, 3) for arm in ["off", *simple_first]}
    levels["off"] -= 0.05
    for shift in (0.0, 0.01, 0.02, 0.04, 0.2):
        moved = levels | {"constant_terminal": levels["constant_terminal"] + shift}
        runs = collected({arm: flat(*values) for arm, values in moved.items()})
        chosen = recommend(runs, "gpu", PARAMS)

        means = {arm: sum(moved[arm]) / 3 for arm in simple_first}
        means["off"] = sum(moved["off"]) / 3
        eligible = [arm for arm in ["off", *simple_first] if means[arm] >= means["off"]]
        best = max(eligible, key=lambda arm: means[arm])
        # No blend is the simplest of all. Equal departures (strategy or placement): fewer
        # parameters first, then the files' order.
        order = ["off", "linear", "constant", "cosine", "linear_terminal", "constant_terminal"]
        expected = None
        for arm in order:
            if arm not in eligible or expected:
                continue
            gaps = [b - a for a, b in zip(moved[arm], moved[best], strict=True)]
            mean = sum(gaps) / 3
            spread = (sum((gap - mean) ** 2 for gap in gaps) / 2) ** 0.5
            if mean <= spread / 3**0.5 + 1e-12:
                expected = arm
        assert (chosen.arm, chosen.best) == (expected, best)


def test_no_blend_as_good_as_the_baseline_switches_blending_off() -> None:
    runs = collected({"off": flat(0.5, 0.5), "linear": flat(0.4, 0.59), "cosine": flat(0.3, 0.3)})
    chosen = recommend(runs, "gpu", PARAMS)
    assert (chosen.arm, chosen.enable, chosen.evidence.level, chosen.best) == (
        "off",
        False,
        "baseline",
        "off",
    )
    assert chosen.evidence.text == (
        "No blend of 2 has a higher mean than off (off: mean 0.5000, n = 2)."
    )


def test_a_choice_against_blending_names_the_blend_that_was_not_far_enough_ahead() -> None:
    values = pd.DataFrame({"off": [0.5, 0.5], "linear": [0.4, 0.64]})
    said = weigh(values, "off", "off", "linear", 2).text
    assert said == (
        "off is within one standard error of linear, the best of 2 (off: mean 0.5000, n = 2)."
    )


def test_a_blend_below_the_baseline_is_not_chosen_though_it_is_simple() -> None:
    """linear is within one standard error of the best, but its mean is below the baseline's."""
    runs = collected(
        {
            "off": flat(0.50, 0.50, 0.50),
            "linear": flat(0.30, 0.70, 0.49),
            "cosine": flat(0.50, 0.52, 0.51),
        }
    )
    assert recommend(runs, "gpu", PARAMS).arm == "cosine"


def test_the_test_set_does_not_matter() -> None:
    runs = collected({"off": flat(0.4, 0.41), "linear": flat(0.45, 0.46), "cosine": flat(0.5, 0.5)})
    before = recommend(runs, "gpu", PARAMS)
    for arm, value in (("off", 1.0), ("linear", 0.9), ("cosine", 0.0)):
        for seed in (1, 2):
            runs = with_metric(runs, arm, seed, "test/greedy", value)
    after = recommend(runs, "gpu", PARAMS)
    assert record(after) == record(before)


def test_a_gain_within_the_noise_is_no_reason_to_blend() -> None:
    noisy = {"off": flat(0.40, 0.42, 0.44), "linear": flat(0.48, 0.36, 0.45)}
    chosen = recommend(collected(noisy), "gpu", PARAMS)
    assert (chosen.arm, chosen.best, chosen.enable) == ("off", "linear", False)
    sure = noisy | {"linear": flat(0.44, 0.45, 0.47)}
    assert recommend(collected(sure), "gpu", PARAMS).arm == "linear"


def test_every_seed_that_an_arm_shares_with_the_baseline_counts() -> None:
    """The fourth seed of off and cosine decides, though the other candidate has none."""
    arms = {
        "off": flat(0.4, 0.4, 0.4, 0.9),
        "cosine": flat(0.5, 0.52, 0.51, 0.0),
        "linear_terminal_w01": flat(0.41, 0.42, 0.41),
    }
    chosen = recommend(collected(arms), "gpu", PARAMS)
    assert (chosen.arm, chosen.seeds) == ("linear_terminal_w01", (1, 2, 3, 4))
    three = {arm: flat(*(float(run[-1]) for run in runs[:3])) for arm, runs in arms.items()}
    assert recommend(collected(three), "gpu", PARAMS).arm == "cosine"


def test_each_regime_has_its_own_recommendation() -> None:
    runs = collected(
        {
            "off": flat(0.40, 0.42, 0.41),
            "constant_terminal": flat(0.39, 0.41, 0.40),
            "sparse_off": flat(0.30, 0.31, 0.29),
            "sparse_judge": flat(0.40, 0.39, 0.42),
            "sparse_oracle": flat(0.60, 0.59, 0.62),
        }
    )
    chosen = recommend(runs, "cpu", PARAMS, regime="sparse")
    assert (chosen.arm, chosen.baseline, chosen.regime) == ("sparse_judge", "sparse_off", "sparse")
    assert chosen.dropped["sparse_oracle"] == "a control: oracle scores"
    assert "reward.verifier.checked_share" in chosen.dropped["constant_terminal"]
    assert recommend(runs, "cpu", PARAMS).arm == "off"
    assert record(chosen)["regime"] == "sparse"
    assert set(regimes_at("cpu", PARAMS)) == {"sparse", "noisy", "hard"}
    assert regimes_at("smoke", PARAMS) == ["sparse"]
    assert regimes_at("gpu", PARAMS) == []


def test_too_few_seeds_are_an_error() -> None:
    with pytest.raises(StudyError, match="share 1 seeds with validations"):
        recommend(collected({"off": flat(0.4), "linear": flat(0.5)}), "gpu", PARAMS)
    with pytest.raises(StudyError, match="not among the collected runs"):
        recommend(collected({"linear": flat(0.5, 0.5)}), "gpu", PARAMS)


def test_evidence_says_when_nothing_can_be_told_apart() -> None:
    runs = collected({"off": flat(0.40, 0.50, 0.45), "linear": flat(0.48, 0.49, 0.50)})
    chosen = recommend(runs, "gpu", PARAMS)
    assert chosen.evidence.level == "none"
    assert "not distinguishable from off" in chosen.evidence.text


def test_equal_differences_are_no_evidence() -> None:
    runs = collected({"off": flat(0.25, 0.5, 0.375), "linear": flat(0.5, 0.75, 0.625)})
    chosen = recommend(runs, "gpu", PARAMS)
    assert (chosen.arm, chosen.evidence.level) == ("linear", "none")


def test_evidence_before_and_after_the_correction_for_the_choice() -> None:
    """The same differences among one candidate and among six."""
    gains = (0.030, 0.050, 0.047)
    best = {"off": flat(0.4, 0.4, 0.4), "linear": flat(*(0.4 + gain for gain in gains))}
    assert recommend(collected(best), "gpu", PARAMS).evidence.level == "clear"
    others = ("cosine", "exp", "constant", "inverse", "schedule")
    many = recommend(collected(best | {arm: flat(0.4, 0.4, 0.4) for arm in others}), "gpu", PARAMS)
    assert (many.arm, many.evidence.level) == ("linear", "weak")
    assert "only before correction" in many.evidence.text
