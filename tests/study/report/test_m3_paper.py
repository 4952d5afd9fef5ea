"""The write-up's sentences follow the verdicts, for every outcome and at every scale."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from m3_project import PARAMS, MakeRun, inputs_of, made, make_project

from refblend.errors import StudyError
from refblend.study.design.arms import resolve_arms
from refblend.study.design.grid import resolve_arm
from refblend.study.design.spec import experiments_of
from refblend.study.report.m3.arms import blend_text
from refblend.study.report.m3.paper import validation_problems
from refblend.study.report.m3.study import LATER
from refblend.study.report.publish import made_from
from refblend.study.report.questions import question_of
from refblend.study.report.registry import load_report, read_experiments
from refblend.study.report.shared import arm_and_start, curve_name
from refblend.study.stats.verdicts import VERDICTS

PAIRS = {
    "oracle": ("oracle", "off"),
    "judge": ("constant_terminal", "off"),
    "judgement": ("linear_terminal", "shuffled_terminal"),
    "entropy": ("linear_auto", "yoked"),
    "other": ("dr_w06", "dr_w01"),
}
SAYS = {
    "oracle": {
        "better": "in these a score can help",
        "equivalent": "Even the oracle is equivalent to no blend everywhere",
        "worse": "The setting may be insensitive to any score",
        "undecided": "The setting may be insensitive to any score",
    },
    "judge": {
        "better": "One contrast of M2: it is better.",
        "equivalent": "No blend of the judge's score is shown to be better than none.",
        "worse": "No blend of the judge's score is shown to be better than none.",
        "undecided": "No blend of the judge's score is shown to be better than none.",
    },
    "judgement": {
        "better": "There the judgement itself counts.",
        "equivalent": "nothing here can be credited to the judge's judgement",
        "worse": "That the judgement counts is not shown.",
        "undecided": "That the judgement counts is not shown.",
    },
    "entropy": {
        "better": "There the entropy is worth something.",
        "equivalent": "refutes the idea at this scale, for an exact rule reward and the score on",
        "worse": "That the entropy is worth anything is not shown.",
        "undecided": "That the entropy is worth anything is not shown.",
    },
}
LIMITED = "the judge is not better although the oracle is"


def write_verdicts(project: Path, verdicts: dict[str, str], scale: str = "cpu") -> None:
    """M2's table with a primary contrast of each question that is named, and its verdict."""
    path = project / "results" / scale / "m2" / "tables" / "verdicts.csv"
    columns = pd.read_csv(path)
    rows = []
    for question, verdict in verdicts.items():
        treated, reference = PAIRS[question]
        row = dict(columns.iloc[0]) | {"experiment": "X", "contrast": f"of {question}"}
        row |= {"treated": treated, "reference": reference, "verdict": verdict}
        row |= {"seeds_needed": 9 if question == "oracle" else 40}
        rows.append(row)
    pd.DataFrame(rows, columns=columns.columns).to_csv(path, index=False)


@pytest.fixture
def project(tmp_path: Path, make_run: MakeRun) -> Path:
    return make_project(tmp_path, make_run)


def test_contrasts_belong_to_questions_by_what_their_arms_are() -> None:
    specs = read_experiments(tuple(experiments_of("m2", PARAMS, scale="cpu")), PARAMS)
    arms = resolve_arms(specs, "cpu", PARAMS)
    further = [
        ("entropy", "linear_terminal", "constant_terminal"),
        ("entropy", "linear_auto", "yoked_mean"),
        ("oracle", "hard_oracle", "hard_off"),
        ("judge", "decay_terminal", "off"),
        ("judgement", "decay_terminal", "decay_shuffled"),
        ("other", "linear_auto", "inverse_auto"),
        ("other", "constant_terminal", "decay_terminal"),
        ("other", "shuffled_terminal", "off"),
        ("other", "off", "linear"),
    ]
    for question, treated, reference in [(name, *pair) for name, pair in PAIRS.items()] + further:
        assert question_of(arms[treated], arms[reference]) == question, (treated, reference)


