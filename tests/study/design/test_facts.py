"""Facts about experiments: declared in their files, or read from resolved configurations."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from refblend.errors import StudyError
from refblend.study.design.arms import Arm, resolve_arms
from refblend.study.design.grid import build_grid
from refblend.study.design.jobs import replayed_arm
from refblend.study.design.spec import experiments_of, load_experiment
from refblend.trainer.replay import partner_seed

PARAMS = Path(__file__).parents[3] / "params"
SCORE = "algorithm.ref_quality_score"
FACTS: dict[str, Any] = {
    "title": "Facts",
    "question": "Which?",
    "baseline": "plain",
    "seeds": {"smoke": [1]},
    "arms": {
        "plain": {f"{SCORE}.enable": False},
        "mixed_up": {f"{SCORE}.placement": "terminal", f"{SCORE}.max_weight": 0.1},
        "gae_terminal": {f"{SCORE}.strategy": "cosine", f"{SCORE}.max_weight": 0.2},
        "dice": {f"{SCORE}.scoring.control": "random", "algorithm.adv_estimator": "gae"},
    },
}


def write(tmp_path: Path, **more: Any) -> Path:
    """A copy of the parameters with one experiment, ZX."""
    for name in ("ppo.yaml", "scale/smoke.yaml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text((PARAMS / name).read_text())
    path = tmp_path / "study" / "ZX.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump(FACTS | more, sort_keys=False))
    return path


def arms_of(path: Path) -> dict[str, Arm]:
    return resolve_arms({"ZX": load_experiment(path)}, "smoke", path.parents[1])


def test_an_arm_is_what_its_configuration_says(tmp_path: Path) -> None:
    arms = arms_of(write(tmp_path))
    assert [arm.blend for arm in arms.values()] == ["no judge", "linear", "cosine", "random"]
    assert [arm.score.placement for arm in arms.values()].count("per_token") == 3
    assert {arm.judge for arm in arms.values()} == {"medium"}
    assert arms["gae_terminal"].settings[f"{SCORE}.max_weight"] == 0.2


def test_an_arm_has_what_its_overlay_chooses_once_it_exists(tmp_path: Path) -> None:
    overlay = tmp_path / "chosen.yaml"
    arms = FACTS["arms"] | {"chosen": {"overlay": str(overlay), f"{SCORE}.max_weight": 0.1}}
    path = write(tmp_path, arms=arms)
    before = arms_of(path)["chosen"]
    assert (before.blend, before.score.placement) == ("linear", "per_token")
    chosen = {"strategy": "constant", "placement": "terminal", "max_weight": 0.9}
    overlay.write_text(yaml.safe_dump({"algorithm": {"ref_quality_score": chosen}}))
    arm = arms_of(path)["chosen"]
    assert (arm.blend, arm.score.placement) == ("constant", "terminal")
    assert arm.settings[f"{SCORE}.max_weight"] == 0.1, "an arm's own overrides win"


def contrast(**pairs: str) -> dict[str, Any]:
    return {"contrasts": [{"name": "c", "pairs": pairs}]}


def sweep(key: str, rule: str, *arms: str) -> dict[str, Any]:
    return {"sweep": {"key": key, "rule": rule, "arms": [*arms]}}


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (contrast(mixed="plain"), "contrasts.0.pairs names mixed"),
        (contrast(plain="no"), "contrasts.0.pairs names no"),
        (sweep("a", "knee", "x"), "sweep.arms names x"),
        (sweep("a", "peak", "plain"), "sweep.rule"),
        ({"facet": "placement"}, "facet is placement"),
        (
            {"factors": {"size": f"{SCORE}.max_wieght"}},
            f"factors.size: .* no key {SCORE}.max_wieght",
        ),
        (sweep(f"{SCORE}.max", "knee", "mixed_up"), "sweep.key: .* no key"),
        (
            sweep(f"{SCORE}.placement", "knee", "mixed_up", "gae_terminal"),
            "sweep.arms: .* is terminal, per_token",
        ),
    ],
)
def test_a_wrong_fact_names_file_and_key(tmp_path: Path, more: dict[str, Any], says: str) -> None:
    path = write(tmp_path, **more)
    with pytest.raises(StudyError, match=says) as caught:
        arms_of(path)
    assert str(path) in str(caught.value)


def test_experiments_belong_to_the_milestone_that_they_name(tmp_path: Path) -> None:
    path = write(tmp_path)
    (path.parent / "Q.yaml").write_text(yaml.safe_dump(FACTS | {"milestone": "m1"}))
    assert experiments_of("m1", tmp_path, "smoke") == ["Q"]
    assert experiments_of("m2", tmp_path, "smoke") == ["ZX"]
    assert experiments_of("m2", tmp_path, "gpu") == [], "it has no seeds there"
    noisy = ["noisy_baselines", "noisy_dose", "noisy_entropy"]
    series = ["exact_drgrpo", *noisy, "oracles", "sparse_drgrpo"]
    assert experiments_of("m2", PARAMS, "cpu") == [*"ABCEFHLN", *series]


def test_an_arm_waits_for_the_runs_whose_weights_it_replays() -> None:
    grid = build_grid(["L"], "cpu", PARAMS).drop_duplicates("arm").set_index("arm")
    replayed = {arm: replayed_arm(json.loads(row.overrides)) for arm, row in grid.iterrows()}
    awaited = {arm: other for arm, other in replayed.items() if other}
    assert awaited == {"yoked": "linear_auto", "yoked_mean": "linear_auto"}


def test_seeds_that_replay_their_partner_come_in_pairs() -> None:
    spec = load_experiment(PARAMS / "study" / "L.yaml")
    for scale in spec.seeds:
        seeds = spec.seeds_by_arm(scale)
        for arm in {"yoked", "yoked_mean"} & seeds.keys():
            assert set(map(partner_seed, seeds[arm])) <= set(seeds["linear_auto"])
