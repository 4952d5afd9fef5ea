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
from viewed_run import RESPONSES, RUN, write_run

from refblend.config.trainer import TrainerConfig
from refblend.identity import IDENTITY_NAME
from refblend.provenance import finish, read_previous
from refblend.study.runs.collect import STEP, Collected, collect, read_collected, write_collected
from refblend.trainer.run_directory import check_run_dir

DOCUMENTS: dict[str, Any] = {
    name: json.loads((RUN / name).read_text(encoding="utf-8"))
    for name in ("summary.json", "provenance.json", "identity.json", "test.json")
}
PROVENANCE, TEST = DOCUMENTS["provenance.json"], DOCUMENTS["test.json"]
SESSION = PROVENANCE["sessions"][0]
DOCUMENTS["rollouts/2.jsonl"] = RESPONSES[0]
GRID = pd.DataFrame(
    [{"experiment": "A", "arm": a, "seed": "1", "overrides": "{}"} for a in ("sound", "hostile")]
)


def place(directory: Path, **files: bytes) -> Path:
    """A finished run; ``files`` replaces some of it."""
    write_run(directory)
    for name, content in files.items():
        (directory / name).write_bytes(content)
    return directory


def check_collected(root: Path) -> Collected:
    """Whatever became of the hostile run, it is a row, and the sound one is complete."""
    collected = collect(GRID, "cpu", root)
    write_collected(collected, root / "out")
    read = read_collected(root / "out")
    assert list(read.runs.arm) == ["sound", "hostile"]
    assert read.runs.status[0] == "finished"
    assert read.runs.wall_time_s[0] == 90.0
    assert len(read.responses[read.responses.arm == "sound"]) == 4
    assert read.metrics[read.metrics.arm == "sound"].drop(columns=STEP).count().sum() == 9
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
        for key, value in json.loads(content).items():
            if type(value) in (int, float):
                assert values[f"test/{key}"].item() == value


@given(mutated(PROVENANCE) | mutated({"sessions": PROVENANCE["sessions"]}))
def test_provenance_on_resume(tree: Any) -> None:
    with folder() as path:
        file = path / "provenance.json"
        file.write_text(json.dumps(tree))
        accepted, record = attempt(lambda: read_previous(file), "provenance.json")
        if accepted:
            sessions = [*record["sessions"], SESSION]
            total = finish({"sessions": sessions}, 2.0, SESSION["energy"])["totals"]
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
    "a huge accuracy": (
        "test.json",
        b'{"of": {"identity": "this run", "step": 2}, "greedy": 1' + b"0" * 400 + b"}",
    ),
    "summary nested without end": ("summary.json", b"[" * 100_000),
    "half a surrogate pair": ("summary.json", b'{"status": "failed", "reason": "\\ud800"}'),
    "no UTF-8": ("rollouts/2.jsonl", b"\xff\n"),
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
