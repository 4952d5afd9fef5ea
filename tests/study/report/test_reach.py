"""What so many seeds detect, against the power that it is said to have."""

import pytest

from refblend.study.report.plotting.reach import detectable
from refblend.study.stats.power import Design, power_of_difference

pytestmark = pytest.mark.unit


def test_the_edge_of_the_band_is_found_four_times_in_five() -> None:
    edge = detectable(0.03, 20, family=3)
    assert power_of_difference(Design(0.03, True, 0.05 / 3), 20, edge) == pytest.approx(
        0.8, abs=0.01
    )
    assert detectable(0.03, 20, family=6) > edge > detectable(0.03, 40, family=3)


@pytest.mark.parametrize(("deviation", "pairs"), [(0.0, 20), (0.03, 1), (float("nan"), 5)])
def test_nothing_is_shaded_where_nothing_varies(deviation: float, pairs: int) -> None:
    assert detectable(deviation, pairs, family=1) == 0
