"""What a finished run says at its end."""

from pathlib import Path

from refblend.trainer.summary import metric_rows
from refblend.trainer.tracking import MetricsLog, read_metrics

VALIDATION = "val-core/refblend/arithmetic/acc/mean@1"


def write(run_dir: Path) -> None:
    log = MetricsLog(run_dir / "metrics.jsonl")
    log.append(0, {VALIDATION: 0.25})
    log.append(1, {"critic/score/mean": 0.5, "actor/ref_quality/weight": 0.1})
    log.append(2, {"critic/score/mean": 0.75, VALIDATION: 0.5, "actor/ref_quality/weight": 0.2})
    log.append(3, {"critic/score/mean": 0.625, VALIDATION: 0.375, "actor/ref_quality/weight": 0.3})


def test_first_best_and_last(tmp_path):
    write(tmp_path)
    assert metric_rows(read_metrics(tmp_path / "metrics.jsonl")) == [
        ("refblend/arithmetic", 0.25, 0.5, 0.375),
        ("training reward", 0.5, 0.75, 0.625),
        ("weight w", 0.1, None, 0.3),
    ]
