"""The workflow itself, called as a user calls it, with training replaced by a stand-in."""

import json
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import yaml

from refblend.study.design.grid import build_grid
from refblend.study.design.jobs import milestone_targets
from refblend.study.design.spec import experiments_of, load_experiment
from refblend.study.design.workflow import WorkflowConfig

ROOT = Path(__file__).parents[2]


def snakemake(project: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "snakemake", *arguments],
        cwd=project,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


def ran(project: Path, *arguments: str, **variables: str) -> str:
    """The output of a call that must succeed."""
    done = snakemake(project, *arguments, **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def planned(project: Path, *arguments: str, **variables: str) -> tuple[dict[str, int], str]:
    """Jobs that a dry run plans, and its output."""
    text = ran(project, *arguments, "-n", **variables)
    if "Nothing to be done" in text:
        return {}, text
    table = text.split("Job stats:", 1)[1].strip().split("\n\n")[0]
    return {name: int(count) for name, count in re.findall(r"^(\w+) +(\d+) *$", table, re.M)}, text


def trained(project: Path) -> list[str]:
    record = project / "trained.txt"
    return sorted(record.read_text().split()) if record.exists() else []


def test_the_schema_is_that_of_the_model() -> None:
    stored = json.loads((ROOT / "workflow" / "schemas" / "config.schema.json").read_text())
    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    assert stored == dialect | WorkflowConfig.model_json_schema(), "write this to that file"


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_m1_is_planned_and_the_committed_grid_of_an_earlier_design_is_not_taken(project) -> None:
    """In a fresh clone all files are equally old, so that times say nothing."""
    committed = project / "results" / "cpu" / "grid.tsv"
    committed.write_text("experiment\tarm\tseed\toverrides\nM1\toff\t1\t{}\n")
    counts, text = planned(project, "m1")
    assert {counts[name] for name in ("grid", "kept_models", "report")} == {1}
    assert counts["train"] == 2
    assert not {"tokenizer", "actor", "judge_pairs", "judge"} & set(counts)
    assert "--seeds 101,102,103 trainer.default_local_dir='runs/cpu/linear/seed_{seed}'" in text
    made = "runs/cpu/_collected/grid.tsv"
    ran(project, made, "--cores", "1")
    assert "M1\toff\t101" in (project / made).read_text()


def test_tolerances_seeds_a_job_and_models_are_parameters(project: Path) -> None:
    path = project / "params" / "workflow.yaml"
    edit(path, "  oom: 0\n", "  oom: 3\n")
    edit(path, "seeds_per_job: 10", "seeds_per_job: 2")
    counts, text = planned(project, "m1", "--config", "models={cpu: null}")
    (command,) = [line for line in text.splitlines() if "refblend study check " in line]
    limits = [word for word in shlex.split(command) if re.fullmatch(r"--\w+=\d+", word)]
    assert limits == ["--nonfinite=0", "--oom=3", "--overlength=0"]
    assert counts["train"] == 4, "only M1's three seeds of both arms"
    assert "runs/cpu/off/101-102.trained.json" in text
    # The medium judge continues the weak one; no arm of M1 uses the strong one.
    assert (counts["tokenizer"], counts["actor"], counts["judge"]) == (1, 1, 2)
    assert "kept_models" not in counts


def test_a_block_of_a_series_holds_four_seeds_of_every_arm(project: Path) -> None:
    path = project / "params" / "study" / "smollm_noisy.yaml"
    edit(path, "milestone: r\n", "milestone: series\n")
    counts, text = planned(project, "runs/smollm/_blocks/smollm_noisy/2.done")
    arms = load_experiment(path).arms
    assert counts["train"] == counts["test_accuracy"] == len(arms)
    assert text.count("--seeds 205,206,207,208 ") == len(arms)


def test_milestones_share_their_jobs_and_fresh_seeds_stand_apart(project: Path) -> None:
    collected = "runs/cpu/_collected/m2/runs.csv"
    counts, text = planned(project, "m1", collected, "--cores", "4")
    names = experiments_of("m2", ROOT / "params", scale="cpu")
    grid = build_grid(["M1", *names], "cpu", ROOT / "params")
    # Ten seeds a job, none across a gap, and M1's three before the rest.
    first = set(grid[grid.experiment == "M1"].arm)
    expected = len(first)
    for arm, part in grid.groupby("arm"):
        seeds = set(part.seed.astype(int)) - ({101, 102, 103} if arm in first else set())
        rows = Counter(seed - place for place, seed in enumerate(sorted(seeds)))
        expected += sum(math.ceil(length / 10) for length in rows.values())
    assert counts["train"] == expected
    resources = grid[grid.experiment.isin(["E", "F"])].arm.nunique()
    assert counts["test_accuracy"] == counts["train"] - resources
    assert not re.search(r"challenger|noisy_chosen", text)
    assert "seeds 1-2-3, on 4 cores" in text, "what measures resources takes all cores"


def test_m2_measures_the_scoring_path() -> None:
    files = milestone_targets({"m1": ["M1"], "m2": ["A"], "m3": []}, "m2", "cpu")
    folders = ("m2", "scoring")
    made = [f"{folder}/{name}" for folder in folders for name in ("report.md", "tables", "figures")]
    expected = {f"results/cpu/{name}" for name in (*made, "m2/checks.json")}
    assert set(files) == expected
    assert "results/gpu/scoring/report.md" not in milestone_targets({"m2": ["A"]}, "m2", "gpu")


def test_the_scale_of_the_pretrained_model_is_experiment_r(project: Path) -> None:
    counts, text = planned(project, "--config", "scale=smollm")
    assert counts["archive"] == 1, "of its own; those of scale cpu are as they are"
    assert counts["train"] == 8
    assert (counts["pretrained"], counts["reasoning_gym"], counts["judge"]) == (1, 1, 2)
    run = "--seeds 1,2,3,4,5 trainer.default_local_dir='runs/smollm/constant_terminal_shuffled"
    assert run in text
    assert "results/smollm/r/report.md" in text
    assert "measurement" not in counts


def test_scoring_measures_every_judge_and_trains_no_actor(project: Path) -> None:
    path = project / "params" / "workflow.yaml"
    edit(path, "judge: medium", "judge: weak")
    edit(path, "robustness_problems: 4", "robustness_problems: 7")
    counts, text = planned(project, "scoring", "-p", "--config", "scale=smoke")
    assert (counts["judge_quality"], counts["measurement"]) == (3, 2)
    assert "train" not in counts
    assert "--judge models/smoke/judge_weak" in text
    assert "--rows 7 --kind hf" in text
    refused = snakemake(project, "scoring", "-n", "--config", "scale=gpu")
    assert refused.returncode != 0
    assert "scale gpu has no embedded judges" in refused.stdout + refused.stderr


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("params/study/M1.yaml", "strategy: linear", "stratgy: linear", "stratgy"),
        ("params/workflow.yaml", "scale: cpu", "scale: ../smoke; touch pwned", "../smoke"),
    ],
)
def test_wrong_parameters_stop_before_any_work(project, name, old, new, message) -> None:
    edit(project / name, old, new)
    done = snakemake(project, "m1", "-n")
    assert done.returncode != 0
    assert message in done.stdout + done.stderr
    assert not list(project.rglob("pwned"))


