"""Trackers: what each is given, and the errors that name a remedy; see also tests/integrations."""

import importlib.util
import json
import math
import posixpath
import re
from collections.abc import Mapping
from typing import Any

import pytest

from refblend.errors import CheckpointError, ConfigError, ResourceError
from refblend.trainer.trackers import (
    COLUMNS,
    PACKAGES,
    ROWS_SHOWN,
    TRACKERS,
    Tracker,
    TrackerContext,
    Trackers,
    service_name,
)


def test_every_tracker_is_closed(monkeypatch, tmp_path, caplog):
    """After one that cannot be closed, and when a later one cannot even be made."""
    closed = []

    class Client(Tracker):
        def close(self, failed: bool = False) -> None:
            closed.append(failed)
            raise RuntimeError("the service's own")

    def refused(context: TrackerContext) -> Tracker:
        raise PermissionError("no key")

    for name in ("one", "two"):
        monkeypatch.setitem(TRACKERS, name, lambda _: Client())
    monkeypatch.setitem(TRACKERS, "refused", refused)
    context = TrackerContext(tmp_path, 3)
    with Trackers(["one", "two"], context):
        pass
    assert "one failed: RuntimeError: the service's own" in caplog.text
    assert closed == [False, False]
    with pytest.raises(KeyError, match="the cause"), Trackers(["one", "two"], context):
        raise KeyError("the cause")
    with pytest.raises(ResourceError, match="refused failed: PermissionError: no key"):
        Trackers(["one", "refused"], context)
    assert closed == [False, False, True, True, True]


def test_a_damaged_record_of_identities_is_named(monkeypatch, tmp_path):
    """Not the tracker, which has no part in it."""
    (tmp_path / "trackers.json").write_text("{torn")
    monkeypatch.setitem(TRACKERS, "mine", lambda context: context.identity("mine"))
    with pytest.raises(CheckpointError, match=r"trackers\.json cannot be read.*Remove it"):
        Trackers(["mine"], TrackerContext(tmp_path, 3))


def test_an_outage_of_a_service_names_the_tracker(monkeypatch, tmp_path):
    """Clients raise errors of their own; a full disk is told as one, whoever met it."""

    class Away(Tracker):
        def log(self, step: int, metrics: Mapping[str, float]) -> None:
            raise ConnectionError("refused") if step == 1 else OSError(28, "No space left")

    monkeypatch.setitem(TRACKERS, "away", lambda _: Away())
    with Trackers(["away"], TrackerContext(tmp_path, 3)) as trackers:
        with pytest.raises(ResourceError, match=r"away failed: ConnectionError: refused\. Repair"):
            trackers.log(1, {})
        with pytest.raises(OSError, match="No space left"):
            trackers.log(2, {})


def test_own_tracker(tmp_path, monkeypatch):
    seen = []

    class Mine(Tracker):
        def __init__(self, context: TrackerContext) -> None:
            seen.append(context.total_steps)

        def log(self, step: int, metrics: object) -> None:
            seen.append(step)

        def rollouts(self, step: int, rows: Any) -> None:
            seen.append(rows[-1]["response"])

        def close(self, failed: bool = False) -> None:
            seen.append(f"closed, failed {failed}")

    monkeypatch.setitem(TRACKERS, "mine", Mine)
    (tmp_path / "rollouts").mkdir()
    row = dict.fromkeys(COLUMNS, 0.5)
    lines = [
        json.dumps(row | {"response": f"a\u2028\x85 {n}"}, ensure_ascii=False)
        for n in range(ROWS_SHOWN + 3)
    ]
    (tmp_path / "rollouts" / "2.jsonl").write_text("\n".join(lines), "utf-8")
    with Trackers(["mine", "mine", "jsonl"], TrackerContext(tmp_path, 7)) as trackers:
        trackers.log(1, {})
        trackers.log(2, {})
    assert seen == [7, 1, 2, f"a\u2028\x85 {ROWS_SHOWN - 1}", "closed, failed False"]
    seen.clear()
    with pytest.raises(KeyError), Trackers(["mine"], TrackerContext(tmp_path, 7)):
        raise KeyError
    assert seen == [7, "closed, failed True"]


