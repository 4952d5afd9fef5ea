import pytest

from refblend.integrations.messages import question_of, response_of


def test_the_question_is_the_last_message_of_the_user() -> None:
    chat = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "1+1?"},
        {"role": "assistant", "content": "2"},
        {"role": "user", "content": "And 2+2?"},
        {"role": "assistant", "content": "Let me"},
    ]
    assert question_of(chat) == "And 2+2?"
    assert question_of("2+2?") == "2+2?"
    with pytest.raises(ValueError, match="no message of the user"):
        question_of(chat[:1])
    for nothing in (None, "", [{"type": "image"}]):
        with pytest.raises(ValueError, match="has no text"):
            question_of([*chat, {"role": "user", "content": nothing}])


def test_blocks_are_read_as_text() -> None:
    blocks = [
        {"type": "image"},
        {"type": "text", "text": "How "},
        {"type": "text", "text": "many?"},
    ]
    assert question_of([{"role": "user", "content": blocks}]) == "How many?"


def test_the_response_is_what_the_actor_wrote() -> None:
    turns = [
        {"role": "assistant", "content": "I compute."},
        {"role": "tool", "content": "4"},
        {"role": "assistant", "content": None},
        {"role": "assistant", "content": "#### 4"},
    ]
    assert response_of(turns) == "I compute.\n\n#### 4"
    assert response_of("#### 4") == "#### 4"
