"""Plain words of YAML mean what they mean to DVC, which writes YAML 1.2."""

import math
from typing import Any

import pytest

from refblend.documents import MalformedError, parse_json, parse_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("baseline: off", {"baseline": "off"}),
        ("off:\n  a: true", {"off": {"a": True}}),
        ("[no, yes, on, y, n]", ["no", "yes", "on", "y", "n"]),
        ("[true, True, FALSE]", [True, True, False]),
        ("['true', \"off\"]", ["true", "off"]),
        ("[null, 1, 1.5e+3, text]", [None, 1, 1500.0, "text"]),
        ("[010, 1:30, 1_0, 0x1f, -7, 0]", ["010", "1:30", "1_0", 31, -7, 0]),
        ("[1:30.5, 1_0.5, .5, -.inf, 2.]", ["1:30.5", "1_0.5", 0.5, -math.inf, 2.0]),
        (
            "[1e-4, -5E1, 1.e3, 1e, e1, '1e-4', 12e5f]",
            [1e-4, -50.0, 1e3, "1e", "e1", "1e-4", "12e5f"],
        ),
    ],
)
def test_booleans_and_numbers_are_those_of_yaml_1_2(text: str, value: Any) -> None:
    assert parse_yaml(text) == value


@pytest.mark.parametrize("text", ['{"a": 1, "a": 2}', '[{"b": {"a": 1, "c": 0, "a": 1}}]'])
def test_a_key_that_is_given_twice_is_refused(text: str) -> None:
    with pytest.raises(MalformedError, match="the key 'a' is given twice"):
        parse_json(text)