@pytest.mark.parametrize("name", PACKAGES)
def test_a_missing_package_is_refused_before_the_run(name, tiny_config, monkeypatch):
    """By ``refblend check`` already, with the command that helps."""
    from refblend.trainer.preflight import preflight

    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n: None if n == name else found(n))
    with pytest.raises(
        ConfigError, match=rf"{name}, which is not installed. Run: pip install {name}"
    ):
        preflight(tiny_config(f"trainer.logger=[console, {name}]"))


def test_a_resumed_run_keeps_its_identity(tmp_path):
    context = TrackerContext(tmp_path, 3)
    first = context.identity("wandb")
    assert context.identity("mlflow", lambda: "mine") == "mine"
    assert TrackerContext(tmp_path, 9, 2).identity("wandb") == first
    assert context.identity("mlflow") == "mine"


def test_names_of_a_run(tmp_path, tiny_config):
    def names(*overrides: str) -> tuple[str, str]:
        settings = tiny_config(*overrides).resolved()
        context = TrackerContext(tmp_path / "linear" / "seed_1", 3, settings=settings)
        return context.project, context.experiment

    assert names() == ("refblend", "linear/seed_1")
    given = ("trainer.project_name=mine", "trainer.experiment_name=first")
    assert names(*given) == ("mine", "first")


def test_tensorboard_has_metrics_configuration_and_rollouts(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (tmp_path / "rollouts").mkdir()
    row = dict.fromkeys(COLUMNS, 0.5) | {"response": "3+4=7"}
    (tmp_path / "rollouts" / "1.jsonl").write_text(json.dumps(row))

    def run(start: int, steps: range, value: float) -> None:
        context = TrackerContext(tmp_path, 5, start, settings={"trainer": {"seed": 5}})
        with Trackers(["tensorboard"], context) as trackers:
            for step in steps:
                trackers.log(step, {"actor/entropy": value, "bad": math.nan})

    run(0, range(2), 0.5)
    run(0, range(4), 1.0)  # a worker died before the first checkpoint
    run(1, range(2, 6), 2.0)  # resumed from step 1: the first course's steps 2 and 3 give way
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert events.Tags()["scalars"] == ["actor/entropy"]
    scalars = [(e.step, e.value) for e in events.Scalars("actor/entropy")]
    assert scalars == [(0, 1.0), (1, 1.0), (2, 2.0), (3, 2.0), (4, 2.0), (5, 2.0)]
    for name, shown in (("config", '"seed": 5'), ("rollouts", '"response": "3+4=7"')):
        (text, *_) = events.Tensors(f"{name}/text_summary")[0].tensor_proto.string_val
        assert shown in text.decode()


ODD = (
    "gsm8k|openai/gsm8k|a (b)|a [b]|a, b|a; b|50%|50$|a//b|a///b|/a|//a|a/|..|a/../b|.|a ||算术"
    "|at_at_at|at@at|line\nbreak|mean_at_1"
)
SOURCES = [*ODD.split("|"), "x" * 250, "x" * 250 + "y", "x" * 260, "(" * 250]


@pytest.mark.parametrize("at", ["@", "_at_"])
def test_names_that_services_refuse_are_mapped_without_collisions(at):
    """MLflow's rule, which is the strictest, in its own words; ``@`` only where it allows it."""
    names = [f"val-core/{source}/acc/mean@1" for source in SOURCES]
    names += [f"val-core/{source}/acc/mean_at_1" for source in SOURCES]
    names += [source for source in SOURCES if source]
    mapped = [service_name(name, at) for name in names]
    assert len(set(mapped)) == len(set(names))
    for name in mapped:
        assert re.fullmatch(r"[/\w.\- :@]+", name), name
        assert ("@" in at) or ("@" not in name)
        assert len(name) <= 250
        normal = posixpath.normpath(name)
        assert normal == name
        assert not normal.startswith(("/", ".."))
        assert name != "."
    kept = "val-core/openai/gsm8k/acc/mean@1"
    assert service_name(kept, at) == kept.replace("@", at)
    assert service_name("actor/ref_quality/weight", at) == "actor/ref_quality/weight"
