from pathlib import Path

import pytest
from made_runs import collected, equal_seeds, flat, with_metric

from refblend.study.design.grid import resolve_arm
from refblend.study.recommend.candidates import late_accuracy, read_pool
from refblend.study.recommend.candidates import unsuitable as unsuitable_because
from refblend.study.recommend.choose import recommend

PARAMS = equal_seeds()


def test_late_accuracy_is_the_mean_of_the_second_half() -> None:
    curve = [0.1, 0.2, 0.3, 0.5, 0.4, 0.6]  # steps 0, 4, …, 20: the half is 10
    frame = late_accuracy(collected({"off": [curve]}))
    assert frame.value.tolist() == pytest.approx([(0.5 + 0.4 + 0.6) / 3])


def test_candidates_are_ordered_by_departures_then_parameters_then_place() -> None:
    arms = (
        "off",
        "piecewise",
        "schedule_terminal",
        "linear_terminal",
        "constant",
        "linear",
        "cosine",
    )
    pool = read_pool(collected({arm: flat(0.4, 0.4) for arm in arms}), "gpu", PARAMS)
    assert [candidate.arm for candidate in pool.candidates] == [
        "linear", "constant", "cosine", "linear_terminal", "piecewise", "schedule_terminal",
    ]  # fmt: skip
    assert pool.candidates[0].departures == {}
    assert pool.candidates[-1].departures == {
        "algorithm.ref_quality_score.strategy": "schedule",
        "algorithm.ref_quality_score.placement": "terminal",
    }


def test_arms_that_only_illustrate_are_no_candidates() -> None:
    params = Path(__file__).parents[3] / "params"
    names = ("off", "linear_terminal", "inverse_auto", "hard_off", "hard_judge", "hard_oracle")
    runs = collected({arm: flat(0.4, 0.4) for arm in names})
    dropped = read_pool(runs, "cpu", params).dropped
    assert dropped["inverse_auto"] == "only illustrates: 4 seeds of 20"
    assert "linear_terminal" not in dropped
    hard = read_pool(runs, "cpu", params, "hard")  # whose baseline has four seeds itself
    assert [candidate.arm for candidate in hard.candidates] == ["hard_judge"]


@pytest.mark.parametrize(
    ("metric", "value", "reason"),
    [
        ("incidents/oom", 1.0, "1 oom"),
        ("incidents/overlength", 2.0, "2 overlength"),
        ("incidents/nonfinite", 1.0, "1 nonfinite"),
        ("incidents/judge_error", 3.0, "3 judge_error"),
        ("actor/ref_quality/valid_rate", 0.5, "invalid"),
    ],
)
def test_unhealthy_arms_are_dropped(metric: str, value: float, reason: str) -> None:
    runs = collected({"off": flat(0.4, 0.4), "linear": flat(0.5, 0.5), "cosine": flat(0.9, 0.9)})
    assert recommend(runs, "gpu", PARAMS).arm == "cosine"
    chosen = recommend(with_metric(runs, "cosine", 2, metric, value), "gpu", PARAMS)
    assert chosen.arm == "linear"
    assert reason in chosen.dropped["cosine"]


def test_a_judge_that_is_often_unreadable_drops_no_arm() -> None:
    runs = collected({arm: flat(0.4, 0.5) for arm in ("off", "linear", "cosine", "exp")})
    valid = runs.metrics.metric.eq("actor/ref_quality/valid_rate")
    runs.metrics.loc[valid, "value"] = 0.7
    assert recommend(runs, "gpu", PARAMS).judge_invalid_rate == pytest.approx(0.3)
    runs.metrics.loc[valid & runs.metrics.arm.eq("exp"), "value"] = 0.35
    pool = read_pool(runs, "gpu", PARAMS)
    assert [candidate.arm for candidate in pool.candidates] == ["linear", "cosine"]
    assert "65.0%" in pool.dropped["exp"]


def test_failed_seeds_and_collapse_drop_an_arm() -> None:
    runs = collected({"off": flat(0.4, 0.4), "linear": flat(0.5, 0.5), "cosine": flat(0.9, 0.9)})
    runs.runs.loc[runs.runs.arm.eq("cosine") & runs.runs.seed.eq(2), "status"] = "failed"
    assert recommend(runs, "gpu", PARAMS).dropped["cosine"] == "seed 2 failed"

    curve = [0.2, *[0.9] * 11]
    runs = collected(
        {"off": [[0.2, *[0.4] * 11]] * 2, "linear": [curve] * 2, "cosine": [curve] * 2}
    )
    entropy = runs.metrics.metric.eq("actor/entropy") & runs.metrics.arm.eq("linear")
    runs.metrics.loc[entropy & runs.metrics.seed.eq(1) & runs.metrics.step.gt(20), "value"] = 0.01
    chosen = recommend(runs, "gpu", PARAMS)
    assert chosen.dropped["linear"] == "seed 1: the entropy collapsed"
    assert chosen.dropped["exp"] == "has no runs on seeds that M3 leaves unused"
    assert chosen.arm == "cosine"


def test_controls_other_judges_and_other_estimators_are_no_candidates() -> None:
    arms = ("off", "linear", "shuffled", "shuffled_terminal", "gae_off", "gae_linear")
    runs = collected({arm: flat(0.4, 0.4) for arm in arms})
    pool = read_pool(runs, "gpu", PARAMS)
    assert [candidate.arm for candidate in pool.candidates] == ["linear"]
    unsuitable = {arm for arm, reason in pool.dropped.items() if "no runs" not in reason}
    assert unsuitable >= {"shuffled", "shuffled_terminal", "gae_off", "gae_linear"}
    assert "linear_mean" not in unsuitable
    scoring = "algorithm.ref_quality_score.scoring"
    off = resolve_arm({"algorithm.ref_quality_score.enable": False}, "gpu", PARAMS)
    weak = resolve_arm({f"{scoring}.model_path": "models/cpu/judge_weak"}, "gpu", PARAMS)
    assert unsuitable_because(weak, off) == "another judge than the scale's"
    sparse = resolve_arm({"reward.verifier.checked_share": 0.25}, "gpu", PARAMS)
    assert "reward.verifier.checked_share" in unsuitable_because(sparse, off)