@pytest.mark.parametrize("verdict", VERDICTS)
def test_each_question_is_answered_by_its_verdicts(project: Path, verdict: str) -> None:
    write_verdicts(project, dict.fromkeys(PAIRS, verdict))
    text = made(project).text
    for question, answers in SAYS.items():
        assert answers[verdict] in text, question
        others = {answer for name, answer in answers.items() if answer != answers[verdict]}
        assert [answer for answer in others if answer in text] == [], question
    counts = [len(PAIRS) * (name == verdict) for name in VERDICTS]
    abstract = text.split("\n## ")[0]
    found = re.search(
        r"Of 5 primary contrasts of M2 (\d) \w+ better, (\d) worse, (\d) equivalent and "
        r"(\d) undecided",
        abstract,
    )
    assert found is not None
    assert [int(number) for number in found.groups()] == counts
    assert ("may be insensitive to any score" in abstract) == (verdict != "better")
    wanted = "`constant_terminal` − `off` (X, test accuracy (sampled)) 40; "
    assert (wanted in text) == (verdict == "undecided")
    at_least = "`oracle` − `off` (X, test accuracy (sampled)) more than 10; "
    assert (at_least in text) == (verdict == "undecided")
    assert text.count("of oracle") == 1, "each contrast stands in one table"


@pytest.mark.parametrize(
    ("oracle", "judge", "limited"),
    [
        ("better", "equivalent", True),
        ("better", "worse", True),
        ("better", "better", False),
        ("better", "undecided", False),
        ("undecided", "equivalent", False),
    ],
)
def test_the_judge_s_quality_is_blamed_only_where_the_oracle_gains(
    project: Path, oracle: str, judge: str, limited: bool
) -> None:
    write_verdicts(project, {"oracle": oracle, "judge": judge})
    assert (LIMITED in made(project).text) == limited


def test_questions_without_a_contrast_are_said_to_be_open(project: Path) -> None:
    write_verdicts(project, {"other": "better"})
    text = made(project).text
    assert "There is no positive control at this scale." in text
    assert "This scale has no oracle." in text
    others = [SAYS[name] for name in SAYS if name != "judge"]  # M3 has a contrast of that one
    for claim in {answer for answers in others for answer in answers.values()}:
        assert claim not in text
    (project / "results" / "cpu" / "m2" / "tables" / "verdicts.csv").unlink()
    assert "M2 has no verdicts here." in made(project).text


@pytest.mark.parametrize(
    ("scale", "says", "never"),
    [
        ("smoke", "no number below says anything about blending", "Qwen"),
        ("cpu", "Actor and judges are small models trained for this study", "no number below"),
        ("gpu", "The actor is Qwen2.5-0.5B-Instruct, the judge Qwen2.5-1.5B", "small models"),
    ],
)
def test_the_text_is_of_its_scale(
    tmp_path: Path, make_run: MakeRun, scale: str, says: str, never: str
) -> None:
    text = made(make_project(tmp_path, make_run, scale), scale=scale).text
    assert says in text.split("\n## ")[0]
    assert never not in text
    assert ("The same contrasts at scale `gpu`" in text) == (scale != "gpu")
    assert "None" not in text


def test_every_reference_is_cited_and_every_citation_exists(
    tmp_path: Path, make_run: MakeRun
) -> None:
    for scale in ("cpu", "gpu"):
        root = tmp_path / scale
        text = made(make_project(root, make_run, scale), scale=scale).text
        body, listed = text.split("\n## References\n")
        numbers = re.findall(r"^(\d+)\. .+\.$", listed, re.M)
        assert numbers == [str(number) for number in range(1, len(numbers) + 1)]
        cited = {each for group in re.findall(r"\[([\d, ]+)\]", body) for each in group.split(", ")}
        assert cited == set(numbers)


def test_judges_and_other_regimes_are_shown_where_they_were_measured(project: Path) -> None:
    results = inputs_of(project).results
    tables = results / "scoring" / "tables"
    tables.mkdir(parents=True)
    (tables / "judge_quality.csv").write_text(
        "model,form,auc_expected,auc_within,ece_expected,valid_rate\n"
        "judge_weak,few_shot,0.61,0.58,0.1,1\njudge_weak,compact,0.5,0.5,0.3,1\n"
    )
    regimes = results / "m3" / "regimes"
    regimes.mkdir()
    (regimes / "sparse.json").write_text(
        '{"arm": "sparse_judge", "enable": true, "baseline": "sparse_off", "evidence": "Because."}'
    )
    text = made(project).text
    assert "| judge weak | 0.610 | 0.580 | 0.100 | 100% |" in text
    assert "0.500 | 0.500" not in text, "the compact prompt"
    listed = "- *sparse*: arm `sparse_judge` (baseline `sparse_off`; not tested on fresh seeds)."
    assert f"{listed} Because." in text


