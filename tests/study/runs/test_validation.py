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


def test_the_sanity_set_is_known_by_its_own_name_only() -> None:
    names = {
        "val-core/openai/gsm8k/acc/mean@1": 0.2,
        "val-core/my/sanity_checks/acc/mean@1": 0.6,
        "val-core/refblend/sanity/acc/mean@1": 0.9,
    }
    rows = [
        {"arm": "off", "seed": 1, "step": 0, "metric": name, "value": value}
        for name, value in names.items()
    ]
    frame = validation_frame(pd.DataFrame(rows)).set_index("measure")["value"]
    assert frame.to_dict() == {"acc": pytest.approx(0.4), "sanity": 0.9}
