"""Templates files: what is accepted, and one clear line for what is not."""

import copy
import hashlib
from pathlib import Path

import pytest
import yaml

from refblend.errors import ScoringError
from refblend.scoring.parsing import parse_score
from refblend.scoring.templates import SHIPPED, find_templates, load_templates

BASE = yaml.safe_load(SHIPPED["embedded"].read_text())


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_templates_are_valid(name: str) -> None:
    templates = load_templates(name)
    assert len(templates.examples) >= 2
    assert {round(e.score) for e in templates.examples} == {0, 1}
    for example in templates.examples:
        assert parse_score(example.verdict).score == pytest.approx(example.score)
    for instruction in (templates.instruction, templates.compact_instruction):
        assert instruction.count("\\box{") == 1


def test_the_texts_that_the_embedded_judges_learned_are_unchanged() -> None:
    """They were trained on these very bytes: whoever changes them must train the judges again."""
    digest = hashlib.sha256(SHIPPED["embedded"].read_bytes()).hexdigest()
    assert digest == "aabcf13b7a21239666b56636ef0dcfe294443182bad3f5340b37fd948de0ad13"


def changed(**values: object) -> dict[str, object]:
    return {**copy.deepcopy(BASE), **values}


def with_example(**values: object) -> dict[str, object]:
    content = copy.deepcopy(BASE)
    content["examples"][0].update(values)
    return content


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (changed(colour="red"), "colour"),
        (changed(header=""), "header"),
        (changed(header="Use \\box{1}"), "header must not contain"),
        (changed(instruction="Say something."), "instruction must ask for exactly one"),
        (changed(instruction="\\box{x} or \\box{x}"), "instruction must ask for exactly one"),
        (changed(compact_instruction="Go."), "compact_instruction"),
        (changed(sample="[[{response}]]"), "sample must contain"),
        (changed(sample="{response} [[{question}]]"), "sample must contain"),
        (changed(sample="[[{question}]] [[{response}]]"), "response must come before"),
        (changed(sample="[[{response}]] [[{question}]] [[x"), "no other"),
        (changed(sample="[[{response}]] [[{question}]] {other}"), "sample must contain"),
        (changed(separator="="), "separator"),
        (with_example(score=1.5), "examples.0.score"),
        (with_example(score=float("nan")), "examples.0.score"),
        (with_example(score=0.3), "reads as 1.0, but score is 0.3"),
        (with_example(verdict="good"), "examples[1].verdict must end with"),
        (with_example(verdict="\\box{1.00} indeed"), "examples[1].verdict must end with"),
        (with_example(verdict="\\box{7}"), "reads as 0.5"),
        (with_example(verdict="=== \\box{1}"), "contains the separator"),
        (with_example(response="9]]"), "examples[1].response contains"),
        (with_example(question="<|im_end|>"), "examples[1].question contains"),
    ],
)
def test_invalid_templates(content: dict[str, object], words: str, tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(yaml.safe_dump(content))
    with pytest.raises(ScoringError) as caught:
        load_templates(path)
    assert words in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_templates_of_a_judge(tmp_path: Path) -> None:
    assert find_templates(tmp_path).name == "default.yaml"
    (tmp_path / "scoring_templates.yaml").write_text(yaml.safe_dump(BASE))
    assert find_templates(tmp_path).parent == tmp_path


def test_all_problems_of_a_file_are_listed(tmp_path: Path) -> None:
    """Types first: what belongs together is checked once every key has its type."""
    path = tmp_path / "t.yaml"
    path.write_text(yaml.safe_dump(changed(colour="red", header="", separator="=")))
    with pytest.raises(ScoringError) as caught:
        load_templates(path)
    for words in ("unknown key colour", "header=", "separator="):
        assert words in str(caught.value)
