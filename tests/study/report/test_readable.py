import numpy as np
import pandas as pd

from refblend.study.report.readable import listed, seed_text, to_markdown


def test_markdown_cells_do_not_break_the_table() -> None:
    frame = pd.DataFrame(
        {
            "a_name": ["x|y", "two\nlines"],
            "value": [0.123456, np.nan],
            "count": pd.array([1, None], dtype="Int64"),
            "flag": [True, False],
            "empty": [None, None],
        }
    )
    text = to_markdown(frame)
    assert "x\\|y" in text
    assert "two lines" in text
    assert "0.1235" in text
    assert "yes" in text
    assert "empty" not in text
    assert text.count("\n") == 3
    assert to_markdown(frame.iloc[:0]) == "No data."


def test_seeds_are_told_once_for_all_arms_that_have_them() -> None:
    seeds = {"off": [*range(11, 61)], "a": [11, 12, 13], "b": [11, 12, 13], "c": [7, 9, 10]}
    assert seed_text(seeds) == "11 to 13 (`off`: 11 to 60; `c`: 7, 9, 10)"
    assert seed_text({"off": [1, 2]}) == "1, 2"
    assert listed([16, 4, 16, 50]) == "4, 16 or 50"
    assert listed([5]) == "5"
