"""The advice as a whole: what it recommends, reads, refuses and writes."""

import json
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from made_rollouts import rollouts, slow_alignment
from typer.testing import CliRunner

import refblend
from refblend.advice.alignment import Blend
from refblend.advice.rollouts import Columns, read_rollouts
from refblend.cli.main import app
from refblend.errors import DataError

UNBLENDED = Blend(0.0)


def advised(tmp_path: Path, *arguments: str) -> tuple[dict[str, Any], str]:
    """What the command reports and prints."""
    report = tmp_path / "report.json"
    result = CliRunner().invoke(app, ["advise", *arguments, "--report", str(report)])
    assert result.exit_code == 0, result.output
    return json.loads(report.read_text()), result.output


def test_a_noisy_rule_and_a_good_judge_ask_for_a_blend():
    advice = refblend.advise(rollouts(300, skill=2.0))
    assert advice.verdict == "blend"
    assert advice.gain_low > 0
    assert 0.2 <= advice.weight <= 0.9
    assert advice.placement == "terminal"
    assert advice.prompts_needed is None


def test_an_exact_rule_is_left_alone():
    advice = refblend.advise(rollouts(300, flip=0.0))
    assert advice.verdict == "leave"
    assert advice.unblended > 0.95
    assert advice.reward_auc == 1.0


def test_a_range_of_good_weights_is_told_only_where_there_is_one():
    advice = replace(refblend.advise(rollouts(40)), weight=0.3, weight_low=0.2, weight_high=0.4)
    assert "w = 0.3; from 0.2 to 0.4 it is as good" in str(advice)
    alone = str(replace(advice, weight_low=0.3, weight_high=0.3))
    assert "w = 0.3" in alone
    assert "as good" not in alone


def gains_by_hand(frame: pd.DataFrame, seed: int) -> np.ndarray:
    """Gain of each w > 0, terminal and in all groups, on 500 redrawn sets of prompts; (500, 20)."""
    sums = []  # by prompt: Σ A·a and ΣA² of each w, and Σa²
    for _, group in frame.groupby("prompt_id"):
        truth, reward, score = group[["truth", "reward", "judge_score"]].to_numpy().T
        right = truth - truth.mean()
        mixed = [(1 - w) * reward + w * score for w in np.arange(21) / 20]
        own = np.array([(r - r.mean()) / (r.std(ddof=1) + 1e-6) for r in mixed])
        sums.append((own @ right, (own**2).sum(1), (right**2).sum()))
    cross, own, truth = (np.array(part) for part in zip(*sums, strict=True))
    drawn = np.random.default_rng(seed).integers(len(truth), size=(500, len(truth)))
    total = truth[drawn].sum(1)[:, None]
    found = cross[drawn].sum(1) / np.sqrt(own[drawn].sum(1) * total)
    return found[:, 1:] - found[:, :1]


@pytest.mark.parametrize(
    ("made", "verdict"),
    [
        ({"prompts": 20, "n": 4, "flip": 0.2, "skill": 0.4, "seed": 2}, "undecided"),
        ({"prompts": 300, "flip": 0.1, "skill": 0.3, "seed": 1}, "leave"),
    ],
)
def test_where_no_blend_is_best_the_intervals_of_all_blends_decide(made, verdict):
    frame = rollouts(**made).drop(columns="length")
    advice = refblend.advise(frame)
    curve = advice.curves[0].alignment
    assert max(curve) == curve[0], "no blend is best, or the test says nothing"
    gains = gains_by_hand(frame, seed=1)
    best = gains[:, round(advice.weight * 20) - 1]
    assert advice.weight > 0
    assert advice.gain == pytest.approx(best.mean(), abs=0.01)
    low, high = np.quantile(best, [0.025, 0.975])
    assert (advice.gain_low, advice.gain_high) == pytest.approx((low, high), abs=0.02)
    assert advice.verdict == verdict
    assert (np.quantile(gains, 0.975, axis=0).max() < 0.02) == (verdict == "leave")
    assert (advice.prompts_needed is None) == (verdict == "leave")


def test_the_best_blend_is_the_best_of_all_kinds_above_zero():
    # An all but exact reward, half of the groups without signal: only mixed groups bear a blend.
    frame = rollouts(prompts=40, flip=0.0, skill=0.1, seed=3)
    frame.loc[frame.prompt_id % 2 == 1, ["truth", "reward"]] = 1.0
    advice = refblend.advise(frame, mixed_groups=True)
    best = max(max(curve.alignment[1:]) for curve in advice.curves)
    assert advice.groups == "mixed"
    assert advice.gain == pytest.approx(best - advice.unblended)


def test_a_simpler_blend_is_no_choice_if_only_the_best_one_matters(monkeypatch):
    monkeypatch.setattr("refblend.advice.alignment.RESAMPLES", 200)
    # On the last token a gain of 0.016, certainly below 0.02; on every token 0.02.
    frame = rollouts(60, flip=0.1, skill=0.83, seed=5).drop(columns="entropy")
    frame["length"] = 1 + 0.04 * frame.truth
    parts = [frame.assign(prompt_id=frame.prompt_id + 60 * copy) for copy in range(100)]
    advice = refblend.advise(pd.concat(parts))
    assert (advice.verdict, advice.placement) == ("blend", "per_token")
    assert advice.gain >= 0.02


