"""Build and encode scoring prompts.

Prefix, between and suffix are ours (template texts in the judge's chat template); response and
question are data. The parts are encoded *apart* and their ids put together: the data can then
neither merge with our delimiters nor yield a special token, and clipping is exact. A judge is to be
trained on :meth:`PromptEncoder.encode`, so that the seams match.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, get_args

from refblend.errors import ScoringError
from refblend.scoring.templates import PromptForm, ScoringTemplates

_RESPONSE_MARK = "RefblendResponseMark"
_QUESTION_MARK = "RefblendQuestionMark"


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

    frame: Frame
    response: tuple[int, ...]
    question: tuple[int, ...]

    @property
    def ids(self) -> list[int]:
        """All token ids in order."""
        f = self.frame
        return [*f.prefix, *self.response, *f.between, *self.question, *f.suffix]

    def __len__(self) -> int:
        return len(self.frame) + len(self.response) + len(self.question)


def scoring_prompt(
    question: str, response: str, templates: ScoringTemplates, form: PromptForm = "full"
) -> str:
    """The user message that asks the judge for a score, with response and question neutralised."""
    prefix, between, suffix = templates.frame(form)
    return prefix + templates.quote(response) + between + templates.quote(question) + suffix


class PromptEncoder:
    """Encodes prompts, frames once; ScoringError if the chat template changes the message."""

    def __init__(self, tokenizer: Any, templates: ScoringTemplates) -> None:
        self.tokenizer, self.templates = tokenizer, templates
        self.special_tokens, self.special_ids = special_tokens(tokenizer)
        # A space between data keeps markers apart; a tokenizer without one joins by spaces anyway.
        self.seam = encode_plain(tokenizer, " ")
        self._frames = {form: self._encode_frame(form) for form in get_args(PromptForm)}
        # The responses to a question follow one another.
        self._encode_question = lru_cache(maxsize=8)(self.encode_data)

    def frame(self, form: PromptForm) -> Frame:
        """Trusted ids of one form of the prompt."""
        return self._frames[form]

    def encode_data(self, text: str) -> tuple[int, ...]:
        """Ids of untrusted text after neutralising it; never a special token's id."""
        quoted = self.templates.quote(text, self.special_tokens)
        return encode_untrusted(self.tokenizer, quoted, self.special_ids) if quoted else ()

    def encode(self, question: str, response: str, form: PromptForm) -> EncodedPrompt:
        """One prompt in the chosen form, in the judge's chat template; not clipped."""
        return EncodedPrompt(
            self.frame(form), self.encode_data(response), self._encode_question(question)
        )

    def _encode_frame(self, form: PromptForm) -> Frame:
        prefix, between, suffix = self.templates.frame(form)
        message = prefix + _RESPONSE_MARK + between + _QUESTION_MARK + suffix
        leading: tuple[int, ...] = ()
        if getattr(self.tokenizer, "chat_template", None):
            text = self.tokenizer.apply_chat_template(
                [{"role": "user", "content": message}],
                tokenize=False,
                add_generation_prompt=True,
                enable_thinking=False,  # a score must fit in max_new_tokens
            )
        else:
            text = f"{message}\n{self.templates.plain_answer_slot}"
            leading = _leading_special(self.tokenizer)
        frame = frame_around(self.tokenizer, text, (_RESPONSE_MARK, _QUESTION_MARK))
        if frame is None:
            raise ScoringError(
                "the judge's chat template does not show the user's message exactly once",
                "Give a judge whose chat template renders the user's content unchanged.",
            )
        return replace(frame, prefix=(*leading, *frame.prefix))


class CharacterEncoder:
    """Prompts as code points, so that the guards of length and their order are the same."""

    seam: tuple[int, ...] = (ord(" "),)

    def __init__(self, templates: ScoringTemplates) -> None:
        self.templates = templates

    def frame(self, form: PromptForm) -> Frame:
        """The trusted texts of one form."""
        return Frame(*(tuple(map(ord, text)) for text in self.templates.frame(form)))

    def encode(self, question: str, response: str, form: PromptForm) -> EncodedPrompt:
        """One prompt in the chosen form, its data made harmless."""
        quoted = (tuple(map(ord, self.templates.quote(text))) for text in (response, question))
        return EncodedPrompt(self.frame(form), *quoted)


def frame_around(tokenizer: Any, text: str, marks: tuple[str, str]) -> Frame | None:
    """The ids of the three parts of a text around two marks; None unless each is there once."""
    if any(text.count(mark) != 1 for mark in marks):
        return None
    head, rest = text.split(marks[0])
    return Frame(*(encode_plain(tokenizer, part) for part in (head, *rest.split(marks[1]))))


def encode_plain(tokenizer: Any, text: str) -> tuple[int, ...]:
    """Token ids of our own text, in which special tokens count."""
    return tuple(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])


def encode_untrusted(tokenizer: Any, text: str, special_ids: frozenset[int]) -> tuple[int, ...]:
    """Token ids of untrusted text; never a special token's."""
    ids = tokenizer(text, add_special_tokens=False, split_special_tokens=True, verbose=False)
    return tuple(i for i in ids["input_ids"] if i not in special_ids)


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
