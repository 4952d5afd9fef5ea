"""The whole chain on a tiny network: clean, sloppy, pairs, three judges, measurements."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

from refblend.data.schema import read_rows
from refblend.data.tokenizer import load_tokenizer
from refblend.embedded.actor import encode_example, train_actor
from refblend.embedded.actor_quality import measure_actor
from refblend.embedded.architecture import load_model
from refblend.embedded.judge_data import (
    Pair,
    build_pairs,
    corrupt_response,
    read_pairs,
    write_pairs,
)
from refblend.embedded.judge_format import label_of
from refblend.embedded.judge_training import JudgeChain, pair_stream, train_judge, verdict_weights
from refblend.embedded.prepare import prepare_splits
from refblend.embedded.recipe import EmbeddedConfig
from refblend.errors import DataError, ModelError
from refblend.files import sha256_tree
from refblend.scoring.prompts import PromptEncoder
from refblend.scoring.templates import ScoringTemplates, find_templates, load_templates
from refblend.seeding import derive_generator


@dataclass
class Chain:
    root: Path
    recipe: EmbeddedConfig
    tokenizer: Any
    templates: ScoringTemplates
    pairs: list[Pair] = field(default_factory=list)

    def train_judge(
        self,
        strength: str,
        start: Path,
        out: Path,
        recipe: EmbeddedConfig | None = None,
        pairs_hash: str = "hash",
    ) -> None:
        trained = JudgeChain(
            recipe or self.recipe, self.tokenizer, self.templates, self.pairs, pairs_hash
        )
        train_judge(trained, strength, start, out)


@pytest.fixture(scope="module")
def chain(
    tmp_path_factory: pytest.TempPathFactory,
    recipe: EmbeddedConfig,
    tokenizer: Any,
    templates: ScoringTemplates,
) -> Chain:
    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("models")
    train_actor(recipe, tokenizer, root / "actor_clean", root / "actor")
    actors = {name: load_model(root / name) for name in ("actor", "actor_clean")}
    pairs = build_pairs(recipe, "train", tokenizer, actors)
    chain = Chain(root, recipe, tokenizer, templates, pairs)
    start = root / "actor_clean"
    for strength in ("weak", "medium", "strong"):
        chain.train_judge(strength, start, root / f"judge_{strength}")
        start = root / f"judge_{strength}"
    return chain


def weights(path: Path) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in load_model(path).parameters()])


def test_models_are_complete(chain: Chain) -> None:
    for name in ("actor_clean", "actor", "judge_weak", "judge_medium", "judge_strong"):
        assert (chain.root / name / "model.safetensors").is_file()
        tokenizer = load_tokenizer(chain.root / name)
        settings = json.loads((chain.root / name / "generation_config.json").read_text())
        assert settings["eos_token_id"] == tokenizer.eos_token_id
        assert tokenizer.chat_template
    assert not list(chain.root.rglob("*.tmp"))


def test_training_again_gives_the_same_directories(chain: Chain, tmp_path: Path) -> None:
    """What is hashed holds no times and no paths: elsewhere, at another speed, the same bytes."""
    clean, actor = tmp_path / "clean", tmp_path / "actor"
    train_actor(chain.recipe, chain.tokenizer, clean, actor)
    chain.train_judge("weak", clean, tmp_path / "judge")
    for name, again in (("actor_clean", "clean"), ("actor", "actor"), ("judge_weak", "judge")):
        assert sha256_tree(chain.root / name) == sha256_tree(tmp_path / again), name


def test_models_are_asked_with_the_tokenizer_that_they_learned_with(
    chain: Chain, tokenizer: Any
) -> None:
    """A loader that goes by the architecture's name gives Qwen2 its own pre-tokeniser."""
    text = "Answer: [[13-10=3. 3+38=41.\n#### 41]]\n9;6+3=9:99+\\box{1.00}"
    for name in ("actor", "judge_medium"):
        loaded = load_tokenizer(chain.root / name)
        assert loaded(text)["input_ids"] == tokenizer(text)["input_ids"]


def test_chain_of_judges_equals_one_training(
    chain: Chain, recipe: EmbeddedConfig, tmp_path: Path
) -> None:
    steps = recipe.judge.steps.model_copy(update={"weak": recipe.judge.steps.strong})
    straight = recipe.model_copy(update={"judge": recipe.judge.model_copy(update={"steps": steps})})
    chain.train_judge("weak", chain.root / "actor_clean", tmp_path / "judge", straight)
    assert torch.equal(weights(tmp_path / "judge"), weights(chain.root / "judge_strong"))


