"""Numbers of docs/results.md come from the tables, and a claim that changed is named."""

import pytest
import results_text


def test_the_committed_text_holds() -> None:
    text = results_text.fill((results_text.ROOT / "docs" / "results.md").read_text())
    assert "{{" not in text


def test_the_readme_states_the_numbers_of_the_tables() -> None:
    readme = (results_text.ROOT / "README.md").read_text()
    assert results_text.check(readme) == 5
    with pytest.raises(results_text.StaleTextError, match=r"\+0.033 in the tables"):
        results_text.check(readme.replace("-->+0.033", "-->+0.034"))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            'v("noisy_challenger", "noisy_off", expect="worse")',
            "line 2: .* is better, the text says wo",
        ),
        ('v("nobody", "noisy_off")', "line 2: 0 verdicts of scale cpu"),
        ('v("noisy_challenger")', "line 2: .*: give two arms"),
        ('v("noisy_challenger", "noisy_off", hope="better")', "line 2: .*: give two arms"),
    ],
)
def test_a_claim_that_does_not_hold_is_named(call: str, message: str) -> None:
    with pytest.raises(results_text.StaleTextError, match=message):
        results_text.fill(f"# Results\nIt gains {{{{ {call} }}}}.")
