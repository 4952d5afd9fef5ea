"""The whole chain on a tiny network: clean, sloppy, pairs, three judges, measurements."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from refblend.data.tokenizer import load_tokenizer
from refblend.embedded.actor import train_actor
from refblend.embedded.architecture import load_model
from refblend.embedded.judge_data import Pair, build_pairs, read_pairs, write_pairs
from refblend.embedded.judge_training import train_judge
from refblend.embedded.recipe import STRENGTHS, EmbeddedConfig, Strength
from refblend.errors import ModelError
from refblend.files import sha256_tree


@dataclass
class Chain:
    root: Path
    recipe: EmbeddedConfig
    tokenizer: Any
    pairs: list[Pair]

    def train_judge(self, strength: Strength, start: Path, out: Path, **changes: Any) -> None:
        made_from = {"recipe": self.recipe, "pairs": self.root / "pairs.parquet"} | changes
        train_judge(tokenizer=self.tokenizer, strength=strength, start=start, out=out, **made_from)


@pytest.fixture(scope="module")
def chain(tmp_path_factory, recipe, tokenizer) -> Chain:
    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("models")
    train_actor(recipe, tokenizer, root / "actor_clean", root / "actor")
    actors = {name: load_model(root / name) for name in ("actor", "actor_clean")}
    chain = Chain(root, recipe, tokenizer, build_pairs(recipe, "train", tokenizer, actors))
    write_pairs(root / "pairs.parquet", chain.pairs)
    start = root / "actor_clean"
    for strength in STRENGTHS:
        chain.train_judge(strength, start, root / f"judge_{strength}")
        start = root / f"judge_{strength}"
    return chain


def weights(path: Path) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in load_model(path).parameters()])


def test_training_again_gives_the_same_directories(chain, recipe, tokenizer, tmp_path) -> None:
    """What is hashed holds no times and no paths: elsewhere, at another speed, the same bytes."""
    clean, actor = tmp_path / "clean", tmp_path / "actor"
    train_actor(recipe, tokenizer, clean, actor)
    chain.train_judge("weak", clean, tmp_path / "judge")
    for name, again in (("actor_clean", "clean"), ("actor", "actor"), ("judge_weak", "judge")):
        assert sha256_tree(chain.root / name) == sha256_tree(tmp_path / again), name


def test_models_are_asked_with_the_tokenizer_that_they_learned_with(chain, tokenizer) -> None:
    """A loader that goes by the architecture's name gives Qwen2 its own pre-tokeniser."""
    text = "Answer: [[13-10=3. 3+38=41.\n#### 41]]\n9;6+3=9:99+\\box{1.00}"
    for name in ("actor", "judge_medium"):
        loaded = load_tokenizer(chain.root / name)
        assert loaded(text)["input_ids"] == tokenizer(text)["input_ids"]


def test_chain_of_judges_equals_one_training(chain, recipe, tmp_path) -> None:
    steps = recipe.judge.steps.model_copy(update={"weak": recipe.judge.steps.strong})
    straight = recipe.model_copy(update={"judge": recipe.judge.model_copy(update={"steps": steps})})
    chain.train_judge("weak", chain.root / "actor_clean", tmp_path / "judge", recipe=straight)
    assert torch.equal(weights(tmp_path / "judge"), weights(chain.root / "judge_strong"))


@pytest.mark.parametrize(("start", "count"), [("actor_clean", None), ("judge_weak", 9)])
def test_judge_from_the_wrong_start_is_refused(chain, tmp_path, start, count) -> None:
    """The warm start, and the weak judge of other pairs."""
    pairs = tmp_path / "pairs.parquet"
    write_pairs(pairs, chain.pairs[:count])
    with pytest.raises(ModelError, match="is not the weak judge"):
        chain.train_judge("medium", chain.root / start, tmp_path / "judge", pairs=pairs)


def test_pairs_come_back_and_have_every_source(chain) -> None:
    sources = {"actor", "actor_clean", "gold", "corruption"}
    assert {pair.source for pair in chain.pairs} == sources
    assert all(pair.problem.split == "train" for pair in chain.pairs)
    assert read_pairs(chain.root / "pairs.parquet") == chain.pairs
