"""The archive."""

from pathlib import Path

from fuzz_support import content

from refblend.study.runs.collect import copy_quality


def test_measurements_of_the_models_are_kept_with_their_times(tmp_path: Path) -> None:
    models, made, out = (tmp_path / name for name in ("models", "made", "results"))
    measured, when = models / "quality/actor.json", made / "judge_weak.json"
    for file in (measured, when):
        file.parent.mkdir(parents=True)
        file.write_text("1")
    copy_quality(models, made, out)
    kept = {"quality/actor.json": b"1", "quality/circumstances/judge_weak.json": b"1"}
    assert content(out) == kept