def test_it_says_what_carries_over_to_another_model(project: Path) -> None:
    results = inputs_of(project).results
    said = made(project)
    absent = "no verdicts to compare with yet (`results/smollm/verdicts.csv`)"
    assert said.text.count("### Does it carry over?") == 1
    assert absent in said.text
    assert said.tables["beside"].empty
    report, inputs = load_report("m3"), inputs_of(project)
    before = made_from(report, inputs)
    elsewhere = results.parent / "smollm" / "verdicts.csv"
    elsewhere.parent.mkdir()
    rows = pd.read_csv(results / "m2" / "tables" / "verdicts.csv").assign(experiment="R")
    rows["verdict"] = ["better", "better", "equivalent", "worse"]
    rows.to_csv(elsewhere, index=False)
    said = made(project)
    assert made_from(report, inputs) != before
    assert absent not in said.text
    assert (
        "Of 4 contrasts of experiment R (a real pretrained model, scale `smollm`) 4 have a "
        "counterpart at scale `cpu`: 1 carries over, 2 do not, and 1 is undecided (1 at `cpu`)."
    ) in said.text
    assert list(said.tables["beside"].there_experiment) == ["A", "A", "A", "L"]
    assert "better (R) | +0.200 [+0.150, +0.250] | better (A)" in re.sub(" +", " ", said.text)


def test_a_scale_that_nothing_is_set_beside_says_nothing_of_it(
    tmp_path: Path, make_run: MakeRun
) -> None:
    assert "carry over" not in made(make_project(tmp_path, make_run, "gpu"), scale="gpu").text


def with_models(project: Path, scale: str = "cpu") -> None:
    """An archive in which M2's runs of G began from one actor, L's and M3's from another."""
    first, second = "actor aaaa1111; judge_medium bbbb", "actor cccc2222; judge_medium dddd"
    rows = [(arm, seed, first) for arm in ("off", "linear") for seed in range(11, 31)]
    rows += [(arm, seed, second) for arm in ("off", "linear_auto") for seed in range(101, 104)]
    frame = pd.DataFrame(rows, columns=["arm", "seed", "models"])
    frame.to_csv(project / "results" / scale / "runs.csv", index=False)
    path = inputs_of(project).collected / "runs.csv"
    runs = pd.read_csv(path, keep_default_na=False)
    runs.assign(models=second).to_csv(path, index=False)


def test_warm_starts_are_told_apart_by_what_the_runs_say(project: Path) -> None:
    text = made(project).text
    assert "warm start" not in text
    assert "These runs start from one actor, use one set of judges" in text
    with_models(project)
    text = made(project).text
    assert "The runs began from 2 warm starts of one recipe, each with judges of its own: " in text
    assert re.search(r"`aaaa1111` \(40 runs, seeds 11 to 30; .*G, .*\) and `cccc2222`", text)
    assert re.search(r"`cccc2222` \(12 runs, seeds 101 to 103; .*L, N; M3\)", text)
    assert "All fresh seeds began from `cccc2222`" in text
    assert "Runs began from 2 warm starts, but those of a contrast from one of them" in text
    assert "with the changes that `docs/explanation/statistics.md` lists" in text


def test_runs_of_different_models_are_not_compared(project: Path) -> None:
    path = inputs_of(project).collected / "runs.csv"
    runs = pd.read_csv(path, keep_default_na=False)
    first, *_ = runs.index[runs.arm == "challenger"]
    runs["models"] = "actor aaaa1111"
    runs.loc[first, "models"] = "actor cccc2222"
    runs.to_csv(path, index=False)
    expected = "M3: challenger − off compares runs of different models, actor "
    with pytest.raises(StudyError, match=expected):
        load_report("m3").read(inputs_of(project))
    runs.assign(models="actor aaaa1111").to_csv(path, index=False)
    assert load_report("m3").read(inputs_of(project))