def test_prompts_may_be_numbers_or_text():
    frame = rollouts(prompts=30)
    named = frame.assign(prompt_id=frame.prompt_id.astype(str))
    assert refblend.advise(frame) == refblend.advise(named)


def test_too_few_labels_say_how_many_would_do():
    frame = rollouts(30, skill=0.5)
    advice = refblend.advise(frame)
    assert advice.verdict == "undecided"
    assert advice.prompts_needed is not None
    assert advice.prompts_needed > 30


def test_without_lengths_and_entropies_what_needs_them_is_left_out():
    advice = refblend.advise(rollouts(60).drop(columns=["length", "entropy"]))
    assert advice.map_gain is None
    assert {curve.placement for curve in advice.curves} == {"terminal"}
    assert json.dumps(advice.to_dict())


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda f: f.drop(columns="truth"), "truth"),
        (lambda f: f.assign(truth=float("nan")), "0 prompts"),
        (lambda f: f.assign(judge_score=2.0), "judge_score"),
        (lambda f: f.assign(reward=1.0), "never differs"),
        (lambda f: f.assign(reward=f.reward.replace(1.0, float("inf"))), "infinite"),
        (lambda f: f.drop_duplicates("prompt_id"), "two responses"),
    ],
)
def test_rollouts_that_cannot_answer_are_refused(change, named):
    with pytest.raises(DataError, match=named):
        refblend.advise(change(rollouts(20)))


FORMATS = {
    "refblend": {"prompt_id": "uid", "truth": "acc", "sample": "sample"},
    "verl": {"prompt_id": "input", "reward": "score", "truth": "acc", "response": "output"},
    "trl": {
        "prompt_id": "prompt",
        "reward": "correct",
        "judge_score": "judge",
        "response": "completion",
        "advantage": "advantage",
    },
    "plain": {},
}


def as_written(frame: pd.DataFrame, trainer: str) -> pd.DataFrame:
    """The rollouts with a trainer's columns."""
    names = FORMATS[trainer]
    own = dict.fromkeys(names.keys() - {*frame, "response"}, 0.0)
    return frame.assign(response="x", **own).rename(columns=names)


@pytest.mark.parametrize("trainer", FORMATS)
@pytest.mark.parametrize("suffix", [".jsonl", ".parquet", ".csv"])
def test_rollouts_of_every_trainer_are_read(tmp_path, trainer, suffix):
    frame = rollouts(20)
    kept = as_written(frame, trainer)
    first, second = kept.iloc[:80], kept.iloc[80:]
    for number, part in enumerate((first, second)):
        path = tmp_path / f"{number}{suffix}"
        if suffix == ".jsonl":
            part.to_json(path, orient="records", lines=True)
        elif suffix == ".parquet":
            part.to_parquet(path)
        else:
            part.to_csv(path, index=False)
    found = read_rollouts(tmp_path)
    assert found.own == (trainer == "refblend")
    expected, advice = refblend.advise(frame), refblend.advise(found.frame)
    assert (advice.responses, advice.prompts) == (160, 20)
    assert advice.labelled_prompts == expected.labelled_prompts
    assert advice.curves[0].alignment == pytest.approx(expected.curves[0].alignment)


def test_scores_that_trls_plug_in_logged_win_over_what_it_added_to_the_reward(tmp_path):
    frame = rollouts(20).assign(advantage=0.0, completion="x", judge=-0.5)
    frame.rename(columns={"prompt_id": "prompt", "reward": "correct"}).to_parquet(
        tmp_path / "0.parquet"
    )
    found = read_rollouts(tmp_path).frame
    assert found.judge_score.tolist() == frame.judge_score.tolist()
    assert found.reward.tolist() == frame.reward.tolist()


def test_a_column_of_another_name_is_named(tmp_path):
    path = tmp_path / "rollouts.csv"
    rollouts(20).rename(columns={"truth": "human"}).to_csv(path, index=False)
    with pytest.raises(DataError, match=r"truth.*human"):
        read_rollouts(path)
    assert read_rollouts(path, Columns(truth="human")).frame.truth.notna().all()


def test_responses_without_a_prompt_are_left_out(tmp_path):
    path = tmp_path / "rollouts.jsonl"
    frame = rollouts(30).astype({"prompt_id": object})
    frame.loc[frame.prompt_id < 2, "prompt_id"] = None
    frame.to_json(path, orient="records", lines=True)
    assert refblend.advise(read_rollouts(path).frame).prompts == 28


def test_a_cell_that_is_no_number_is_named(tmp_path):
    path = tmp_path / "rollouts.csv"
    frame = rollouts(20).astype({"truth": object})
    frame.loc[3, "truth"] = "right"
    frame.to_csv(path, index=False)
    with pytest.raises(DataError, match=r"truth of row 3 is 'right'"):
        read_rollouts(path)


