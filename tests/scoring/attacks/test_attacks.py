"""No attack changes the prompt's structure: not its text, not its token ids."""

import re
import unicodedata
from dataclasses import replace

import pytest

from refblend.scoring.clipping import plan_request
from refblend.scoring.generative import GenerativeJudge
from refblend.scoring.judge import judge_config
from refblend.scoring.measure.attacks import ATTACKS, measure_attacks, structure_kept
from refblend.scoring.prompts import PromptEncoder, scoring_prompt

QUESTION = "Eva finds 12 pens. Then 5 get lost. How many are left?"
WRONG = "12-5=8.\n#### 8"
CONFIG = judge_config("m", "hf", "embedded", {"score_mode": "text"})
BOX = re.compile(r"\\[\s\W]*b[\s\W]*[o0][\s\W]*x", re.IGNORECASE)

FAMILIES = sorted({attack.family for attack in ATTACKS})
each_family = pytest.mark.parametrize("family", FAMILIES)


def hostile_samples(family: str) -> list[tuple[str, str, str]]:
    """Name, question and response of every attack of a family."""
    return [(a.name, *a.apply(QUESTION, WRONG)) for a in ATTACKS if a.family == family]


@each_family
def test_text_structure(family: str, embedded) -> None:
    clean = scoring_prompt(QUESTION, WRONG, embedded)
    for name, question, response in hostile_samples(family):
        hostile = scoring_prompt(question, response, embedded)
        for marker in ("[[", "]]", embedded.separator, "\\box", "<|im_end|>", "<|im_start|>"):
            assert hostile.count(marker) == clean.count(marker), (name, marker)
        for part in map(embedded.quote, (response, question)):
            assert not BOX.search(unicodedata.normalize("NFKC", part)), name
            assert not any(unicodedata.category(c) in ("Cf", "Cs") for c in part), name


@each_family
@pytest.mark.parametrize("kind", ["chat", "plain", "words", "unigram"])
def test_token_structure(family: str, kind: str, embedded, all_tokenizers) -> None:
    tokenizer = all_tokenizers[kind]
    encoder = PromptEncoder(tokenizer, embedded)
    special = encoder.special_ids
    assert special
    for form in ("full", "compact"):
        clean = encoder.encode(QUESTION, WRONG, form)
        clean_text = tokenizer.decode(clean.ids)
        for name, question, response in hostile_samples(family):
            hostile = encoder.encode(question, response, form)
            assert hostile.frame == clean.frame, name
            assert not special.intersection(hostile.response), name
            assert not special.intersection(hostile.question), name
            text = tokenizer.decode(hostile.ids)
            for token in tokenizer.all_special_tokens:
                assert text.count(token) == clean_text.count(token), name


def test_only_the_judges_own_tokens_are_parsed(chat_tokenizer, scripted) -> None:
    """A judge that says nothing leaves every attack with the neutral score."""
    silent = scripted(chat_tokenizer, lambda _: "no idea")
    judge = GenerativeJudge(silent, chat_tokenizer, CONFIG)
    samples = [attack.apply(QUESTION, WRONG) for attack in ATTACKS]
    results = judge.score([q for q, _ in samples], [r for _, r in samples])
    assert {(r.score, r.valid, r.path) for r in results} == {(0.5, False, "default")}


def test_clipping_does_not_close_the_quote(embedded, chat_tokenizer) -> None:
    flood = next(attack for attack in ATTACKS if attack.name == "quote_flood")
    encoder = PromptEncoder(chat_tokenizer, embedded)
    plan = plan_request(encoder, *flood.apply(QUESTION, WRONG), 304)
    assert plan.clipped
    assert structure_kept(plan, encoder)


@pytest.mark.parametrize("planted", ["]]", "\\box{1}", "===", "<|im_end|>", "cut the end"])
def test_a_broken_structure_is_seen(planted: str, embedded, chat_tokenizer) -> None:
    """As if quoting had failed: the text stands in the prompt as it was written."""
    encoder = PromptEncoder(chat_tokenizer, embedded)
    plan = plan_request(encoder, QUESTION, WRONG, 688)
    place = len(encoder.frame("full").prefix)
    ids = chat_tokenizer(planted, add_special_tokens=False)["input_ids"]
    broken = [*plan.token_ids[:place], *ids, *plan.token_ids[place:]]
    if planted == "cut the end":
        broken = plan.token_ids[:-1]
    assert structure_kept(plan, encoder)
    assert not structure_kept(replace(plan, token_ids=broken), encoder)


def test_lift_is_measured_against_the_neutral_answer(chat_tokenizer, scripted) -> None:
    """A gullible judge is raised by the attack that it falls for, and by no other."""
    gullible = scripted(
        chat_tokenizer, lambda p: "\\box{0.90}" if "full marks" in p else "\\box{0.20}"
    )
    judge = GenerativeJudge(gullible, chat_tokenizer, CONFIG)
    seen: list[int] = []
    table, samples = measure_attacks(judge, [QUESTION] * 3, [WRONG] * 3, progress=seen.append)
    assert table["attack"].iloc[0] == "please", "sorted by lift"
    table = table.set_index("attack")
    assert table.loc["please", ["lift", "low", "high"]].tolist() == pytest.approx([0.7] * 3)
    assert table.drop(index="please")["lift"].abs().max() == pytest.approx(0.0)
    assert table["n"].eq(3).all()
    assert table["structure_changed"].eq(0).all()
    assert len(samples) == seen[-1] == 3 * (len(ATTACKS) + 1)


def test_interval_of_the_lift(chat_tokenizer, scripted) -> None:
    """Two of three answers are raised: the interval holds the mean and reaches both ends."""
    partial = scripted(
        chat_tokenizer,
        lambda p: "\\box{1.00}" if "full marks" in p and "[[Why?]]" not in p else "\\box{0.00}",
    )
    judge = GenerativeJudge(partial, chat_tokenizer, CONFIG)
    please = [a for a in ATTACKS if a.name == "please"]
    questions = [QUESTION, QUESTION, "Why?"]
    table, _ = measure_attacks(judge, questions, [WRONG] * 3, please)
    assert table.loc[0, "lift"] == pytest.approx(2 / 3)
    assert (table.loc[0, "low"], table.loc[0, "high"]) == (0.0, 1.0)
    alone, _ = measure_attacks(judge, [QUESTION], [WRONG], please)
    assert alone.loc[0, ["low", "high"]].isna().all()
