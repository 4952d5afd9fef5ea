"""One error for everything that is wrong with a document."""

import pytest
from pydantic import ValidationError

from refblend.config.base import PositiveInt, Section
from refblend.config.loading import explain
from refblend.errors import ConfigError
from refblend.study.design.workflow import workflow_config


class Inner(Section):
    width: PositiveInt = 1


class Outer(Section):
    inner: Inner = Inner()
    name: str


def explained(tree: dict) -> str:
    with pytest.raises(ValidationError) as caught:
        Outer.model_validate(tree)
    return str(explain(caught.value, Outer, "file x: ", lambda location: f" at {location[0]}"))


def test_one_problem_is_one_sentence_with_its_remedy() -> None:
    message = explained({"name": "a", "inner": {"widht": 2}})
    assert message == "file x: unknown key inner.widht at inner. Did you mean inner.width?"
    message = explained({"inner": {"width": 0}, "name": "a"})
    assert message.startswith("file x: inner.width=0 is not acceptable at inner. Input should be")
    assert explained({}) == "file x: name is missing at name. Set name in a file or as an override."


def test_several_problems_are_numbered_and_the_document_is_named_once() -> None:
    message = explained({"inner": {"width": 0}, "nam": "a"})
    assert message.startswith("file x: 3 problems: (1) unknown key nam at nam.")
    assert "(2) inner.width=0" in message
    assert "(3) name is missing" in message
    assert message.count("file x") == 1


def test_the_workflows_configuration_is_refused_in_one_line_and_completed() -> None:
    with pytest.raises(ConfigError) as caught:
        workflow_config({"scal": "cpu"})
    message = str(caught.value)
    assert message.endswith("unknown key scal. Did you mean scale?")
    assert "\n" not in message
    assert len(message) < 120
    assert workflow_config({"scale": "smoke"})["seeds_per_job"] == 10
