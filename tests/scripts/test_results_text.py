"""Numbers in the README and docs/results.md are the tables', and a claim that changed is named."""

import pytest
import results_text

GAIN = 'v("noisy_challenger", "noisy_off", expect="better")'


def test_the_committed_texts_hold() -> None:
    results_text.check()
    stated = [len(results_text.STATED.findall(path.read_text())) for path in results_text.TEXTS]
    assert stated == [7, 97]


@pytest.mark.parametrize(
    ("old", "new"), [("+0.9", "+0.033"), ("−0.1 [x]", "+0.033 [+0.014, +0.052]")]
)
def test_an_old_number_is_replaced_with_or_without_its_interval(old: str, new: str) -> None:
    assert (
        results_text.filled(f"It gains <!-- {GAIN} -->{old}: so")
        == f"It gains <!-- {GAIN} -->{new}: so\n"
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (GAIN.replace("better", "worse"), "line 2: .* is better, the text says wo"),
        ('v("nobody", "noisy_off")', "line 2: 0 verdicts of scale cpu"),
        ('v("noisy_challenger")', "line 2: .*: give two arms"),
        ('v("noisy_challenger", "noisy_off", hope="better")', "line 2: .*: give two arms"),
    ],
)
def test_a_claim_that_does_not_hold_is_named(call: str, message: str) -> None:
    with pytest.raises(results_text.StaleTextError, match=message):
        results_text.filled(f"# Results\nIt gains <!-- {call} -->+0.1.")
