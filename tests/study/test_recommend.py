import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from typer.testing import CliRunner

from refblend.cli.study import app
from refblend.config.loading import load_config
from refblend.errors import StudyError
from refblend.study.design.grid import config_files
from refblend.study.recommend.candidates import late_accuracy, read_pool
from refblend.study.recommend.choose import recommend
from refblend.study.recommend.on_failure import choose_on_failure, read_attacks
from refblend.study.recommend.overlay import record, write_recommendation
from refblend.study.runs.collect import (
    METRIC_COLUMNS,
    RESPONSE_COLUMNS,
    RUN_COLUMNS,
    Collected,
    write_collected,
)

PARAMS = Path(__file__).parents[2] / "params"
ACC = "val-core/refblend/arithmetic/acc/mean@1"
Curves = dict[str, list[list[float]]]
"""Arm → one validation curve a seed, seeds 1, 2, …"""


def collected(curves: Curves, step: int = 4) -> Collected:
    """Runs whose validation accuracies are given; healthy otherwise."""
    runs, metrics = [], []
    for arm, seeds in curves.items():
        for seed, curve in enumerate(seeds, start=1):
            runs.append(
                {"arm": arm, "seed": seed, "status": "finished", "reason": "", "commit": "a" * 40}
                | {"dirty": False, "hardware": "Test CPU", "steps": step * (len(curve) - 1)}
            )
            for place, accuracy in enumerate(curve):
                values = {ACC: accuracy, "actor/entropy": 0.8, "incidents/oom": 0.0}
                if arm != "off":
                    values["actor/ref_quality/valid_rate"] = 1.0
                metrics += [
                    {"arm": arm, "seed": seed, "step": place * step, "metric": name, "value": value}
                    for name, value in values.items()
                ]
    return Collected(
        pd.DataFrame(runs).reindex(columns=list(RUN_COLUMNS)).astype(RUN_COLUMNS),
        pd.DataFrame(metrics).astype(METRIC_COLUMNS),
        pd.DataFrame(columns=list(RESPONSE_COLUMNS)).astype(RESPONSE_COLUMNS),
    )


def flat(*levels: float) -> list[list[float]]:
    """A curve a seed: 0.2 before training, then that level."""
    return [[0.2, level, level] for level in levels]


def with_metric(runs: Collected, arm: str, seed: int, metric: str, value: float) -> Collected:
    row = {"arm": arm, "seed": seed, "step": 4, "metric": metric, "value": value}
    rest = runs.metrics.query("not (arm == @arm and seed == @seed and metric == @metric)")
    return Collected(runs.runs, pd.concat([rest, pd.DataFrame([row])]), runs.responses)


def test_late_accuracy_is_the_mean_of_the_second_half() -> None:
    curve = [0.1, 0.2, 0.3, 0.5, 0.4, 0.6]  # steps 0, 4, …, 20: the half is 10
    frame = late_accuracy(collected({"off": [curve]}))
    assert frame.value.tolist() == pytest.approx([(0.5 + 0.4 + 0.6) / 3])


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
    assert chosen.level == "clear"
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
        # Equal departures (strategy or placement): fewer knobs first, then the files' order.
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


def test_candidates_are_ordered_by_departures_then_knobs_then_place() -> None:
    arms = ("off", "piecewise", "exp_terminal", "linear_terminal", "constant", "linear", "cosine")
    pool = read_pool(collected({arm: flat(0.4, 0.4) for arm in arms}), "cpu", PARAMS)
    assert [candidate.arm for candidate in pool.candidates] == [
        "linear", "constant", "cosine", "linear_terminal", "piecewise", "exp_terminal",
    ]  # fmt: skip
    assert pool.candidates[0].departures == ()
    assert pool.candidates[-1].departures == (
        "algorithm.ref_quality_score.strategy",
        "algorithm.ref_quality_score.placement",
    )


