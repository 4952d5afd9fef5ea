from pathlib import Path

import numpy as np
import pytest
from made_runs import collected, flat, with_metric

from refblend.errors import StudyError
from refblend.study.recommend.choose import recommend
from refblend.study.recommend.overlay import record

PARAMS = Path(__file__).parents[3] / "params"


def test_a_clearly_better_blend_is_chosen() -> None:
    runs = collected(
        {
            "off": flat(0.40, 0.42, 0.41),
            "linear": flat(0.41, 0.42, 0.42),
            "cosine_terminal": flat(0.60, 0.63, 0.61),
        }
    )
    chosen = recommend(runs, "cpu", PARAMS)
    assert (chosen.arm, chosen.best, chosen.enable) == ("cosine_terminal", "cosine_terminal", True)
    assert chosen.config.algorithm.ref_quality_score.strategy == "cosine"
    assert chosen.config.algorithm.ref_quality_score.placement == "terminal"
    assert chosen.evidence.level == "clear"
    assert chosen.seeds == (1, 2, 3)


def test_the_simplest_within_one_standard_error_of_the_best() -> None:
    """The rule against a loop written from its words."""
    rng = np.random.default_rng(5)
    simple_first = ["linear", "constant", "cosine", "linear_terminal", "cosine_terminal"]
    levels = {arm: 0.5 + rng.normal(0, 0.02, 3) for arm in ["off", *simple_first]}
    levels["off"] -= 0.05
    for shift in (0.0, 0.01, 0.02, 0.04, 0.2):
        moved = levels | {"cosine_terminal": levels["cosine_terminal"] + shift}
        runs = collected({arm: flat(*values) for arm, values in moved.items()})
        chosen = recommend(runs, "cpu", PARAMS)

        means = {arm: sum(moved[arm]) / 3 for arm in simple_first}
        eligible = [arm for arm in simple_first if means[arm] >= sum(moved["off"]) / 3]
        best = max(eligible, key=lambda arm: means[arm])
        # Equal departures (strategy or placement): fewer parameters first, then the files' order.
        order = ["linear", "constant", "cosine", "linear_terminal", "cosine_terminal"]
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
    chosen = recommend(runs, "cpu", PARAMS)
    assert (chosen.arm, chosen.enable, chosen.evidence.level, chosen.best) == (
        "off",
        False,
        "baseline",
        None,
    )
    assert "No blend of 2" in chosen.evidence.text


def test_a_blend_below_the_baseline_is_not_chosen_though_it_is_simple() -> None:
    """linear is within one standard error of the best, but its mean is below the baseline's."""
    runs = collected(
        {
            "off": flat(0.50, 0.50, 0.50),
            "linear": flat(0.30, 0.70, 0.49),
            "cosine": flat(0.50, 0.52, 0.51),
        }
    )
    assert recommend(runs, "cpu", PARAMS).arm == "cosine"


def test_the_test_set_does_not_matter() -> None:
    runs = collected({"off": flat(0.4, 0.41), "linear": flat(0.45, 0.46), "cosine": flat(0.5, 0.5)})
    before = recommend(runs, "cpu", PARAMS)
    for arm, value in (("off", 1.0), ("linear", 0.9), ("cosine", 0.0)):
        for seed in (1, 2):
            runs = with_metric(runs, arm, seed, "test/greedy", value)
    after = recommend(runs, "cpu", PARAMS)
    assert record(after) == record(before)


def test_seeds_that_all_share() -> None:
    """The fourth seeds of A's arms would change the choice: they are not used."""
    runs = collected(
        {
            "off": flat(0.4, 0.4, 0.4, 0.9),
            "cosine": flat(0.5, 0.52, 0.51, 0.0),
            "linear_terminal_w01": flat(0.41, 0.42, 0.41),
        }
    )
    chosen = recommend(runs, "cpu", PARAMS)
    assert (chosen.arm, chosen.seeds) == ("cosine", (1, 2, 3))


def test_too_few_seeds_are_an_error() -> None:
    with pytest.raises(StudyError, match="share 1 seeds with validations"):
        recommend(collected({"off": flat(0.4), "linear": flat(0.5)}), "cpu", PARAMS)
    with pytest.raises(StudyError, match="not among the collected runs"):
        recommend(collected({"linear": flat(0.5, 0.5)}), "cpu", PARAMS)