def test_the_command_prints_and_writes(tmp_path):
    path = tmp_path / "rollouts.csv"
    rollouts(40).to_csv(path, index=False)
    report, printed = advised(tmp_path, str(path), "--figure", str(tmp_path / "f.svg"))
    assert (tmp_path / "f.svg").read_text().startswith("<?xml")
    assert report["sentence"] in printed
    assert pd.DataFrame(report["curves"][0]).shape[0] == 21
    rollouts(40).assign(judge_score=0.5).to_csv(path, index=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report, _ = advised(tmp_path, str(path))
    assert report["curves"][0]["alignment"][-1] is None, "a dead judge alone moves nothing"


@pytest.mark.parametrize("trainer", FORMATS)
def test_only_refblends_own_trainer_is_offered_a_blend_in_mixed_groups(tmp_path, trainer):
    path = tmp_path / "rollouts.csv"
    as_written(rollouts(40), trainer).to_csv(path, index=False)
    report, _ = advised(tmp_path, str(path))
    groups = {curve["groups"] for curve in report["curves"]}
    assert groups == ({"all", "mixed"} if trainer == "refblend" else {"all"})


@pytest.mark.parametrize(("option", "by_std"), [([], True), (["--no-norm-by-std"], False)])
def test_the_command_is_told_how_the_trainer_normalises(tmp_path, option, by_std):
    path, frame = tmp_path / "rollouts.csv", rollouts(30)
    frame.to_csv(path, index=False)
    report, _ = advised(tmp_path, str(path), *option)
    assert report["unblended"] == pytest.approx(slow_alignment(frame, UNBLENDED, by_std))


def test_a_prompt_that_comes_back_is_no_new_prompt_for_the_intervals(tmp_path):
    once = rollouts(20).astype({"prompt_id": str})  # as from a file: their order decides the draws
    later = once.assign(step=2, reward=once.reward + 1)  # a group's mean does not matter
    path = tmp_path / "rollouts.csv"
    pd.concat([once.assign(step=1), later]).to_csv(path, index=False)
    expected, found = refblend.advise(once), refblend.advise(read_rollouts(path).frame)
    assert (found.prompts, found.responses) == (20, 320)
    for name in ("unblended", "gain", "gain_low", "gain_high", "judge_auc", "without_signal"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name))


def test_a_run_is_read_at_its_first_step_or_at_those_that_are_named(tmp_path):
    run = tmp_path / "run"
    (run / "rollouts").mkdir(parents=True)
    parts = {step: rollouts(20, seed=step).assign(step=step, sample=0) for step in (5, 10, 15)}
    for step, part in parts.items():
        names = {"prompt_id": "uid", "truth": "acc"}
        file = run / "rollouts" / f"{step}.jsonl"
        part.rename(columns=names).to_json(file, orient="records", lines=True)

    def told(*option: str) -> tuple[int, int, float]:
        found, _ = advised(tmp_path, str(run), *option)
        return found["responses"], found["prompts"], pytest.approx(found["unblended"])

    def expected(*steps: int) -> tuple[int, int, float]:
        whole = pd.concat([parts[step] for step in steps])
        whole["prompt_id"] = whole.prompt_id + 1000 * whole.step  # groups; the prompts are 20
        return len(whole), 20, slow_alignment(whole, UNBLENDED)

    assert told() == expected(5)
    assert told("--steps", "10") == expected(10)
    assert told("--steps", "6-15") == expected(10, 15)
    for wrong in ("6-9", "late", "5-"):
        assert CliRunner().invoke(app, ["advise", str(run), "--steps", wrong]).exit_code != 0


@pytest.mark.parametrize(
    ("setting", "by_std"),
    [
        ("norm_adv_by_std_in_grpo=true", True),
        ("norm_adv_by_std_in_grpo=false", False),
        ("adv_estimator=rloo", False),
    ],
)
def test_sampled_rollouts_are_normalised_as_the_configuration_says(
    tmp_path, monkeypatch, setting, by_std
):
    frame = rollouts(30)
    monkeypatch.setattr("refblend.advice.sampling.sample_rollouts", lambda *_: frame)
    monkeypatch.setattr("refblend.runtime.configure_process", lambda: None)
    given = ["--model", "actor", "--judge", "judge", "--data", "prompts.parquet"]
    report, _ = advised(tmp_path, *given, "--set", f"algorithm.{setting}")
    assert report["unblended"] == pytest.approx(slow_alignment(frame, UNBLENDED, by_std))


def test_neither_ray_nor_vllm_is_needed():
    code = (
        "import sys; sys.modules['ray'] = sys.modules['vllm'] = None\n"
        "import pandas as pd, refblend\n"
        "f = pd.DataFrame({'prompt_id': [i // 4 for i in range(80)]})\n"
        "f = f.assign(truth=[0, 1, 1, 0] * 20, reward=[0, 1, 0, 0] * 20)\n"
        "f = f.assign(judge_score=f.truth)\n"
        "print(refblend.advise(f).verdict)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
