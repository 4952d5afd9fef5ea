import pandas as pd
import pytest

from refblend.study.runs.validation import validation_frame


def test_several_validation_sources_are_averaged() -> None:
    names = {"val-core/a/b/acc/mean@1": 0.2, "val-core/c/acc/mean@1": 0.6}
    rows = [
        {"arm": "off", "seed": 1, "step": 0, "metric": name, "value": value}
        for name, value in names.items()
    ]
    frame = validation_frame(pd.DataFrame(rows))
    assert frame.value.tolist() == [pytest.approx(0.4)]
