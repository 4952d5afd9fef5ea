"""The check of one GPU, run on the CPU: the plain workers without Ray, vLLM and the like."""

import ast
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from refblend.config.loading import load_config
from refblend.data.schema import read_rows
from refblend.gpu_check import stages
from refblend.gpu_check.chain import Chain
from refblend.gpu_check.measuring import Report
from refblend.rollout.base import GenerationRequest

ROOT = Path(__file__).parents[1]
BARE = """
import importlib.metadata, re, runpy, sys

def closure(names):
    found, left = set(), list(names)
    while left:
        name = re.sub(r"[-_.]+", "-", left.pop()).lower()
        try:
            needed = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        if name not in found:
            found.add(name)
            left += [re.match(r"[\\w.-]+", n)[0] for n in needed if "extra ==" not in n]
    return found

here = closure(["torch", "transformers", "pydantic", "pandas", "pyarrow"])
absent = {
    module
    for module, owners in importlib.metadata.packages_distributions().items()
    if not here & {re.sub(r"[-_.]+", "-", owner).lower() for owner in owners}
    and module != "refblend"
}
assert {"ray", "vllm", "xgrammar", "psutil", "pytest", "scipy"} <= absent, sorted(absent)
assert not absent & {"torch", "numpy", "tokenizers", "safetensors", "yaml"}

class Bare:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Bare())
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: (
    None if name.partition(".")[0] in absent else found(name, package)
)
"""
"""Hides everything but the five libraries of a bare machine and what they themselves require."""


def test_a_failed_stage_is_named_and_the_next_one_runs() -> None:
    report = Report("CPU")
    with report.stage("first"):
        raise ValueError("broken")
    with report.stage("second"):
        pass
    assert report.failures == ["first: ValueError: broken"]
    assert "| second | passed" in report.text()
    assert "**Failed:** first: ValueError: broken" in report.text()


def test_every_training_of_the_check_is_a_valid_configuration(monkeypatch, tiny_model_dir) -> None:
    monkeypatch.setattr(stages, "SMOLLM", tiny_model_dir)
    assert list(stages.trainings(devices=1).values())[-1] is None, "two ranks"
    files = ["data.train_files=[a.jsonl]", "data.val_files=[b.jsonl]"]
    judge = "algorithm.ref_quality_score.scoring.model_path=model"
    files += ["actor_rollout_ref.model.path=model", judge]
    for settings in (*stages.trainings(devices=3).values(), stages.judge_alone(on_gpu=True)):
        assert settings is not None
        load_config([], [*files, *settings])


def imported(module: str) -> set[str]:
    """What a module imports when it is imported itself, packages above included."""
    names = {module.rpartition(".")[0]}
    place = ROOT / "src" / module.replace(".", "/")
    file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    for node in ast.parse(file.read_text()).body if file.exists() else ():
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names - {""}


def test_what_the_check_imports_is_there_on_a_bare_machine() -> None:
    """All that it imports, but for what it calls only where Ray and vLLM are installed."""
    files = sorted((ROOT / "src" / "refblend" / "gpu_check").glob("*.py"))
    nodes = [node for file in files for node in ast.walk(ast.parse(file.read_text()))]
    left = {n.module for n in nodes if isinstance(n, ast.ImportFrom)} - {"refblend.trainer.launch"}
    left |= {"refblend.rollout.hf_engine"}
    found: set[str] = set()
    while left:
        name = str(left.pop())
        if name not in found and name.partition(".")[0] not in sys.stdlib_module_names:
            found.add(name)
            left |= imported(name) if name.startswith("refblend") else set()
    ours = {name for name in found if name.startswith("refblend")}
    assert len(ours) > 50
    libraries = {name.partition(".")[0] for name in found - ours}
    required = {"numpy", "pydantic_core", "yaml", "tokenizers", "safetensors"}  # by these five
    assert libraries <= {"torch", "transformers", "pydantic", "pandas", "pyarrow"} | required


