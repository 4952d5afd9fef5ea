"""What the judge reads of a conversation: the question and the response as text."""

from collections.abc import Mapping, Sequence
from typing import Any

Messages = Sequence[Mapping[str, Any]]
"""Chat messages, each with ``role`` and ``content``."""


def content_text(content: Any) -> str:
    """The text of a message: itself, or that of its blocks ``{"type": "text", "text": …}``."""
    if isinstance(content, str):
        return content
    return "".join(block["text"] for block in content or () if block.get("type") == "text")


def question_of(prompt: str | Messages) -> str:
    """The question of a prompt: itself, or the text of the user's last message, or ValueError."""
    if isinstance(prompt, str):
        return prompt
    for message in reversed(prompt or ()):
        if message["role"] == "user":
            if text := content_text(message.get("content")):
                return text
            raise ValueError("the user's last message has no text, so the judge has no question")
    raise ValueError("the prompt has no message of the user, so the judge has no question")


def response_of(completion: str | Messages) -> str:
    """What the actor wrote: a plain completion itself, or its own messages, one after another."""
    if isinstance(completion, str):
        return completion
    own = [message for message in completion if message["role"] == "assistant"]
    return "\n".join(content_text(message.get("content")) for message in own)
