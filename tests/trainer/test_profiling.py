import json

from refblend.trainer.profiling import chrome_trace, write_profile
from refblend.trainer.step_metrics import Span

SPANS = [Span("gen", 100.0, 2.0), Span("adv", 102.5, 0.5), Span("step", 100.0, 4.0)]


def test_stages_become_a_chrome_trace() -> None:
    events = chrome_trace(SPANS)["traceEvents"]
    assert isinstance(events, list)
    assert [(e["name"], e["ts"], e["dur"]) for e in events] == [
        ("gen", 0.0, 2e6),
        ("step", 0.0, 4e6),
        ("adv", 2.5e6, 0.5e6),
    ]
    assert {e["ph"] for e in events} == {"X"}
    assert chrome_trace([])["traceEvents"] == []


def test_the_tables_give_shares(tmp_path) -> None:
    operators = [("aten::mm", 10, 3.0), *((f"op{i}", 1, 1.0 / 20) for i in range(20))]
    write_profile(tmp_path, SPANS, operators)
    assert len(json.loads((tmp_path / "stages.json").read_text())["traceEvents"]) == 3
    summary = (tmp_path / "summary.md").read_text()
    cells = [
        [c.strip() for c in line.split("|")[1:-1]] for line in summary.splitlines() if "|" in line
    ]
    assert ["gen", "2.0000", "0.5000"] in cells
    assert ["aten::mm", "10", "3.0000", "0.7500"] in cells
    assert "op13" in summary
    assert "op14" not in summary