def test_how_far_a_weight_moved_is_told_of_each_warm_start(project: Path) -> None:
    """Shares of the largest weight, 0.3; as M2 names the curves of an arm of several starts."""
    plots = project / "results" / "cpu" / "m2" / "plots"
    plots.mkdir()
    curves = {
        "cosine": (0.0, 0.3),
        "linear (aaaa1111)": (0.06, 0.12),
        "linear (cccc2222)": (0.0, 0.15),
        "linear_auto": (0.0, 0.3),
        "linear_terminal_w04": (0.0, 0.4),
        "yoked_mean": (0.1, 0.2),
    }
    rows = [
        (arm, step, 0.5, weight) for arm, ends in curves.items() for step, weight in enumerate(ends)
    ]
    table = pd.DataFrame(rows, columns=["arm", "step", "avg_entropy", "weight"])
    table.to_csv(plots / "weight_entropy.csv", index=False)
    assert (
        " A weight that follows the entropy shows what that is worth only as far as it moves. By "
        "the means over seeds it moved over 0.20 of its range in `linear` of start `aaaa1111` "
        "(0.060 to 0.120), 0.50 in `linear` of start `cccc2222` (0.000 to 0.150) and 1.00 in "
        "`linear_auto` (0.000 to 0.300). Runs that did not finish"
    ) in made(project).text


def test_the_name_of_a_curve_says_arm_and_start() -> None:
    assert arm_and_start(curve_name("linear_auto", "3689b40b")) == ("linear_auto", "3689b40b")
    assert arm_and_start("linear_auto") == ("linear_auto", "")


@pytest.mark.parametrize(
    ("verdicts", "says"),
    [
        (("better", "better"), "There the judgement itself counts."),
        (("better", "undecided"), "In the better one the judgement counts; in the other that is"),
        (("undecided", "worse"), "That the judgement counts is not shown."),
    ],
)
def test_the_judgement_counts_where_it_is_better(
    project: Path, verdicts: tuple[str, str], says: str
) -> None:
    write_verdicts(project, {"judgement": verdicts[0], "other": verdicts[1]})
    path = project / "results" / "cpu" / "m2" / "tables" / "verdicts.csv"
    table = pd.read_csv(path)
    table.loc[1, ["treated", "reference"]] = ["decay_terminal", "decay_shuffled"]
    table.to_csv(path, index=False)
    assert says in made(project).text


def test_arms_are_described_by_all_that_sets_them_apart() -> None:
    def told(**blend: object) -> str:
        keys = {
            f"algorithm.ref_quality_score.{key.replace('__', '.')}": blend[key] for key in blend
        }
        return blend_text(resolve_arm(keys, "cpu", PARAMS), usual)

    usual = resolve_arm({"algorithm.ref_quality_score.enable": False}, "cpu", PARAMS)
    assert blend_text(usual) == "no blend, w = 0"
    assert told().endswith("Q_t = q on every response token")
    assert "; blended in mixed groups only" in told(groups="mixed", placement="terminal")
    assert told(scoring__control="shuffled").endswith("; scores shuffled within the batch")
    assert "; the weight divided by the response's length" in told(weight_per_length=True)
    weak = told(scoring__model_path="models/cpu/judge_weak")
    assert weak.endswith("; judge `judge_weak`")


def test_gae_and_dropped_arms_are_named_only_where_they_were_trained(
    project: Path, tmp_path: Path, make_run: MakeRun
) -> None:
    record = project / "results" / "cpu" / "m3" / "recommended.json"
    document = json.loads(record.read_text())
    document["dropped"] = {"gae_linear": "another estimator", "yoked": "replays weights"}
    record.write_text(json.dumps(document))
    said = made(project)
    assert "with a critic is one of the arms" not in said.text
    dropped = said.tables["dropped"]
    assert list(dropped.arm[dropped.reason != LATER]) == ["yoked"]
    elsewhere = made(make_project(tmp_path / "gpu", make_run, "gpu"), scale="gpu")
    assert "GAE [2] with a critic is one of the arms." in elsewhere.text


def test_validation_problems_are_counted_from_the_shares() -> None:
    shares = [50 / 253, 100 / 253, 201 / 253]
    metrics = pd.DataFrame(
        {"arm": "off", "seed": 1, "step": [0, 2, 4], "value": shares}
        | {"metric": "val-core/refblend/arithmetic/acc/mean@1"}
    )
    study = SimpleNamespace(metrics=metrics)
    assert validation_problems(study, 256) == 253
    assert validation_problems(SimpleNamespace(metrics=metrics.head(0)), 256) == 256
    odd = metrics.assign(value=0.1234567)
    assert validation_problems(SimpleNamespace(metrics=odd), 256) == 256


def test_speed_is_exploratory(project: Path) -> None:
    said = made(project)
    table = said.tables["speed"]
    assert set(table.arm) == {"challenger"}
    assert "### Speed" in said.text
    assert "**exploratory**" in said.text
    assert "verdict" not in said.tables["speed_main"].columns
