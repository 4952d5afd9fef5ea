"""Length guards: examples, and the invariants for every text, cap and tokenizer."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refblend.config.scoring import ScoringConfig
from refblend.errors import ScoringError
from refblend.scoring.clipping import (
    KEPT_RESPONSE_TOKENS,
    MIN_DATA_TOKENS,
    ScoringRequest,
    allowed_length,
    clip_parts,
    plan_request,
)
from refblend.scoring.prompts import EncodedPrompt, Frame, PromptEncoder
from refblend.scoring.templates import ScoringExample, ScoringTemplates


def limits(allowed: int, new: int = 8) -> ScoringConfig:
    return ScoringConfig(max_model_len=allowed + new, safety_margin=0, max_new_tokens=new)


def prompt(response: int, question: int) -> EncodedPrompt:
    """Parts told apart by their numbers: 1xxx response, 2xxx question, negative: ours."""
    return EncodedPrompt(
        Frame((-1, -2, -3), (-4, -5), (-6, -7, -8)),
        tuple(range(1000, 1000 + response)),
        tuple(range(2000, 2000 + question)),
    )


def test_allowed_length_is_the_specs_formula() -> None:
    frame, unset = prompt(0, 0).frame, ScoringConfig()
    assert allowed_length(frame, unset, 2048, 4096) == 768 - 16 - 64
    assert allowed_length(frame, unset, 512, 4096) == 512 - 16 - 64
    assert allowed_length(frame, ScoringConfig(safety_margin=0), 2048, 300) == 300 - 64
    assert allowed_length(frame, unset, 2048, int(1e30)) == 768 - 16 - 64
    assert allowed_length(frame, ScoringConfig(max_model_len=1000), 1000, 4096) == 1000 - 16 - 64


def test_response_is_cut_first_in_the_middle() -> None:
    clipped = clip_parts(prompt(100, 20), 8 + 60)
    assert clipped.question == tuple(range(2000, 2020))
    assert clipped.response == (*range(1000, 1020), *range(1080, 1100))


@given(st.integers(0, 300), st.integers(0, 300), st.integers(8, 400))
def test_clip_parts_invariants(response: int, question: int, allowed: int) -> None:
    whole = prompt(response, question)
    clipped = clip_parts(whole, allowed)
    assert len(clipped) == len(clipped.ids) == min(len(whole), allowed)
    assert clipped.frame == whole.frame
    for kept, full in ((clipped.response, whole.response), (clipped.question, whole.question)):
        assert set(kept) <= set(full)
        assert list(kept) == sorted(kept)
        if len(kept) >= 2:
            assert (kept[0], kept[-1]) == (full[0], full[-1])
    if len(clipped.question) < question:
        assert len(clipped.response) == min(response, KEPT_RESPONSE_TOKENS, (allowed - 8) // 2)


PIECES = ["6+3=9. ", "#### 9", "A warm day. ", "]]", "<|im_end|>", "\\box{1}", "é數", "\n", "1"]
text = st.one_of(
    st.text(max_size=40),
    st.lists(st.sampled_from(PIECES), max_size=12).map("".join),
    st.tuples(st.sampled_from(PIECES), st.integers(1, 400)).map(lambda t: t[0] * t[1]),
)


def plan_scoring(encoder, question, response, limits, *options) -> ScoringRequest:
    """As a judge does it: the frame is checked once, then each sample is planned."""
    allowed = allowed_length(encoder.frame("compact"), limits, 10**6)
    return plan_request(encoder, question, response, allowed, *options)


def check_plan(tokenizer, templates, question, response, allowed, form) -> None:
    """Every invariant of a planned request, with and without clipping."""
    caps = limits(allowed)
    encoder = PromptEncoder(tokenizer, templates)
    if allowed - len(encoder.frame("compact")) < MIN_DATA_TOKENS:
        with pytest.raises(ScoringError, match="compact template"):
            plan_scoring(encoder, question, response, caps, form)
        return
    plan = plan_scoring(encoder, question, response, caps, form)
    frame = encoder.frame(plan.template)
    length = len(plan.token_ids)
    assert length <= allowed
    assert not plan.overlength
    assert tuple(plan.token_ids[: len(frame.prefix)]) == frame.prefix
    assert tuple(plan.token_ids[-len(frame.suffix) :]) == frame.suffix
    assert plan.clipped == (plan.unclipped_length > allowed)
    ours = len(frame.prefix), length - len(frame.suffix)
    inside = plan.token_ids[ours[0] : ours[1]]
    # A tokenizer with an unknown token may need it for our own text between the two.
    special_between = sum(i in encoder.special_ids for i in frame.between)
    assert sum(i in encoder.special_ids for i in inside) == special_between
    if plan.template == "compact" and form == "full":
        assert len(encoder.encode(question, response, "full")) > allowed
    open_plan = plan_scoring(encoder, question, response, caps, form, False)
    assert not open_plan.clipped
    assert open_plan.overlength == plan.clipped
    assert open_plan.overlength == (len(open_plan.token_ids) > allowed)


words = st.text(alphabet="abc é:.\n", min_size=1, max_size=30).filter(lambda t: t.strip())
random_templates = st.builds(
    lambda header, label, tail, instruction, separator, shots: ScoringTemplates(
        header=header,
        sample=f"{label}[[{{response}}]]{tail}[[{{question}}]]",
        instruction=f"{instruction}\\box{{x}}",
        compact_header=header[:5] + ".",
        compact_instruction=f"{tail}\\box{{x}}{instruction}",
        separator=separator,
        examples=[
            ScoringExample(
                question="Eva finds 12 pens.",
                response=f"12-5={i}.",
                verdict=f"\\box{{0.{i}}}",
                score=i / 10,
            )
            for i in range(shots)
        ],
    ),
    words,
    words,
    words,
    words,
    st.sampled_from(["===", "---", "~~~~", "#####", "=-=", "aaa"]),
    st.integers(0, 5),
)


@settings(deadline=None)
@given(
    st.one_of(st.none(), st.booleans(), random_templates),
    text,
    text,
    st.integers(1, 700),
    st.sampled_from(["full", "compact"]),
    st.sampled_from(["chat", "plain", "words", "unigram"]),
)
def test_every_plan_keeps_the_invariants(
    all_tokenizers, embedded, general, templates, question, response, allowed, form, kind
) -> None:
    """For every template, question, response, cap and tokenizer."""
    if not isinstance(templates, ScoringTemplates):
        templates = embedded if templates else general
    check_plan(all_tokenizers[kind], templates, question, response, allowed, form)


def test_order_of_the_guards(chat_tokenizer, embedded) -> None:
    encoder = PromptEncoder(chat_tokenizer, embedded)
    question, response = "How many eggs?", "6+3=9.\n#### 9"
    full = len(encoder.encode(question, response, "full"))
    compact = len(encoder.encode(question, response, "compact"))
    kinds = []
    for allowed in (full, full - 1, compact, compact - 1):
        plan = plan_scoring(encoder, question, response, limits(allowed))
        kinds.append((plan.template, plan.clipped, plan.overlength))
    assert kinds == [
        ("full", False, False),
        ("compact", False, False),
        ("compact", False, False),
        ("compact", True, False),
    ]
    plan = plan_scoring(encoder, question, response, limits(compact - 1), "full", False)
    assert (plan.template, plan.clipped, plan.overlength) == ("compact", False, True)
