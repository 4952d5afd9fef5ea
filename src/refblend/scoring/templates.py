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

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from refblend.documents import MalformedError, parse_yaml, shorten
from refblend.errors import ScoringError
from refblend.scoring.parsing import parse_score
from refblend.scoring.quote import QUOTE_CLOSE, QUOTE_OPEN, neutralise

RESPONSE_SLOT = "{response}"
QUESTION_SLOT = "{question}"
BOX_DEMAND = r"\box{x}"

Text = Annotated[str, Field(min_length=1)]
PromptForm = Literal["full", "compact"]
"""With header and examples, or the short form for samples that would not fit otherwise."""


class ScoringExample(BaseModel):
    """One few-shot example: a sample and what the judge is to write about it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    question: Text
    response: Text
    verdict: Text
    """The judge's text, ending with ``\\box{score}``."""
    score: Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]
    """The score that our parser must read from ``verdict``."""


class ScoringTemplates(BaseModel):
    """All texts of the scoring prompt; an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)

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

    @model_validator(mode="after")
    def _consistent(self) -> "ScoringTemplates":
        problems = _sample_problems(self.sample)
        for name in ("instruction", "compact_instruction"):
            if getattr(self, name).count(BOX_DEMAND) != 1:
                problems.append(f"{name}: must ask for exactly one {BOX_DEMAND}")
        for name in ("header", "compact_header"):
            if "\\box" in getattr(self, name):
                problems.append(f"{name}: must not contain \\box; only the instruction asks for it")
        for number, example in enumerate(self.examples, start=1):
            found = _example_problems(example, self.separator)
            problems += [f"examples[{number}].{problem}" for problem in found]
        if problems:
            raise ValueError("; ".join(problems))
        return self

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


def _sample_problems(sample: str) -> list[str]:
    quoted = [f"{QUOTE_OPEN}{slot}{QUOTE_CLOSE}" for slot in (RESPONSE_SLOT, QUESTION_SLOT)]
    if any(sample.count(q) != 1 for q in quoted) or sample.count("{") != 2:
        return [f"sample: must contain {quoted[0]} and {quoted[1]} once each"]
    problems = []
    if sample.index(quoted[0]) > sample.index(quoted[1]):
        problems.append("sample: the response must come before the question")
    if sample.count(QUOTE_OPEN) != 2 or sample.count(QUOTE_CLOSE) != 2 or "\\box" in sample:
        problems.append(f"sample: no other {QUOTE_OPEN}, {QUOTE_CLOSE} or \\box is allowed")
    return problems


def _example_problems(example: ScoringExample, separator: str) -> Iterator[str]:
    for field in ("question", "response"):
        text = getattr(example, field)
        if neutralise(text, (separator,)) != text:
            yield f"{field}: contains a quote, separator, \\box or special token"
    if example.verdict.count("\\box{") != 1 or not example.verdict.endswith("}"):
        yield "verdict: must end with exactly one \\box{...}"
    if separator in example.verdict:
        yield "verdict: contains the separator"
    read = parse_score(example.verdict)
    if not read.valid or abs(read.score - example.score) > 1e-9:
        yield f"verdict: reads as {read.score}, but score is {example.score}"


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
    """Templates by a name in ``SHIPPED`` or from a file; ScoringError lists all broken rules."""
    path = templates_file(source)
    try:
        content = parse_yaml(path.read_text(encoding="utf-8-sig"))
        return ScoringTemplates.model_validate(content)
    except ValidationError as error:
        found = [
            ": ".join(filter(None, (".".join(map(str, problem["loc"])), problem["msg"])))
            for problem in error.errors()
        ]
        message = "; ".join(shorten(text.removeprefix("Value error, "), 600) for text in found)
        raise ScoringError(
            f"scoring templates {path}: {shorten(message, 2000)}",
            f"Correct the file; {SHIPPED['default']} shows every key.",
        ) from None
    except (OSError, UnicodeDecodeError, MalformedError) as error:
        raise ScoringError(
            f"scoring templates {path}: cannot be read ({error})",
            f"Give {' or '.join(SHIPPED)}, or a YAML file like {SHIPPED['default']}.",
        ) from error
