"""Training of the judges: one chain of updates, saved as weak, medium and strong.

A judge starts from the clean warm start, so it can already work the problems. Medium continues from
weak and strong from medium, with the optimiser's state: the chain equals one long training.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
import yaml

from refblend.data.tokenizer import encode_chat
from refblend.embedded.actor import taught
from refblend.embedded.architecture import fingerprint_of, load_model, save_model
from refblend.embedded.judge_data import Pair, read_pairs
from refblend.embedded.judge_format import copy_answer, render_comparison, render_verdict
from refblend.embedded.recipe import STRENGTHS, EmbeddedConfig, PhaseRecipe, Strength
from refblend.embedded.sft import Example, TrainingResult, make_optimizer, train
from refblend.errors import ModelError
from refblend.files import OPTIMIZER_FILE, sha256_file, write_text
from refblend.rollout.model_dir import model_record
from refblend.scoring.prompts import PromptEncoder
from refblend.scoring.templates import TEMPLATES_IN_JUDGE, ScoringTemplates, load_templates
from refblend.seeding import derive_generator


def verdict_weights(tokenizer: Any, box_weight: float, verdict_ids: Sequence[int]) -> list[float]:
    """Weight 1 for the judge's own chain, ``box_weight`` for what depends on the response."""
    weights: list[float] = []
    text = ""
    for token in verdict_ids:
        inside_chain = ";" in text and ":" not in text
        weights.append(1.0 if inside_chain else box_weight)
        text += tokenizer.decode([token])
    return weights


def pair_stream(
    recipe: EmbeddedConfig, tokenizer: Any, templates: ScoringTemplates, pairs: Sequence[Pair]
) -> Callable[[int], Example]:
    """Example ``i``: a pair in one form of the scoring prompt, or a drill that only compares."""
    settings = recipe.judge
    encoder = PromptEncoder(tokenizer, templates)
    weigh = partial(verdict_weights, tokenizer, settings.box_weight)

    def example(number: int) -> Example:
        rng = derive_generator(settings.seed, "judge", number)
        pair = pairs[int(rng.integers(len(pairs)))]
        few_shot = bool(rng.random() < settings.few_shot_share)
        if rng.random() < settings.drill_share:
            question, verdict = _drill(rng, recipe.data.difficulty.value_max)
            prompt = encode_chat(tokenizer, [{"role": "user", "content": question}])
            return taught(tokenizer, prompt, verdict, weigh)
        encoded = encoder.encode(
            pair.problem.question, pair.response, "full" if few_shot else "compact"
        )
        verdict = render_verdict(pair.problem, pair.response)
        n_shared = len(encoded.frame.prefix) if few_shot else 0
        return taught(tokenizer, encoded.ids, verdict, weigh, n_shared)

    return example


def _drill(rng: Any, value_max: int) -> tuple[str, str]:
    own = int(rng.integers(0, value_max + 1))
    near = own + int(rng.integers(-3, 4))
    other = max(0, near) if rng.random() < 0.5 else int(rng.integers(0, value_max + 1))
    if rng.random() < 0.4:
        other = own
    score = "1.00" if own == other else "0.05"
    comparison = render_comparison(str(own), str(other))
    verdict = f"{copy_answer(str(other))};{own}:{comparison}\\box{{{score}}}"
    return f"Compare {own} with {other}.", verdict


def train_judge(
    recipe: EmbeddedConfig, tokenizer: Any, pairs: Path, strength: Strength, start: Path, out: Path
) -> TrainingResult:
    """Train one strength of the chain on a file of pairs; save it with the optimiser's state and
    the templates.

    ``start`` is the clean warm start for ``weak``, else the judge of the strength before
    (ModelError if it is another model).
    """
    settings, templates = recipe.judge, load_templates(recipe.scoring_templates)
    stream = pair_stream(recipe, tokenizer, templates, read_pairs(pairs))
    # Everything that determines the chain's weights.
    made_from = (sha256_file(pairs), templates.model_dump_json())
    fingerprint = fingerprint_of(recipe, tokenizer, "judge", *made_from)
    model = load_model(start)
    optimizer = make_optimizer(model, settings.learning_rate, recipe.bfloat16)
    first = 0
    if strength != STRENGTHS[0]:
        before = STRENGTHS[STRENGTHS.index(strength) - 1]
        first = getattr(settings.steps, before)
        _check_start(start, before, {"chain": fingerprint, "steps": first})
        optimizer.load_state_dict(torch.load(start / OPTIMIZER_FILE, weights_only=True))
    schedule = PhaseRecipe(
        steps=getattr(settings.steps, strength),
        batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        warmup_steps=settings.warmup_steps,
    )
    label = f"judge {strength}"
    result, optimizer = train(model, stream, schedule, label, recipe.bfloat16, first, optimizer)

    def save_companions(directory: Path) -> None:
        torch.save(optimizer.state_dict(), directory / OPTIMIZER_FILE)
        texts = yaml.safe_dump(templates.model_dump(mode="json"), sort_keys=False)
        write_text(directory / TEMPLATES_IN_JUDGE, texts)

    facts = {
        "chain": fingerprint,
        "strength": strength,
        "steps": schedule.steps,
        "parameters": model.num_parameters(),
    }
    save_model(out, model, tokenizer, facts, extra=save_companions)
    return result


def _check_start(start: Path, before: Strength, expected: dict[str, Any]) -> None:
    path = start / "training.json"
    facts = model_record(path) if path.is_file() else {}
    if any(facts.get(key) != value for key, value in expected.items()):
        raise ModelError(
            f"{start} is not the {before} judge of this recipe and these pairs",
            f"Train it first: refblend models judge --strength {before}.",
        )
