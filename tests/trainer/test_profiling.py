from refblend.trainer.profiling import chrome_trace
from refblend.trainer.step_metrics import Span

SPANS = [Span("gen", 100.0, 2.0), Span("adv", 102.5, 0.5), Span("step", 100.0, 4.0)]


def test_stages_become_a_chrome_trace():
    events = chrome_trace(SPANS)["traceEvents"]
    assert isinstance(events, list)
    assert [(e["name"], e["ts"], e["dur"]) for e in events] == [
        ("gen", 0.0, 2e6),
        ("step", 0.0, 4e6),
        ("adv", 2.5e6, 0.5e6),
    ]
    assert {e["ph"] for e in events} == {"X"}
    assert chrome_trace([])["traceEvents"] == []