def test_the_slurm_profile_plans_the_gpu_scale_without_data(project: Path) -> None:
    profile = ("--workflow-profile", "workflow/profiles/slurm", "--executor", "local")
    counts, _ = planned(project, "m3", *profile)
    grid = build_grid(experiments_of("m3", ROOT / "params", scale="gpu"), "gpu", ROOT / "params")
    assert counts["train"] == len(grid[["arm", "seed"]].drop_duplicates())


def test_files_of_another_scale_than_the_configured_one_can_be_named(project: Path) -> None:
    counts, _ = planned(project, "results/smoke/B/report.md", "results/smoke/verdicts.csv")
    assert (counts["archive"], counts["grid"], counts["collect"]) == (1, 1, 4)


def test_no_job_a_users_own_model_and_no_study_are_refused(project: Path) -> None:
    done = snakemake(project, "runs/cpu/linear/2-1.trained.json", "-n")
    assert done.returncode != 0
    assert "2-1 names no job of arm linear. Ask for 1-2." in done.stdout + done.stderr
    mine = project / "models" / "cpu" / "actor" / "model.safetensors"
    mine.parent.mkdir(parents=True)
    mine.touch()
    done = snakemake(project, "m1", "-n")
    assert "models/cpu/actor holds other files" in done.stdout + done.stderr
    mine.unlink()
    for path in (project / "params" / "study").iterdir():
        path.unlink()
    done = snakemake(project, "m1", "-n")
    assert done.returncode != 0
    assert "no experiments in params/study" in done.stdout + done.stderr


