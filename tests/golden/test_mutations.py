"""Planted mistakes: every one changes a golden case, or fails a fast test that is named here.

A mistake is a text of one file and what replaces it. Where the code has been rewritten, plant a
mistake of the same kind in the new code.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import golden_store as store
import pytest
from golden_cases import CASES

pytestmark = [pytest.mark.slow, pytest.mark.engine]


class Mutation(NamedTuple):
    """A mistake, and the golden case or the test file that must notice it."""

    kind: str
    file: str
    right: str
    wrong: str
    caught_by: str


MUTATIONS = [
    # the mathematics
    Mutation(
        "constant",
        "ppo/advantages.py",
        "EPSILON = 1e-6",
        "EPSILON = 1e-5",
        "tests/ppo/test_advantages.py",
    ),
    Mutation(
        "sign",
        "ppo/kl.py",
        "rewards - kl_coef * masked",
        "rewards + kl_coef * masked",
        "tests/ppo/test_kl.py",
    ),
    Mutation(
        "mask", "ppo/blending.py", "(later == 1)", "(later == 2)", "tests/ppo/test_blending.py"
    ),
    Mutation(
        "clip",
        "ppo/losses.py",
        "torch.minimum(upper, bound)",
        "torch.maximum(upper, bound)",
        "tests/ppo/test_losses.py",
    ),
    Mutation(
        "factor",
        "ppo/advantages.py",
        "gamma * lam * next_advantage",
        "lam * next_advantage",
        "tests/ppo/test_advantages.py",
    ),
    Mutation(
        "clip",
        "ppo/correction.py",
        "clamp(max=threshold)",
        "clamp(max=9.0)",
        "tests/ppo/test_correction.py",
    ),
    # rewards
    Mutation("order", "rewards/gsm8k.py", "text.rfind(", "text.find(", "reward_gsm8k"),
    Mutation(
        "constant",
        "rewards/imperfect.py",
        "if checked else 0.0",
        "if checked else 1.0",
        "tests/rewards/test_imperfect.py",
    ),
    Mutation(
        "seed",
        "rewards/imperfect.py",
        '"flipped rewards", step, prompt, sample',
        '"flipped rewards", step, sample, prompt',
        "imperfect_oracle",
    ),
    Mutation(
        "constant",
        "rewards/imperfect.py",
        "0.5 * correct + 0.5 *",
        "0.4 * correct + 0.6 *",
        "tests/rewards/test_partial_credit.py",
    ),
    # the judge
    Mutation(
        "constant",
        "scoring/clipping.py",
        "KEPT_RESPONSE_TOKENS = 32",
        "KEPT_RESPONSE_TOKENS = 31",
        "judge_prompts",
    ),
    Mutation(
        "index",
        "scoring/clipping.py",
        "head = room // 2",
        "head = (room + 1) // 2",
        "judge_prompts",
    ),
    Mutation(
        "border",
        "scoring/clipping.py",
        'form == "full" and len(prompt) > allowed_length',
        'form == "full" and len(prompt) >= allowed_length',
        "judge_prompts",
    ),
    Mutation(
        "order",
        "scoring/prompts.py",
        "*self.response, *f.between, *self.question",
        "*self.question, *f.between, *self.response",
        "judge_prompts",
    ),
    Mutation(
        "guard",
        "scoring/quote.py",
        '_ANGLE_BAR.sub("< ", text)',
        "text",
        "judge_prompts",
    ),
    Mutation("constant", "scoring/parsing.py", "/ 100.0", "/ 10.0", "judge_parse"),
    Mutation(
        "index", "scoring/parsing.py", "10.0 ** (point - i)", "10.0 ** (i - point)", "judge_parse"
    ),
    # the embedded bed
    Mutation(
        "index",
        "embedded/problems.py",
        "rng.integers(1, len(sentences) + 1)",
        "rng.integers(0, len(sentences) + 1)",
        "bed",
    ),
    Mutation(
        "seed",
        "embedded/problems.py",
        'derive_generator(seed, "problems"',
        'derive_generator(seed + 1, "problems"',
        "bed",
    ),
    Mutation("constant", "embedded/sft.py", "CLIP_NORM = 1.0", "CLIP_NORM = 0.5", "actor_train"),
    Mutation(
        "index",
        "embedded/sft.py",
        "up = (step + 1) / (schedule",
        "up = (step + 2) / (schedule",
        "actor_train",
    ),
    Mutation(
        "border",
        "embedded/demonstrations.py",
        "rng.integers(1, 4)",
        "rng.integers(1, 3)",
        "actor_train",
    ),
    Mutation(
        "sign",
        "embedded/judge_training.py",
        "rng.random() < settings.few_shot_share",
        "rng.random() > settings.few_shot_share",
        "judge_train",
    ),
    Mutation(
        "seed", "embedded/actor_quality.py", 'derive_seed(seed, "quality")', "seed", "actor_measure"
    ),
    # engines, workers, trainer
    Mutation(
        "dtype",
        "rollout/hf_engine.py",
        "dtype=getattr(torch, options.dtype)",
        "dtype=torch.bfloat16",
        "judge_prompts",
    ),
    Mutation(
        "temperature",
        "rollout/hf_engine.py",
        "logits / self.temperatures[live, None]",
        "logits",
        "rloo_alignment",
    ),
    Mutation(
        "seed",
        "trainer/experience.py",
        'derive_seed(seed, "rollout", step, uid, k)',
        'derive_seed(seed, "rollout", uid, k)',
        "imperfect_oracle",
    ),
    Mutation(
        "index",
        "workers/layout.py",
        "input_ids[row, position + 1]",
        "input_ids[row, position]",
        "imperfect_oracle",
    ),
    Mutation(
        "index",
        "workers/ranks.py",
        "(step - 1 - config.lr_warmup_steps) / after",
        "(step - config.lr_warmup_steps) / after",
        "tests/workers/test_optimization.py",
    ),
    Mutation(
        "clip",
        "workers/distributed.py",
        "parameters(), max_norm)",
        "parameters(), 2 * max_norm)",
        "gae_critic",
    ),
    Mutation(
        "mask",
        "trainer/shaping.py",
        "weights = weights * mixed",
        "pass",
        "tests/trainer/test_shaping.py",
    ),
    Mutation(
        "count",
        "trainer/shaping.py",
        "n_steps=len(rewards)",
        "n_steps=1",
        "tests/trainer/test_shaping.py",
    ),
    Mutation(
        "index",
        "trainer/validation.py",
        "temperature=0.0 if sample == 0",
        "temperature=0.0 if sample == 1",
        "tests/trainer/test_validation.py",
    ),
]


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
    wanted = {m.caught_by for m in MUTATIONS if m.caught_by in CASES}
    found = {n: store.stored_values(record, n, CASES[n].purposes) for n in wanted}
    if lacking := sorted(name for name, values in found.items() if values is None):
        results = store.run_cases(tree, lacking)
        found |= {name: results[name]["values"] for name in lacking}
    return found


@pytest.fixture
def spoiled(tree: Path, request: pytest.FixtureRequest) -> Iterator[Mutation]:
    """The mutation, planted in the tree."""
    mutation: Mutation = request.param
    path = tree / "src" / "refblend" / mutation.file
    text = path.read_text()
    assert text.count(mutation.right) == 1, f"{mutation.file} has changed: plant another mistake"
    path.write_text(text.replace(mutation.right, mutation.wrong))
    yield mutation
    path.write_text(text)


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


@pytest.mark.parametrize(
    "spoiled", MUTATIONS, indirect=True, ids=lambda m: f"{m.file}-{m.kind}-{m.caught_by}"
)
def test_a_mistake_is_noticed(
    spoiled: Mutation, tree: Path, unspoiled: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    if spoiled.caught_by not in CASES:
        assert fails(tree, spoiled.caught_by)
        return
    result = store.run_cases(tree, [spoiled.caught_by])[spoiled.caught_by]
    assert "values" not in result or store.differences(
        unspoiled[spoiled.caught_by], result["values"]
    )


def test_every_package_that_computes_is_spoiled() -> None:
    packages = {mutation.file.split("/")[0] for mutation in MUTATIONS}
    assert packages == {"ppo", "rewards", "scoring", "rollout", "workers", "trainer", "embedded"}
    assert len(MUTATIONS) >= 20
