"""Planted mistakes: every one changes a golden case, or fails a fast test that is named here.

A mistake is a text of one file and what replaces it. Where the code has been rewritten, plant a
mistake of the same kind in the new code.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import golden_store as store
import pytest
from golden_cases import CASES

pytestmark = [pytest.mark.slow, pytest.mark.engine]


MUTATIONS = {
    "tests/ppo/test_advantages.py": [
        ("ppo/advantages.py", "EPSILON = 1e-6", "EPSILON = 1e-5"),
        ("ppo/advantages.py", "gamma * lam * next_advantage", "lam * next_advantage"),
    ],
    "tests/ppo/test_kl.py": [
        ("ppo/kl.py", "rewards - kl_coef * masked", "rewards + kl_coef * masked")
    ],
    "tests/ppo/test_blending.py": [("ppo/blending.py", "(later == 1)", "(later == 2)")],
    "tests/ppo/test_losses.py": [
        ("ppo/losses.py", "torch.minimum(upper, bound)", "torch.maximum(upper, bound)")
    ],
    "tests/ppo/test_correction.py": [
        ("ppo/correction.py", "clamp(max=threshold)", "clamp(max=9.0)")
    ],
    "reward_gsm8k": [("rewards/gsm8k.py", "text.rfind(", "text.find(")],
    "tests/rewards/test_imperfect.py": [
        ("rewards/imperfect.py", "if checked else 0.0", "if checked else 1.0")
    ],
    "imperfect_oracle": [
        (
            "rewards/imperfect.py",
            '"flipped rewards", step, prompt, sample',
            '"flipped rewards", step, sample, prompt',
        ),
        (
            "trainer/experience.py",
            'derive_seed(seed, "rollout", step, uid, k)',
            'derive_seed(seed, "rollout", uid, k)',
        ),
        ("workers/layout.py", "input_ids[row, position + 1]", "input_ids[row, position]"),
    ],
    "tests/rewards/test_partial_credit.py": [
        ("rewards/imperfect.py", "0.5 * correct + 0.5 *", "0.4 * correct + 0.6 *")
    ],
    "judge_prompts": [
        ("scoring/clipping.py", "KEPT_RESPONSE_TOKENS = 32", "KEPT_RESPONSE_TOKENS = 31"),
        ("scoring/clipping.py", "head = room // 2", "head = (room + 1) // 2"),
        (
            "scoring/clipping.py",
            'form == "full" and len(prompt) > allowed_length',
            'form == "full" and len(prompt) >= allowed_length',
        ),
        (
            "scoring/prompts.py",
            "*self.response, *f.between, *self.question",
            "*self.question, *f.between, *self.response",
        ),
        ("scoring/quote.py", '_ANGLE_BAR.sub("< ", text)', "text"),
        ("rollout/hf_engine.py", "dtype=getattr(torch, options.dtype)", "dtype=torch.bfloat16"),
    ],
    "judge_parse": [
        ("scoring/parsing.py", "/ 100.0", "/ 10.0"),
        ("scoring/parsing.py", "10.0 ** (point - i)", "10.0 ** (i - point)"),
    ],
    "bed": [
        (
            "embedded/problems.py",
            "rng.integers(1, len(sentences) + 1)",
            "rng.integers(0, len(sentences) + 1)",
        ),
        (
            "embedded/problems.py",
            'derive_generator(seed, "problems"',
            'derive_generator(seed + 1, "problems"',
        ),
    ],
    "actor_train": [
        ("embedded/sft.py", "CLIP_NORM = 1.0", "CLIP_NORM = 0.5"),
        ("embedded/sft.py", "up = (step + 1) / (schedule", "up = (step + 2) / (schedule"),
        ("embedded/demonstrations.py", "rng.integers(1, 4)", "rng.integers(1, 3)"),
    ],
    "judge_train": [
        (
            "embedded/judge_training.py",
            "rng.random() < settings.few_shot_share",
            "rng.random() > settings.few_shot_share",
        )
    ],
    "actor_measure": [("embedded/actor_quality.py", 'derive_seed(seed, "quality")', "seed")],
    "rloo_alignment": [
        ("rollout/hf_engine.py", "logits / self.temperatures[live, None]", "logits")
    ],
    "tests/workers/test_optimization.py": [
        (
            "workers/ranks.py",
            "(step - 1 - config.lr_warmup_steps) / after",
            "(step - config.lr_warmup_steps) / after",
        )
    ],
    "gae_critic": [
        ("workers/distributed.py", "parameters(), max_norm)", "parameters(), 2 * max_norm)")
    ],
    "tests/trainer/test_shaping.py": [
        ("trainer/shaping.py", "weights = weights * mixed", "pass"),
        ("trainer/shaping.py", "n_steps=len(rewards)", "n_steps=1"),
    ],
    "tests/trainer/test_validation.py": [
        (
            "trainer/validation.py",
            "temperature=0.0 if sample == 0",
            "temperature=0.0 if sample == 1",
        )
    ],
}
"""Golden case or test file that must notice → file, what is right there, and the mistake."""
PLANTED = [(name, *mistake) for name, mistakes in MUTATIONS.items() for mistake in mistakes]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package, to be spoiled and repaired."""
    path = tmp_path_factory.mktemp("mutated")
    shutil.copytree(
        store.ROOT / "src", path / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
    )
    return path


@pytest.fixture(scope="module")
def unspoiled(tree: Path) -> dict[str, Any]:
    """What the cases give without a mistake: stored values, else those of one run."""
    record = store.load(store.path_of(store.processor_kind()))
    wanted = MUTATIONS.keys() & CASES.keys()
    found = {n: store.stored_values(record, n, CASES[n].purposes) for n in wanted}
    if lacking := sorted(name for name, values in found.items() if values is None):
        results = store.run_cases(tree, lacking)
        found |= {name: results[name]["values"] for name in lacking}
    return found


def fails(tree: Path, tests: str) -> bool:
    """Whether fast tests fail, other than by not being found."""
    environment = {"PYTHONPATH": str(tree / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    quick = ["-x", "-q", "-p", "no:cacheprovider", "-m", "not slow and not gpu and not engine"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *quick, tests],
        cwd=store.ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout[-2000:]
    return done.returncode == 1


@pytest.mark.parametrize(("name", "file", "right", "wrong"), PLANTED)
def test_a_mistake_is_noticed(
    name: str,
    file: str,
    right: str,
    wrong: str,
    tree: Path,
    unspoiled: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    path = tree / "src" / "refblend" / file
    text = path.read_text()
    assert text.count(right) == 1, f"{file} has changed: plant another mistake"
    path.write_text(text.replace(right, wrong))
    try:
        if name not in CASES:
            assert fails(tree, name)
            return
        result = store.run_cases(tree, [name])[name]
    finally:
        path.write_text(text)
    assert "values" not in result or store.differences(unspoiled[name], result["values"])


def test_every_package_that_computes_is_spoiled() -> None:
    packages = {file.split("/")[0] for _, file, *_ in PLANTED}
    assert packages == {"ppo", "rewards", "scoring", "rollout", "workers", "trainer", "embedded"}
    assert len(PLANTED) >= 20
