"""docs/explanation/reliability.md shows what the committed long runs gave."""

import pytest
from reliability import PAGE, filled


def test_the_tables_are_those_of_the_committed_results() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert filled(page) == page, "call `python benchmarks/reliability.py`"


def test_a_page_without_a_place_is_refused() -> None:
    with pytest.raises(ValueError, match="0 places for the table chaos"):
        filled("no table")
