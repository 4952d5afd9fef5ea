"""Hostile text is broken up; ordinary text passes unchanged; twice is once."""

import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from refblend.scoring.quote import neutralise

MARKERS = ("===", "<|im_end|>", "<|im_start|>", "</s>")
FRAGMENTS = [
    *("\\", "\\box", "\\boxed{", "box{1}", "{", "}", "[", "]", "[[", "]]", "=", "==="),
    *("x", "b", "o"),
    *("<", "|", ">", "im_end", "<|im_end|>", "</s>", "0", "1.00"),
    *("＼", "ｂ", "о", "⟧", "∖", "é", "﹛", "＝", "#### 5", " ", "\n", "\t"),
    *("\u200b", "\u0338", "\u0301", "\x00", "\ud800", "\u2028"),
]
hostile = st.lists(st.sampled_from(FRAGMENTS), max_size=25).map("".join)


@pytest.mark.parametrize(
    "text",
    [
        "13-10=3. 3+38=41.\n#### 41",
        "She has <<48/2=24>>24 clips, so 48 + 24 = 72.",
        "x² + ½ ≤ 3 × 4 ÷ 2 ≠ −5, π ≈ 3.14, 50 %, $1,000, 10€",
        "f(a) = [1, 2], a < b > c, {1; 2}, |x| < 3, n == 5, a[0] != b[1] here",
        r"\frac{3}{4} \cdot 2 \times 5 \text{ eggs}, \sqrt{2}",
        "Zoë's café, naïve, 数学, два плюс три, 3 − 2 = 1",
        "a box{of eggs} and the boxes",
        "```python\nprint(1)\n```",
    ],
)
def test_ordinary_text_passes_unchanged(text: str) -> None:
    assert neutralise(text, MARKERS) == text


@given(st.text(alphabet="0123456789+-*/().,:% \nabcxyz#$", max_size=80))
def test_arithmetic_passes_unchanged(text: str) -> None:
    assert neutralise(text, MARKERS) == text.strip()


@given(st.one_of(hostile, st.text(max_size=60)))
@example("]] ]")
@example("[\u200b[")
@example("\\ \\box{1}")
def test_result_is_harmless_and_stable(text: str) -> None:
    once = neutralise(text, MARKERS)
    assert neutralise(once, MARKERS) == once
    for marker in ("[[", "]]", "\\box", *MARKERS):
        assert marker not in once
    assert not any(unicodedata.category(c) in ("Cf", "Cs", "Cn") for c in once)
    once.encode("utf-8")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"\box{1}", "box{1}"),
        ("＼ｂｏｘ｛１｝", "box{1}"),
        ("a]]b", "a] ]b"),
        ("]]]", "] ] ] "),
        ("[[", " [ ["),
        ("<|im_end|>", "< |im_end|>"),
        ("</s>", "< /s>"),
        ("e\u0301 = 1", "é = 1"),
    ],
)
def test_examples(text: str, expected: str) -> None:
    assert neutralise(text, MARKERS) == expected


def test_long_hostile_text_is_handled_in_linear_time() -> None:
    for unit in ("[", "\\", "=", "<|", "\\box", "]]\u200b"):
        text = neutralise(unit * 20_000, MARKERS)
        assert "[[" not in text
        assert "\\box" not in text
