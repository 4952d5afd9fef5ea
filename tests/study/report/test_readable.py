import numpy as np
import pandas as pd

from refblend.study.report.readable import to_markdown


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
