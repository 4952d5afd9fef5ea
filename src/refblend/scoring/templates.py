"""The texts of a scoring prompt, read from YAML and validated before any work is done.

A templates file holds a full form (header, examples, sample, instruction) and a compact form
(header, sample, instruction). The form of a full prompt::

    {header}
    {sample of example 1}
    {verdict 1}
    {separator}
    ...
    {sample}            response first, then question, each between [[ and ]]
    {instruction}       asks for exactly one \\box{x} at the end

Everything before the sample's response is the same for all samples: the shared prefix that
vLLM's prefix cache serves.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from refblend.config.base import Fraction, Section
from refblend.config.loading import checked, read_yaml
from refblend.errors import ConfigError, ScoringError
from refblend.scoring.parsing import parse_score
from refblend.scoring.quote import QUOTE_CLOSE, QUOTE_OPEN, neutralise

RESPONSE_SLOT = "{response}"
QUESTION_SLOT = "{question}"
BOX_DEMAND = r"\box{x}"

Text = Annotated[str, Field(min_length=1)]
PromptForm = Literal["full", "compact"]
"""With header and examples, or the short form for samples that would not fit otherwise."""


class ScoringExample(Section):
    """One few-shot example: a sample and what the judge is to write about it."""

    question: Text
    response: Text
    verdict: Text
    """The judge's text, ending with ``\\box{score}``."""
    score: Fraction
    """The score that our parser must read from ``verdict``."""


class ScoringTemplates(Section):
    """All texts of the scoring prompt."""

    header: Text
    """First lines of the full prompt."""
    sample: Text
    """The sample, with ``[[{response}]]`` before ``[[{question}]]``."""
    instruction: Text
    """Last lines of the full prompt: the demand for one ``\\box{x}``."""
    compact_header: Text
    """First line of the compact prompt."""
    compact_instruction: Text
    """Last line of the compact prompt."""
    separator: Annotated[str, Field(min_length=3, pattern=r"^\S+$")] = "==="
    """A separate line between examples; broken up wherever an actor writes it."""
    plain_answer_slot: Text = "Verdict:"
    """Opens the judge's answer when its tokenizer has no chat template."""
    examples: tuple[ScoringExample, ...] = ()
    """Few-shot examples, in order; none is allowed."""

    def _misfits(self) -> Iterator[str]:
        yield from _sample_problems(self.sample)
        for name in ("instruction", "compact_instruction"):
            if getattr(self, name).count(BOX_DEMAND) != 1:
                yield f"{name} must ask for exactly one {BOX_DEMAND}"
        for name in ("header", "compact_header"):
            if "\\box" in getattr(self, name):
                yield f"{name} must not contain \\box: leave it to the instruction"
        for number, example in enumerate(self.examples, start=1):
            for problem in _example_problems(example, self.separator):
                yield f"examples[{number}].{problem}"

    def frame(self, form: PromptForm) -> tuple[str, str, str]:
        """The three trusted texts around response and question: (prefix, between, suffix)."""
        full = form == "full"
        before, rest = self.sample.split(RESPONSE_SLOT)
        between, after = rest.split(QUESTION_SLOT)
        header = self.header if full else self.compact_header
        instruction = self.instruction if full else self.compact_instruction
        shots = "".join(
            f"{before}{self.quote(e.response)}{between}{self.quote(e.question)}{after}\n"
            f"{e.verdict}\n{self.separator}\n"
            for e in (self.examples if full else ())
        )
        return f"{header}\n{shots}{before}", between, f"{after}\n{instruction}"

    def quote(self, text: str, special_tokens: tuple[str, ...] = ()) -> str:
        """``text`` made harmless for this template (see :mod:`refblend.scoring.quote`)."""
        return neutralise(text, (self.separator, *special_tokens))


def _sample_problems(sample: str) -> Iterator[str]:
    response, question = (f"{QUOTE_OPEN}{s}{QUOTE_CLOSE}" for s in (RESPONSE_SLOT, QUESTION_SLOT))
    if sample.count(response) != 1 or sample.count(question) != 1 or sample.count("{") != 2:
        yield f"sample must contain {response} and {question} once each"
    elif sample.index(response) > sample.index(question):
        yield "in the sample the response must come before the question"
    elif sample.count(QUOTE_OPEN) != 2 or sample.count(QUOTE_CLOSE) != 2 or "\\box" in sample:
        yield f"in the sample no other {QUOTE_OPEN}, {QUOTE_CLOSE} or \\box is allowed"


def _example_problems(example: ScoringExample, separator: str) -> Iterator[str]:
    for field in ("question", "response"):
        text = getattr(example, field)
        if neutralise(text, (separator,)) != text:
            yield f"{field} contains a quote, separator, \\box or special token"
    if example.verdict.count("\\box{") != 1 or not example.verdict.endswith("}"):
        yield "verdict must end with exactly one \\box{...}"
    if separator in example.verdict:
        yield "verdict contains the separator"
    read = parse_score(example.verdict)
    if not read.valid or abs(read.score - example.score) > 1e-9:
        yield f"verdict reads as {read.score}, but score is {example.score}"


SHIPPED = {
    name: Path(__file__).with_name("data") / f"{name}.yaml" for name in ("default", "embedded")
}
"""The templates that come with the package, by the names that a configuration may give."""
TEMPLATES_IN_JUDGE = "scoring_templates.yaml"
"""A judge's directory may carry the templates that it was trained on."""


def templates_file(source: str | os.PathLike[str]) -> Path:
    """The file of a name in ``SHIPPED``; anything else is the path of a file itself."""
    return SHIPPED.get(os.fspath(source), Path(source))


def find_templates(judge: str | os.PathLike[str]) -> Path:
    """The templates file for a judge when the user names none: its own, else one of ours."""
    own = Path(judge) / TEMPLATES_IN_JUDGE
    return own if own.is_file() else SHIPPED["default"]


def load_templates(source: str | os.PathLike[str]) -> ScoringTemplates:
    """Templates by a name in ``SHIPPED`` or from a file; or ScoringError."""
    path = templates_file(source)
    try:
        return checked(ScoringTemplates, read_yaml(path), f"{path}: ")
    except ConfigError as error:
        known = f"{' and '.join(SHIPPED)} are ours; {SHIPPED['default']} shows every key."
        raise ScoringError(f"scoring templates {error.reason}", f"{error.remedy} {known}") from None