@pytest.mark.slow
def test_failures_are_reported_and_tried_again(project: Path) -> None:
    """Fails, recovers, rests, and re-trains what a changed parameter affects."""
    milestone = ("m1", "scoring", "--config", "scale=smoke", "--cores", "2")
    first = snakemake(project, *milestone, FAKE_FAIL="linear")
    results = project / "results" / "smoke" / "m1"
    assert first.returncode != 0
    report = (results / "report.md").read_text()
    assert report.count("failed, no memory left") == 2, "both seeds"
    assert not (results / "checks.json").exists()
    assert trained(project) == ["linear/1-2", "off/1-2"]

    second = snakemake(project, *milestone, FAKE_FAIL="linear:2")
    assert second.returncode != 0
    report = (results / "report.md").read_text()
    assert "3 of 4 runs finished" in report
    assert "seed 2: failed, the loss went astray" in report
    assert trained(project).count("off/1-2") == 1, "only the failed job is tried again"

    ran(project, *milestone)
    assert "4 of 4 runs finished" in (results / "report.md").read_text()
    assert "## D: prompt" in (results.parent / "scoring" / "report.md").read_text()
    assert trained(project).count("linear/1-2") == 3

    params = project / "params"
    (params / "ppo.yaml").write_text((params / "ppo.yaml").read_text() + "# A comment.\n")
    assert "Nothing to be done" in ran(project, *milestone)
    (params / "seeds.yaml").write_text("smoke: 1\n")
    assert planned(project, *milestone)[0].keys() >= {"grid", "collect", "report", "checks"}
    (params / "seeds.yaml").unlink()
    shutil.rmtree(results / "tables")
    assert planned(project, *milestone)[0].keys() == {"report", "checks", "m1", "total"}


@pytest.mark.slow
def test_an_edit_of_a_users_strategy_re_trains_its_arms_only(project: Path) -> None:
    module, experiment = project / "own.py", project / "params" / "study" / "B.yaml"
    module.write_text("def half(entropy, params, at):\n    return params.max_weight / 2\n")
    arm = "  linear_terminal_w01:\n    algorithm.ref_quality_score.strategy: "
    text = experiment.read_text()
    assert text.count(f"{arm}linear\n") == 1
    experiment.write_text(text.replace(f"{arm}linear\n", f"{arm}own:half\n"))
    markers = [f"runs/smoke/{arm}/1-2.trained.json" for arm in ("off", "linear_terminal_w01")]
    calls = (*markers, "--config", "scale=smoke", "--cores", "2")
    for edit in ("", "# another\n"):
        module.write_text(module.read_text() + edit)
        ran(project, *calls, PYTHONPATH=str(project))
    assert trained(project) == ["linear_terminal_w01/1-2"] * 2 + ["off/1-2"]


@pytest.mark.slow
def test_a_killed_job_is_resumed_and_not_recorded_as_failed(project: Path) -> None:
    marker = "runs/smoke/linear/1-2.trained.json"
    call = (marker, "--cores", "2", "--config", "scale=smoke")
    first = snakemake(project, *call, FAKE_KILL="linear")
    arm = project / "runs" / "smoke" / "linear"
    assert first.returncode != 0
    assert not (project / marker).exists()
    assert (arm / "seed_1" / "summary.json").exists(), "its first seed had finished"
    assert not (arm / "seed_2").exists()
    assert not list(arm.glob("seed_*/failures.jsonl"))
    ran(project, *call)
    assert trained(project) == ["linear/1-2"] * 2
    assert json.loads((project / marker).read_text())["2"]["status"] == "finished"


STUDIED = ("off", "linear", "challenger")
TARGETS = [f"runs/smoke/{arm}/1-2.tested.json" for arm in STUDIED]
SCALE = ("--config", "scale=smoke")


def stale(project: Path) -> dict[str, int]:
    """The jobs that a dry run names, with the project's own source."""
    return planned(project, *TARGETS, *SCALE, PYTHONPATH=str(project / "src"))[0]


@pytest.fixture
def finished(project: Path) -> Path:
    ran(project, *TARGETS, "--cores", "2", *SCALE, PYTHONPATH=str(project / "src"))
    assert stale(project) == {}
    return project


