"""No attack changes the prompt's structure: not its text, not its token ids."""

import re
import unicodedata

import pytest

from refblend.scoring.attacks import ATTACKS, Attack, measure_attacks
from refblend.scoring.clipping import ScoringLimits
from refblend.scoring.judge import Judge, JudgeOptions
from refblend.scoring.prompts import build_scoring_prompt, encode_scoring_prompt, encoder_for
from refblend.scoring.score import plan_scoring

QUESTION = "Eva finds 12 pens. Then 5 get lost. How many are left?"
WRONG = "12-5=8.\n#### 8"
BOX = re.compile(r"\\[\s\W]*b[\s\W]*[o0][\s\W]*x", re.IGNORECASE)

each_attack = pytest.mark.parametrize("attack", ATTACKS, ids=lambda a: a.name)


def test_suite_is_large_and_names_are_unique() -> None:
    assert len(ATTACKS) >= 40
    assert len({a.name for a in ATTACKS}) == len(ATTACKS)
    assert len({a.family for a in ATTACKS}) >= 8


@each_attack
def test_text_structure(attack: Attack, embedded) -> None:
    clean = build_scoring_prompt(QUESTION, WRONG, embedded)
    hostile = build_scoring_prompt(*attack.apply(QUESTION, WRONG), embedded)
    assert (hostile.prefix, hostile.between, hostile.suffix) == (
        clean.prefix,
        clean.between,
        clean.suffix,
    )
    for marker in ("[[", "]]", embedded.separator, "\\box", "<|im_end|>", "<|im_start|>"):
        assert hostile.text.count(marker) == clean.text.count(marker), marker
    for part in (hostile.response, hostile.question):
        assert not BOX.search(unicodedata.normalize("NFKC", part))
        assert not any(unicodedata.category(c) in ("Cf", "Cs") for c in part)


@each_attack
@pytest.mark.parametrize("few_shot", [True, False])
@pytest.mark.parametrize("kind", ["chat", "plain", "words", "unigram"])
def test_token_structure(
    attack: Attack, few_shot: bool, kind: str, embedded, all_tokenizers
) -> None:
    tokenizer = all_tokenizers[kind]
    clean = encode_scoring_prompt(QUESTION, WRONG, tokenizer, embedded, few_shot)
    question, response = attack.apply(QUESTION, WRONG)
    hostile = encode_scoring_prompt(question, response, tokenizer, embedded, few_shot)
    assert hostile.prefix == clean.prefix
    assert hostile.between == clean.between
    assert hostile.suffix == clean.suffix
    special = encoder_for(tokenizer, embedded).special_ids
    assert special
    assert not special.intersection(hostile.response)
    assert not special.intersection(hostile.question)
    text = tokenizer.decode(hostile.ids)
    clean_text = tokenizer.decode(clean.ids)
    for token in tokenizer.all_special_tokens:
        assert text.count(token) == clean_text.count(token)


@each_attack
def test_planned_request_keeps_frame_and_cap(attack: Attack, embedded, chat_tokenizer) -> None:
    limits = ScoringLimits(model_cap=400, max_new_tokens=64)
    question, response = attack.apply(QUESTION, WRONG)
    plan = plan_scoring(question, response, chat_tokenizer, embedded, limits)
    frame = encoder_for(chat_tokenizer, embedded).frame(plan.template == "full")
    assert len(plan.token_ids) <= limits.allowed_length
    assert tuple(plan.token_ids[: len(frame.prefix)]) == frame.prefix
    assert tuple(plan.token_ids[-len(frame.suffix) :]) == frame.suffix


@each_attack
def test_only_the_judges_own_tokens_are_parsed(
    attack: Attack, embedded, chat_tokenizer, scripted
) -> None:
    """A judge that says nothing leaves every attack with the neutral score."""
    options = JudgeOptions(ScoringLimits(model_cap=2048, tokenizer_cap=2048))
    judge = Judge(scripted(chat_tokenizer, lambda _: "no idea"), chat_tokenizer, embedded, options)
    question, response = attack.apply(QUESTION, WRONG)
    (result,) = judge.score([question], [response])
    assert (result.score, result.valid, result.path) == (0.5, False, "default")


def test_lift_is_measured_against_the_neutral_answer(embedded, chat_tokenizer, scripted) -> None:
    """A gullible judge is raised by the attack that it falls for, and by no other."""
    gullible = scripted(
        chat_tokenizer, lambda p: "\\box{0.90}" if "full marks" in p else "\\box{0.20}"
    )
    options = JudgeOptions(ScoringLimits(model_cap=2048, tokenizer_cap=2048))
    judge = Judge(gullible, chat_tokenizer, embedded, options)
    table = measure_attacks(judge, [QUESTION] * 3, [WRONG] * 3).set_index("attack")
    assert table.loc["please", "lift"] == pytest.approx(0.7)
    assert table.drop(index="please")["lift"].abs().max() == pytest.approx(0.0)
    assert table["n"].eq(3).all()
