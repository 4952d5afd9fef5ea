"""What is recommended in a regime, from made verdicts; the committed files follow from our runs."""

from pathlib import Path

import pandas as pd
import pytest

from refblend.config.loading import load_config
from refblend.study.design.arms import resolve_arms
from refblend.study.design.grid import config_files
from refblend.study.design.spec import load_experiments
from refblend.study.recommend import Recommendation, overlay, recommendations

ROOT = Path(__file__).parents[2]
SPECS = load_experiments(ROOT / "params")
NOISY = {"noisy_entropy": SPECS["noisy_entropy"]}
ARMS = resolve_arms(NOISY, "cpu", ROOT / "params")


def verdicts(
    experiment: str, reference: str, endpoint: str, **arms: tuple[float, str]
) -> pd.DataFrame:
    """Rows of verdicts.csv: arm → difference and verdict."""
    rows = [
        {"experiment": experiment, "treated": arm, "reference": reference, "endpoint": endpoint}
        | {"estimate": estimate, "low": estimate - 0.01, "high": estimate + 0.01, "n": 40}
        | {"verdict": verdict}
        for arm, (estimate, verdict) in arms.items()
    ]
    return pd.DataFrame(rows)


def recommended(table: pd.DataFrame) -> list[Recommendation]:
    return recommendations(table, NOISY, ARMS, "cpu")


def test_the_best_blend_is_chosen_by_the_endpoint_and_its_own_verdict_decides() -> None:
    table = pd.concat(
        [
            verdicts(
                "noisy_entropy",
                "noisy_off",
                "train_acc",
                noisy_oracle=(0.2, "better"),  # no user has it
                noisy_yoked=(0.1, "better"),  # another run's weights
                noisy_judge=(0.02, "better"),
                noisy_inverse=(0.03, "better"),
                noisy_linear=(float("nan"), "undecided"),
            ),
            verdicts("noisy_entropy", "noisy_off", "test_greedy", noisy_c045=(0.3, "better")),
            verdicts("noisy_entropy", "noisy_judge", "train_acc", noisy_c045=(0.3, "better")),
        ]
    )
    (found,) = recommended(table)
    assert (found.regime, found.arm, found.candidates) == ("noisy", "noisy_inverse", 2)
    assert found.blends
    ahead = table.assign(verdict="undecided")
    assert [each.blends for each in recommended(ahead)] == [False]
    assert recommended(table[table.endpoint == "test_greedy"]) == []


def test_an_arm_with_fewer_seeds_is_no_candidate() -> None:
    table = verdicts(
        "noisy_entropy",
        "noisy_off",
        "train_acc",
        noisy_judge=(0.02, "better"),
        noisy_inverse=(0.03, "undecided"),
    )
    fewer = NOISY["noisy_entropy"].model_copy(
        update={"arm_seeds": {"cpu": {"noisy_inverse": range(201, 205)}}}
    )
    (found,) = recommendations(table, {"noisy_entropy": fewer}, ARMS, "cpu")
    assert (found.arm, found.candidates, found.blends) == ("noisy_judge", 1, True)


@pytest.mark.parametrize("verdict", ["better", "equivalent"])
def test_the_overlay_trains_the_chosen_arm_without_its_regime(tmp_path: Path, verdict: str) -> None:
    table = verdicts("noisy_entropy", "noisy_off", "train_acc", noisy_auto=(0.03, verdict))
    (chosen,) = recommended(table)
    path = tmp_path / "noisy.yaml"
    path.write_text(overlay(chosen, NOISY["noisy_entropy"], "cpu", ARMS["noisy_auto"]))
    mine = tmp_path / "mine.yaml"
    mine.write_text("algorithm: {ref_quality_score: {max_weight: 0.2, groups: mixed}}\n")
    files = [*config_files("cpu", ROOT / "params"), *([str(mine)] if verdict == "better" else [])]
    config = load_config([*files, str(path)], [])
    expected = ARMS["noisy_auto" if verdict == "better" else "noisy_off"].config
    assert config.algorithm == expected.algorithm
    assert config.reward.verifier.flip_rate == 0
    told = path.read_text().replace("\n# ", " ")
    assert f"{verdict}. noisy_auto − noisy_off: +0.030 [+0.020, +0.040]" in told


def test_the_committed_recommendations_follow_from_the_committed_verdicts() -> None:
    table = pd.read_csv(ROOT / "results" / "cpu" / "verdicts.csv")
    specs = {name: SPECS[name] for name in ("M3", "noisy_entropy")}
    arms = resolve_arms(specs, "cpu", ROOT / "params")
    found = recommendations(table, specs, arms, "cpu")
    for each in found:
        text = (ROOT / "params" / "recommended" / f"{each.regime}.yaml").read_text()
        assert text == overlay(each, specs[each.experiment], "cpu", arms[each.arm])
    assert {each.regime for each in found} == {"exact", "sparse", "noisy"}