def test_no_blend_as_good_as_the_baseline_switches_blending_off() -> None:
    runs = collected({"off": flat(0.5, 0.5), "linear": flat(0.4, 0.59), "cosine": flat(0.3, 0.3)})
    chosen = recommend(runs, "cpu", PARAMS)
    assert (chosen.arm, chosen.enable, chosen.level, chosen.best) == (
        "off",
        False,
        "baseline",
        None,
    )
    assert "No blend of 2" in chosen.evidence


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
    assert recommend(runs, "cpu", PARAMS).arm == "cosine"
    chosen = recommend(with_metric(runs, "cosine", 2, metric, value), "cpu", PARAMS)
    assert chosen.arm == "linear"
    assert reason in chosen.dropped["cosine"]


def test_a_judge_that_is_often_unreadable_drops_no_arm() -> None:
    runs = collected({arm: flat(0.4, 0.5) for arm in ("off", "linear", "cosine", "exp")})
    valid = runs.metrics.metric.eq("actor/ref_quality/valid_rate")
    runs.metrics.loc[valid, "value"] = 0.7
    assert recommend(runs, "cpu", PARAMS).judge_invalid_rate == pytest.approx(0.3)
    runs.metrics.loc[valid & runs.metrics.arm.eq("exp"), "value"] = 0.35
    pool = read_pool(runs, "cpu", PARAMS)
    assert [candidate.arm for candidate in pool.candidates] == ["linear", "cosine"]
    assert "65.0%" in pool.dropped["exp"]


def test_failed_seeds_and_collapse_drop_an_arm() -> None:
    runs = collected({"off": flat(0.4, 0.4), "linear": flat(0.5, 0.5), "cosine": flat(0.9, 0.9)})
    runs.runs.loc[runs.runs.arm.eq("cosine") & runs.runs.seed.eq(2), "status"] = "failed"
    assert recommend(runs, "cpu", PARAMS).dropped["cosine"] == "seed 2 failed"

    curve = [0.2, *[0.9] * 11]
    runs = collected(
        {"off": [[0.2, *[0.4] * 11]] * 2, "linear": [curve] * 2, "cosine": [curve] * 2}
    )
    entropy = runs.metrics.metric.eq("actor/entropy") & runs.metrics.arm.eq("linear")
    runs.metrics.loc[entropy & runs.metrics.seed.eq(1) & runs.metrics.step.gt(20), "value"] = 0.01
    chosen = recommend(runs, "cpu", PARAMS)
    assert chosen.dropped["linear"] == "seed 1: the entropy collapsed"
    assert chosen.dropped["exp"] == "has no runs among the collected ones"
    assert chosen.arm == "cosine"


def test_controls_other_judges_and_other_estimators_are_no_candidates() -> None:
    arms = ("off", "linear", "shuffled", "random_terminal", "gae_off", "gae_linear")
    runs = collected({arm: flat(0.4, 0.4) for arm in arms})
    pool = read_pool(runs, "cpu", PARAMS)
    assert [candidate.arm for candidate in pool.candidates] == ["linear"]
    unsuitable = {arm for arm, reason in pool.dropped.items() if "no runs" not in reason}
    assert unsuitable >= {"shuffled", "random_terminal", "gae_off", "gae_linear"}
    assert "linear_mean" not in unsuitable
    weak = read_pool(
        collected({arm: flat(0.4, 0.4) for arm in ("off", "weak_linear_terminal")}),
        "cpu",
        PARAMS,
        ("A", "H"),
    )
    assert weak.dropped["weak_linear_terminal"] == "another judge than the scale's"


def test_too_few_seeds_are_an_error() -> None:
    with pytest.raises(StudyError, match="1 seeds with validations"):
        recommend(collected({"off": flat(0.4), "linear": flat(0.5)}), "cpu", PARAMS)
    with pytest.raises(StudyError, match="not among the collected runs"):
        recommend(collected({"linear": flat(0.5, 0.5)}), "cpu", PARAMS)


