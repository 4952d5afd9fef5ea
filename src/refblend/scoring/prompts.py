"""Build and encode scoring prompts.

A prompt has five parts: prefix, response, between, question, suffix. Prefix, between and suffix
are ours (template texts wrapped in the judge's chat template); response and question are data.
The parts are encoded *apart* and their ids put together: the data can then neither merge with
our delimiters nor yield a special token, and clipping is exact. A judge is to be trained on
:meth:`PromptEncoder.encode`, not on the encoding of the joined text, so that the seams match.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, get_args

from refblend.errors import ScoringError
from refblend.scoring.templates import PromptForm, ScoringTemplates, load_templates

_RESPONSE_MARK = "RefblendResponseMark"
_QUESTION_MARK = "RefblendQuestionMark"


@dataclass(frozen=True)
class ScoringPrompt:
    """A scoring prompt as text: the content of the one user message.

    ``text == prefix + response + between + question + suffix``; response and question are
    already neutralised.
    """

    prefix: str
    response: str
    between: str
    question: str
    suffix: str

    @property
    def text(self) -> str:
        """The complete user message."""
        return self.prefix + self.response + self.between + self.question + self.suffix


@dataclass(frozen=True)
class Frame:
    """The token ids of the three trusted parts for one form of the prompt."""

    prefix: tuple[int, ...]
    between: tuple[int, ...]
    suffix: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.prefix) + len(self.between) + len(self.suffix)


@dataclass(frozen=True)
class EncodedPrompt:
    """A scoring prompt as token ids, part by part, chat template included."""

    prefix: tuple[int, ...]
    response: tuple[int, ...]
    between: tuple[int, ...]
    question: tuple[int, ...]
    suffix: tuple[int, ...]

    @property
    def ids(self) -> list[int]:
        """All token ids in order."""
        return [*self.prefix, *self.response, *self.between, *self.question, *self.suffix]

    def __len__(self) -> int:
        return (
            len(self.prefix)
            + len(self.response)
            + len(self.between)
            + len(self.question)
            + len(self.suffix)
        )

    def with_frame(self, frame: Frame) -> "EncodedPrompt":
        """The same data within the trusted parts of another form."""
        return EncodedPrompt(
            frame.prefix, self.response, frame.between, self.question, frame.suffix
        )


@lru_cache(maxsize=1)
def default_templates() -> ScoringTemplates:
    """The templates for a general instruction-tuned judge."""
    return load_templates("default")


def build_scoring_prompt(
    question: str,
    response: str,
    templates: ScoringTemplates | None = None,
    form: PromptForm = "full",
    special_tokens: tuple[str, ...] = (),
) -> ScoringPrompt:
    """The user message that asks the judge for a score.

    Args:
        question: the problem; untrusted text.
        response: the answer to be judged; untrusted text.
        templates: texts; the shipped ``default`` when None.
        form: ``full`` with examples, or ``compact``.
        special_tokens: the judge's special tokens as text, to be broken up.
    """
    templates = default_templates() if templates is None else templates
    prefix, between, suffix = templates.frame(form)
    return ScoringPrompt(
        prefix,
        templates.quote(response, special_tokens),
        between,
        templates.quote(question, special_tokens),
        suffix,
    )


@dataclass
class PromptEncoder:
    """Encodes prompts for one tokenizer and one set of templates; frames are encoded once.

    Args:
        tokenizer: a ``transformers`` tokenizer; its chat template is used when it has one.
        templates: the prompt's texts.
        chat_template_kwargs: further variables of the chat template. Thinking is switched off
            by default: a score must fit in ``max_new_tokens``.

    Raises:
        ScoringError: the chat template drops or repeats the message.
    """

    tokenizer: Any
    templates: ScoringTemplates
    chat_template_kwargs: Mapping[str, Any] = field(
        default_factory=lambda: {"enable_thinking": False}
    )

    def __post_init__(self) -> None:
        self.special_tokens, self.special_ids = special_tokens(self.tokenizer)
        # A space between data keeps markers apart; a tokenizer without one joins by spaces anyway.
        self.seam = tuple(self.tokenizer(" ", add_special_tokens=False, verbose=False)["input_ids"])
        self._frames = {form: self._encode_frame(form) for form in get_args(PromptForm)}
        # The responses to a question follow one another.
        self._encode_question = lru_cache(maxsize=8)(self.encode_data)

    def frame(self, form: PromptForm) -> Frame:
        """Trusted ids of one form of the prompt."""
        return self._frames[form]

    def encode_data(self, text: str) -> tuple[int, ...]:
        """Ids of untrusted text after neutralising it; never a special token's id."""
        quoted = self.templates.quote(text, self.special_tokens)
        if not quoted:
            return ()
        ids = self.tokenizer(
            quoted, add_special_tokens=False, split_special_tokens=True, verbose=False
        )["input_ids"]
        return tuple(i for i in ids if i not in self.special_ids)

    def encode(self, question: str, response: str, form: PromptForm) -> EncodedPrompt:
        """One prompt in the chosen form, in the judge's chat template; not clipped."""
        frame = self.frame(form)
        return EncodedPrompt(
            frame.prefix,
            self.encode_data(response),
            frame.between,
            self._encode_question(question),
            frame.suffix,
        )

    def _encode_frame(self, form: PromptForm) -> Frame:
        prefix, between, suffix = self.templates.frame(form)
        message = prefix + _RESPONSE_MARK + between + _QUESTION_MARK + suffix
        text = self._wrap(message)
        if text.count(_RESPONSE_MARK) != 1 or text.count(_QUESTION_MARK) != 1:
            raise ScoringError(
                "the judge's chat template does not show the user's message exactly once",
                "Give a judge whose chat template renders the user's content unchanged.",
            )
        head, rest = text.split(_RESPONSE_MARK)
        middle, tail = rest.split(_QUESTION_MARK)
        ids = [
            tuple(self.tokenizer(part, add_special_tokens=False, verbose=False)["input_ids"])
            for part in (head, middle, tail)
        ]
        if not getattr(self.tokenizer, "chat_template", None):
            ids[0] = (*_leading_special(self.tokenizer), *ids[0])
        return Frame(*ids)

    def _wrap(self, message: str) -> str:
        """The message in the chat template, or followed by the plain answer slot."""
        if not getattr(self.tokenizer, "chat_template", None):
            return f"{message}\n{self.templates.plain_answer_slot}"
        return self.tokenizer.apply_chat_template(
            [{"role": "user", "content": message}],
            tokenize=False,
            add_generation_prompt=True,
            **self.chat_template_kwargs,
        )


def special_tokens(tokenizer: Any) -> tuple[tuple[str, ...], frozenset[int]]:
    """Texts and ids that data must not produce: special tokens and tag-like added tokens."""
    texts = set(tokenizer.all_special_tokens)
    ids = set(tokenizer.all_special_ids)
    for number, token in getattr(tokenizer, "added_tokens_decoder", {}).items():
        content = str(token)
        tag_like = len(content) > 2 and content[0] in "<[" and content[-1] in ">]"
        if getattr(token, "special", False) or tag_like:
            texts.add(content)
            ids.add(int(number))
    return tuple(sorted(texts)), frozenset(ids)


def _leading_special(tokenizer: Any) -> tuple[int, ...]:
    """The beginning-of-sequence id, if the tokenizer puts one before plain text."""
    bos = getattr(tokenizer, "bos_token_id", None)
    ids = tokenizer("a", verbose=False)["input_ids"]
    return (bos,) if bos is not None and ids and ids[0] == bos else ()