@pytest.mark.slow
def test_only_what_uses_a_changed_number_is_stale(finished: Path) -> None:
    package = finished / "src" / "refblend"
    for module in ("ppo/losses.py", "ppo/weights.py", "rewards/math.py", "study/runs/collect.py"):
        file = package / module
        file.write_text(
            f"{file.read_text()}\n_SEVENTEEN = 17  # a comment, a constant, a strategy\n"
        )
    (package / "new_module.py").write_text('"""New."""\n')
    params = finished / "params" / "ppo.yaml"
    params.write_text(f"# A comment.\n{params.read_text()}")
    assert stale(finished) == {}, "an edit alone makes nothing stale"

    numerics = package / "numerics.json"
    first = json.loads(numerics.read_text())
    for purpose, expected in (
        ("report", {}),
        ("reward.math", {}),
        ("reward.imperfect", {}),
        ("judge.parse", {"train": 2, "test_accuracy": 2}),
        ("reward.gsm8k", {"train": 3, "test_accuracy": 3}),
        ("test", {"test_accuracy": 3}),
    ):
        numerics.write_text(json.dumps(first | {purpose: first[purpose] + 1}))
        found = {name: count for name, count in stale(finished).items() if name != "total"}
        assert found == expected, purpose


@pytest.mark.slow
def test_a_deployed_folder_plans_the_smoke_study(tmp_path: Path) -> None:
    """What `snakedeploy deploy-workflow` writes: copies of config/, a Snakefile with a module."""
    shutil.copytree(ROOT / "config", tmp_path / "config")
    (tmp_path / "workflow").mkdir()
    (tmp_path / "workflow" / "Snakefile").write_text(
        'configfile: "config/config.yaml"\n\n\n'
        f'module study:\n    snakefile: "{ROOT / "Snakefile"}"\n    config: config\n\n\n'
        "use rule * from study\n"
    )
    assert planned(tmp_path)[0]["train"] > 15


@pytest.mark.slow
def test_the_folder_of_the_catalogs_test_plans_the_smoke_study() -> None:
    test = ("--directory", ".test", "--configfile", ".test/config/config.yaml", "--nolock")
    assert planned(ROOT, *test)[0]["train"] > 15


INJECTIONS = {
    "algorithm.adv_estimator": "x; touch pwned",
    "trainer.project_name": "$(touch pwned)",
    "trainer.experiment_name": "`touch pwned`",
    "actor_rollout_ref.actor.node": "a' && touch pwned; '",
    "actor_rollout_ref.ref.node": "a|b>pwned",
}


@pytest.fixture
def hostile(project: Path) -> Path:
    """The project under a hostile name; its experiment M1 has an arm with hostile overrides."""
    project = project.rename(f"{project} is hostile; touch pwned")
    path = project / "params" / "study" / "M1.yaml"
    tree = yaml.safe_load(path.read_text())
    tree["arms"]["hostile"] = INJECTIONS
    path.write_text(yaml.safe_dump(tree))
    return project


def test_hostile_overrides_reach_the_trainer_as_text_and_no_shell(hostile: Path) -> None:
    # Writes its arguments down, parted by NUL, and makes no output: the job fails, as it may.
    record = hostile / "arguments"
    stand_in = f"""() {{ printf '%s\\0' "$@" >> '{record}'; echo >> '{record}'; }}"""
    inputs = [f"data/smoke/{name}.parquet" for name in ("train", "validation", "test", "sanity")]
    for name in ("actor", "judge_medium"):
        files = ("config.json", "model.safetensors", "training.json")
        inputs += [f"models/smoke/{name}/{file}" for file in files]
    for path in (hostile / name for name in inputs):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    target = ("runs/smoke/hostile/1-2.trained.json", "--config", "scale=smoke")
    wanted = ("--allowed-rules", "train", "--cores", "1")
    done = snakemake(hostile, *target, *wanted, **{"BASH_FUNC_refblend%%": stand_in})
    assert done.returncode != 0
    assert record.exists(), done.stdout + done.stderr
    calls_made = [line.split("\0") for line in record.read_text().splitlines()]
    given = {word for call in calls_made if call[0] == "train" for word in call}
    assert given >= {f"{key}={json.dumps(text)}" for key, text in INJECTIONS.items()}
    assert [str(p) for p in hostile.rglob("*pwned*")] == []