def test_evidence_says_when_nothing_can_be_told_apart() -> None:
    runs = collected({"off": flat(0.40, 0.50, 0.45), "linear": flat(0.50, 0.41, 0.46)})
    chosen = recommend(runs, "cpu", PARAMS)
    assert chosen.level == "none"
    assert "not distinguishable from off" in chosen.evidence


def test_equal_differences_are_no_evidence() -> None:
    runs = collected({"off": flat(0.25, 0.5, 0.375), "linear": flat(0.5, 0.75, 0.625)})
    chosen = recommend(runs, "cpu", PARAMS)
    assert (chosen.arm, chosen.level) == ("linear", "none")


def test_evidence_before_and_after_the_correction_for_the_choice() -> None:
    """The same differences among one candidate and among six."""
    gains = (0.030, 0.050, 0.047)
    best = {"off": flat(0.4, 0.4, 0.4), "linear": flat(*(0.4 + gain for gain in gains))}
    assert recommend(collected(best), "cpu", PARAMS).level == "clear"
    others = ("cosine", "exp", "constant", "inverse", "schedule")
    many = recommend(collected(best | {arm: flat(0.4, 0.4, 0.4) for arm in others}), "cpu", PARAMS)
    assert (many.arm, many.level) == ("linear", "weak")
    assert "only before correction" in many.evidence


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


def test_a_table_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("attack,lift\nx,1\n")
    with pytest.raises(StudyError, match="no column neutral_mean, low, valid_rate"):
        read_attacks(tmp_path / "a.csv")
    with pytest.raises(StudyError, match="cannot be read"):
        read_attacks(tmp_path / "b.csv")


@pytest.mark.parametrize("better", ["off", "linear", "piecewise_terminal"])
def test_the_file_is_a_complete_overlay(tmp_path: Path, better: str) -> None:
    levels = {arm: flat(0.4, 0.42, 0.41) for arm in ("off", "linear", "piecewise_terminal")}
    runs = collected(levels | {better: flat(0.7, 0.71, 0.72)})
    table = attacks(("flood", 0.4, 0.3, 0.0))
    chosen = recommend(runs, "cpu", PARAMS, table)
    path = tmp_path / "recommended.yaml"
    write_recommendation(chosen, path)

    loaded = load_config([*config_files("cpu", PARAMS), path])
    assert loaded == chosen.config
    blend = loaded.algorithm.ref_quality_score
    assert blend.enable == (better != "off")
    assert blend.scoring.on_failure == ("invalid_score" if better == "off" else "rule_reward")
    written = yaml.safe_load(path.read_text())["algorithm"]["ref_quality_score"]
    assert set(written) == set(type(blend).model_fields)
    head = [line for line in path.read_text().splitlines() if line.startswith("#")]
    text = " ".join(line.removeprefix("# ") for line in head)
    for part in (f"arm {better}", "seeds 1, 2, 3", "aaaaaaaaaa", "standard error", "on_failure."):
        assert part in text
    assert all(len(line) <= 100 for line in head)
    stored = json.loads(path.with_suffix(".json").read_text())
    assert stored["arm"] == better
    assert len(stored["candidates"]) == 2
    assert (tmp_path / "recommended.yaml").read_bytes() == path.read_bytes()


def test_command_line(tmp_path: Path, make_run: Callable[..., Path]) -> None:
    runs = collected({"off": flat(0.4, 0.4, 0.41), "linear": flat(0.5, 0.5, 0.52)})
    write_collected(runs, tmp_path / "m2")
    out = tmp_path / "m3" / "recommended.yaml"
    arguments = ["recommend", "--collected", tmp_path / "m2", "--scale", "cpu", "--out", out]
    result = CliRunner().invoke(app, [*map(str, arguments), "--params", str(PARAMS)])
    assert result.exit_code == 0, result.output or result.exception
    assert "linear − off: +0.1033" in result.output
    first = out.read_bytes()
    CliRunner().invoke(app, [*map(str, arguments), "--params", str(PARAMS)])
    assert out.read_bytes() == first
