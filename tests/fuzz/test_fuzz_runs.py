"""What a resume and the study's collection read of a run directory."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from fuzz_support import IDENTITY, attempt, folder
from fuzz_trees import mutated, mutated_bytes
from hypothesis import given, settings
from hypothesis import strategies as st

from refblend.config.trainer import TrainerConfig
from refblend.identity import IDENTITY_NAME
from refblend.provenance import finish, read_previous
from refblend.study.runs.collect import Collected, collect, read_collected, write_collected
from refblend.trainer.run_directory import check_run_dir

SUMMARY = {"status": "finished", "steps": 2, "reason": "", "validation": {}, "incidents": {}}
SESSION = {"start": "2026-01-01", "end": "2026-01-01", "wall_time_s": 5.5}
ENERGY = {"kwh": 0.1, "kg_co2e": 0.04, "method": "tdp"}
PROVENANCE = {
    "git": {"commit": "0123456789", "dirty": False},
    "hardware": {"cpu": "CPU", "cores": 2, "gpus": ["GPU"]},
    "sessions": [SESSION | {"energy": ENERGY}, SESSION | {"energy": None, "end": None}],
    "totals": {"wall_time_s": 11.0, "energy_kwh_estimated": 0.1, "kg_co2e_estimated": 0.04},
}
TEST = {
    "status": "finished",
    "of": {"identity": "this run", "step": 2},
    "greedy": 0.5,
    "sampled": 0.25,
}
ROLLOUT = {
    "step": 2,
    "uid": "p0",
    "question": "What is 1+1?",
    "response": "1+1=2\u2028#### 2\u0085",
    "reward": 1.0,
    "acc": 1.0,
    "length": 12,
    "judge_score": 0.75,
    "judge_valid": True,
    "judge_path": "text",
}
METRICS = [{"step": step, "actor/entropy": 0.5, "val-core/a/acc/mean@1": 0.25} for step in range(3)]
DOCUMENTS: dict[str, Any] = {
    "summary.json": SUMMARY,
    "provenance.json": PROVENANCE,
    "identity.json": {"identity": "this run"},
    "test.json": TEST,
    "rollouts/2.jsonl": ROLLOUT,
}
GRID = pd.DataFrame(
    [{"experiment": "A", "arm": a, "seed": "1", "overrides": "{}"} for a in ("sound", "hostile")]
)


def place(directory: Path, **files: bytes) -> Path:
    """A finished run; ``files`` replaces some of it."""
    (directory / "rollouts").mkdir(parents=True)
    documents = {name: json.dumps(tree, ensure_ascii=False) for name, tree in DOCUMENTS.items()}
    documents["rollouts/2.jsonl"] += "\n"
    documents["metrics.jsonl"] = "".join(json.dumps(record) + "\n" for record in METRICS)
    for name, text in documents.items():
        (directory / name).write_bytes(files.get(name, text.encode()))
    return directory


def check_collected(root: Path) -> Collected:
    """Whatever became of the hostile run, it is a row, and the sound one is complete."""
    collected = collect(GRID, "cpu", root)
    write_collected(collected, root / "out")
    read = read_collected(root / "out")
    assert list(read.runs.arm) == ["sound", "hostile"]
    assert read.runs.status[0] == "finished"
    assert read.runs.wall_time_s[0] == 11.0
    assert len(read.responses[read.responses.arm == "sound"]) == 1
    assert len(read.metrics[read.metrics.arm == "sound"]) == 8
    hostile = read.runs.iloc[1]
    if hostile.status == "failed":
        assert 0 < len(hostile.reason) < 600
    return read


@settings(max_examples=settings.default.max_examples // 3)  # each writes and reads two runs
@given(st.data())
def test_collect(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted([*DOCUMENTS, "metrics.jsonl"])))
    with folder() as root:
        sound = place(root / "cpu" / "sound" / "seed_1")
        content = data.draw(mutated_bytes((sound / name).read_bytes()))
        if name in DOCUMENTS and data.draw(st.booleans()):
            content = (json.dumps(data.draw(mutated(DOCUMENTS[name]))) + "\n").encode()
        place(root / "cpu" / "hostile" / "seed_1", **{name: content})
        read = check_collected(root)
        if read.runs.status[1] == "finished" and name in DOCUMENTS:
            check_hostile(read, name, content)


def check_hostile(read: Collected, name: str, content: bytes) -> None:
    """What was collected of a run that counts as finished is what its file says."""
    rows = read.responses[read.responses.arm == "hostile"]
    if name == "rollouts/2.jsonl":
        records = [json.loads(line) for line in content.split(b"\n")[:-1]]
        assert len(rows) == len(records)
        for key in ("step", "reward", "acc", "length", "judge_score", "judge_valid"):
            for found, record in zip(rows[key], records, strict=True):
                wanted = record.get(key)
                assert pd.isna(found) if wanted is None else found == wanted
    if name == "provenance.json":
        seconds = (json.loads(content).get("totals") or {}).get("wall_time_s")
        found = read.runs.wall_time_s[1]
        assert pd.isna(found) if seconds is None else found == seconds
    if name == "test.json" and json.loads(content).get("of") == TEST["of"]:
        values = read.metrics[(read.metrics.arm == "hostile") & (read.metrics.step == 2)]
        measured = dict(zip(values.metric, values.value, strict=True))
        for key, value in json.loads(content).items():
            if type(value) in (int, float):
                assert measured[f"test/{key}"] == value


@given(mutated(PROVENANCE) | mutated({"sessions": PROVENANCE["sessions"]}))
def test_provenance_on_resume(tree: Any) -> None:
    with folder() as path:
        file = path / "provenance.json"
        file.write_text(json.dumps(tree))
        accepted, record = attempt(lambda: read_previous(file), "provenance.json")
        if accepted:
            new = SESSION | {"energy": ENERGY}
            total = finish({"sessions": [*record["sessions"], new]}, 2.0, ENERGY)["totals"]
            known = sum(s["wall_time_s"] or 0.0 for s in tree["sessions"])
            assert total["wall_time_s"] == pytest.approx(known + 2.0, abs=2e-3)
            json.dumps(total, allow_nan=False)


@given(
    mutated_bytes(json.dumps(IDENTITY.record()).encode())
    | st.sampled_from((b"[]", b"[" * 3000, b"null", b""))
)
def test_identity(content: bytes) -> None:
    """Whatever stands in the record: the run is resumed or refused, and left as it is."""
    with folder() as path:
        place(path / "run")
        (path / "run" / IDENTITY_NAME).write_bytes(content)
        run = path / "run"
        accepted, prepared = attempt(
            lambda: check_run_dir(run, IDENTITY, TrainerConfig()), str(run), where=path
        )
        if accepted:
            assert prepared.start == "resume"
            assert not [d for d in prepared.changes if d.kind == "determining"]


BAD_RECORDS = {
    "totals a list": ("provenance.json", b'{"totals": [1]}'),
    "wall time a text": ("provenance.json", b'{"totals": {"wall_time_s": "x"}}'),
    "dirty a text": ("provenance.json", b'{"git": {"dirty": "maybe"}}'),
    "a huge accuracy": (
        "test.json",
        b'{"of": {"identity": "this run", "step": 2}, "greedy": 1' + b"0" * 400 + b"}",
    ),
    "summary nested without end": ("summary.json", b"[" * 100_000),
    "half a surrogate pair": ("summary.json", b'{"status": "failed", "reason": "\\ud800"}'),
    "no UTF-8": ("rollouts/2.jsonl", b"\xff\n"),
    "a list for a response": ("rollouts/2.jsonl", b"[]\n"),
    "a text for a reward": ("rollouts/2.jsonl", b'{"step": 1, "reward": "x"}\n'),
    "a torn line in the middle": ("rollouts/2.jsonl", b'{torn\n{"step": 1, "reward": 1.0}\n'),
}


@pytest.mark.parametrize("name", BAD_RECORDS)
def test_unreadable_run(tmp_path: Path, name: str) -> None:
    file, content = BAD_RECORDS[name]
    place(tmp_path / "cpu" / "sound" / "seed_1")
    place(tmp_path / "cpu" / "hostile" / "seed_1", **{file: content})
    run = check_collected(tmp_path).runs.iloc[1]
    assert run.status == "failed"
    assert "unreadable" in run.reason
