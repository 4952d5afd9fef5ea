"""The forest of verdicts, by the pixels that it draws."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from refblend.study.report.plotting import common as plot
from refblend.study.report.plotting.forest import verdict_forest
from refblend.study.report.plotting.reach import MISSED_COLOUR

pytestmark = pytest.mark.unit
GREY = tuple(int(MISSED_COLOUR[i : i + 2], 16) for i in (1, 3, 5))


def test_the_band_spans_the_axis_where_no_difference_could_be_found() -> None:
    """The same numbers twice, of which so few seeds as the second has can show nothing."""
    row = {"endpoint": "test_sampled", "margin": 0.02, "estimate": 0.01, "low": -0.05}
    row |= {"high": 0.07, "alpha": 0.05, "least_p_adjusted": 0.01, "detectable": 0.03}
    row |= {"verdict": "undecided"}
    unknown = {"estimate": np.nan, "low": np.nan, "high": np.nan, "detectable": np.nan}
    rows = [row, row | {"least_p_adjusted": 0.25}, row | unknown]
    plot.apply_style()
    figure = verdict_forest(pd.DataFrame(rows), ["many", "few", "none"])
    (axis,) = figure.axes
    figure.canvas.draw()
    pixels = np.asarray(figure.canvas.buffer_rgba())
    right = axis.get_xlim()[1]

    def grey(place: int, x: float) -> bool:
        column, line = np.round(axis.transData.transform((x, place))).astype(int)
        around = pixels[-line - 5 : -line + 4, column, :3]  # the interval's bar is in the middle
        return GREY in {tuple(map(int, pixel)) for pixel in around}

    inside, outside = 1.3, 0.95 * right
    assert right > 2
    assert [grey(0, inside), grey(0, outside)] == [True, False]
    assert [grey(1, inside), grey(1, outside), grey(1, -outside)] == [True, True, True]
    assert [grey(2, inside), grey(2, outside)] == [False, False]
    plt.close(figure)