@pytest.mark.parametrize(("start", "pairs_hash"), [("actor_clean", "hash"), ("judge_weak", "new")])
def test_judge_from_the_wrong_start_is_refused(
    chain: Chain, tmp_path: Path, start: str, pairs_hash: str
) -> None:
    with pytest.raises(ModelError, match="is not the weak judge"):
        chain.train_judge("medium", chain.root / start, tmp_path / "judge", pairs_hash=pairs_hash)


def test_pairs_come_back_and_have_every_source(chain: Chain, tmp_path: Path) -> None:
    assert {pair.source for pair in chain.pairs} == {"actor", "actor_clean", "gold", "corruption"}
    assert all(pair.problem.split == "train" for pair in chain.pairs)
    write_pairs(tmp_path / "pairs.parquet", chain.pairs)
    assert read_pairs(tmp_path / "pairs.parquet") == chain.pairs


def test_bad_pairs_file(tmp_path: Path, recipe: EmbeddedConfig) -> None:
    prepare_splits(recipe.data, tmp_path)
    with pytest.raises(DataError, match="row 0 is not a judge pair"):
        read_pairs(tmp_path / "test.parquet")


def test_held_out_pairs_are_of_the_test_split(
    chain: Chain, recipe: EmbeddedConfig, tokenizer: Any
) -> None:
    actors = {"actor": load_model(chain.root / "actor")}
    pairs = build_pairs(recipe, "test", tokenizer, actors)
    assert len(pairs) == recipe.judge_data.test_problems
    assert all(pair.problem.split == "test" and pair.source == "actor" for pair in pairs)


def test_gold_is_labelled_one_and_corruptions_are_not_all_wrong(chain: Chain) -> None:
    assert all(pair.label == 1.0 for pair in chain.pairs if pair.source == "gold")
    rng = derive_generator(1)
    problem = chain.pairs[0].problem
    labels = {label_of(problem, corrupt_response(rng, problem)) for _ in range(200)}
    assert {0.05, 0.7, 1.0} <= labels


def test_judge_examples_use_the_scoring_prompt_and_weight_the_box(
    recipe: EmbeddedConfig, tokenizer: Any, templates: ScoringTemplates, chain: Chain
) -> None:
    stream = pair_stream(recipe, tokenizer, templates, chain.pairs)
    forms = set()
    for number in range(40):
        example = stream(number)
        assert example == stream(number)
        start = next(i for i, weight in enumerate(example.weights) if weight > 0)
        prompt, answer = example.token_ids[:start], example.token_ids[start:]
        text = tokenizer.decode(answer)
        assert text.endswith("}<|im_end|>")
        heavy = [
            tokenizer.decode([token])
            for token, weight in zip(answer, example.weights[start:], strict=True)
            if weight == 3.0
        ]
        copied, rest = text.split(";", 1)
        assert "".join(heavy) == f"{copied};{rest.split(':', 1)[1]}"
        forms.add("drill" if "Compare" in tokenizer.decode(prompt) else example.n_shared > 0)
        if example.n_shared:
            expected = PromptEncoder(tokenizer, templates).encode("q", "r", "full")
            assert prompt[: example.n_shared] == list(expected.frame.prefix)
    assert forms == {"drill", True, False}


def test_verdict_weights(tokenizer: Any) -> None:
    ids = tokenizer("2;1+1=2:22+\\box{1.00}")["input_ids"]
    text = [tokenizer.decode([i]) for i in ids]
    weights = verdict_weights(tokenizer, ids, 3.0)
    light = "".join(piece for piece, weight in zip(text, weights, strict=True) if weight == 1.0)
    assert light == "1+1=2:"
    assert set(weights) == {1.0, 3.0}


def test_example_has_no_loss_on_the_prompt(tokenizer: Any) -> None:
    example = encode_example(tokenizer, "Tom has 2 eggs.", "#### 2")
    answer = [i for i, w in zip(example.token_ids, example.weights, strict=True) if w > 0]
    assert tokenizer.decode(answer) == "#### 2<|im_end|>"


def test_measurements(chain: Chain, recipe: EmbeddedConfig, tokenizer: Any, tmp_path: Path) -> None:
    prepare_splits(recipe.data, tmp_path)
    rows = read_rows(tmp_path / "test.parquet")
    quality = measure_actor(load_model(chain.root / "actor"), tokenizer, rows, 2, 8, seed=0)
    assert (quality.problems, quality.samples) == (len(rows), 2)
    assert 0.0 <= quality.sampled <= quality.pass_at_k <= 1.0
    assert quality.entropy > 0


def test_judges_carry_the_templates_that_they_know(
    chain: Chain, templates: ScoringTemplates
) -> None:
    for strength in ("weak", "medium", "strong"):
        found = find_templates(chain.root / f"judge_{strength}")
        assert found.parent.name == f"judge_{strength}"
        assert load_templates(found) == templates


def test_directory_without_weights(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelError, match="is not a model directory"):
        load_model(tmp_path)