class Sleeper:
    """A judge that is its own engine on a device of 8 GiB; other weights have other tokens."""

    def __init__(self, frees: bool, keeps: bool) -> None:
        self.engine, self.frees, self.keeps = self, frees, keeps
        self.config = SimpleNamespace(scoring=SimpleNamespace(gpu_memory_utilization=0.5))
        self.free, self.slept = 2 * 2**30, False

    def plan(self, question: str, response: str) -> SimpleNamespace:
        return SimpleNamespace(token_ids=[1, 2])

    def generate(self, requests: list[GenerationRequest]) -> list[SimpleNamespace]:
        lost = self.slept and not self.keeps
        likely = {7: -9.0, 8: -9.2} if lost else {3: -9.0, 4 + self.slept: -9.2}
        return [SimpleNamespace(top_logprobs=[likely]) for _ in requests]

    def sleep(self, level: int) -> None:
        self.free, self.slept = (6 if self.frees else 2) * 2**30, True

    def wake_up(self) -> None:
        self.free = 2 * 2**30


@pytest.mark.parametrize(
    ("frees", "keeps", "failure"),
    [(True, True, None), (False, True, "keeps its memory"), (True, False, "gives other log-probs")],
)
def test_a_judge_that_slept_frees_memory_and_answers_as_before(
    frees: bool, keeps: bool, failure: str | None, monkeypatch
) -> None:
    judge, report = Sleeper(frees, keeps), Report("GPU")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (judge.free, 8 * 2**30))
    with report.stage("sleep"):
        stages.check_sleep(judge, ["q"], ["a"], report)
    assert [failure in told for told in report.failures] == ([True] if failure else [])
    assert report.rows[0][1] == ("6.0, 2.0, 6.0 GiB" if frees else "6.0, 6.0, 6.0 GiB")


@pytest.mark.parametrize(("kl", "norm", "failures"), [(6e-5, 0.1, 0), (0.2, 0.1, 1), (6e-5, 0, 1)])
def test_a_training_whose_engine_has_other_weights_fails(tmp_path, kl, norm, failures) -> None:
    times = ("step", "gen", "ref_quality_score", "old_log_prob", "update_actor", "update_weights")
    step = {"training/rollout_kl": kl} | {f"timing_s/{name}": 1.0 for name in times}
    lines = map(json.dumps, ({"actor/grad_norm": norm}, step))
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines))
    report = Report("GPU")
    with report.stage("training"):
        stages.report_training(tmp_path, report)
    assert len(report.failures) == failures


@pytest.mark.engine
def test_the_judge_alone_is_timed_beside_bare_vllm(tmp_path: Path) -> None:
    report = Report("CPU")
    chain = Chain(tmp_path, "cpu", tiny=True)
    assert len(read_rows(chain.config.data.train_files[0])) == chain.prompts, "training reads them"
    stages.check_judge(chain, report)
    (_, found), *_ = report.rows
    share = float(found.partition("responses/s, ")[2].partition("%")[0]) / 100
    assert 0.2 < share < 1


@pytest.mark.slow
def test_on_a_bare_machine(tmp_path: Path) -> None:
    out = tmp_path / "check.md"
    arguments = ["gpu_check", "--device", "cpu", "--tiny", "--out", str(out)]
    run = f'sys.argv = {arguments}\nrunpy.run_module("refblend.gpu_check", run_name="__main__")'
    done = subprocess.run(
        [sys.executable, "-c", BARE + run],
        env={"PYTHONPATH": str(ROOT / "src"), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    text = out.read_text()
    assert "No stage failed." in text
    for stage in ("FSDP2", "rollout to weight push", "pushed weights", "speed"):
        assert stage in text
    for left_out in ("ray, vllm, psutil missing", "tests/gpu", "memory (no GPU)"):
        assert left_out in text.partition("Left out:")[2]
